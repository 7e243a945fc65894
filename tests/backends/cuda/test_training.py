"""Training on the GPU, with data in GPU memory and in pinned host memory."""

import numpy as np
import pytest
from devices import needs_gpu
from recipes import sgd
from step_values import use

import pareo
from pareo import Device, nn
from pareo.backends.cuda import training
from pareo.data import load
from pareo.errors import DeviceError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training import Evaluator, fit, floor
from pareo.training.floor import floor_seconds
from pareo.training.profile import operator_times
from pareo.training.step import Step

pytestmark = [pytest.mark.gpu, needs_gpu]
DATA = load("synthetic:1x8x8:4:300")
DEEP = Sequential(
    [
        nn.Conv(6, 3, 1, 1), nn.ReLU(), nn.MaxPool(3, 2), nn.Lrn(), nn.Conv(8, 3), nn.Tanh(),
        nn.Flatten(), nn.Dropout(0.3), nn.Dense(16), nn.ReLU(), nn.Dropout(0.5), nn.Dense(4),
    ],
    (1, 8, 8),
)  # fmt: skip


def trained(network, device, **how):
    how = {"epochs": 3, "batch_size": 32, "rate": 0.05, "momentum": 0.9, "seed": 2} | how
    return fit(network, DATA, device=device, progress=False, **how)


def apart(one, other):
    """The largest relative distance of two runs' parameters."""
    return max(
        np.linalg.norm(a - other.parameters[path]) / np.linalg.norm(a)
        for path, a in one.parameters.items()
    )


@pytest.mark.parametrize("network", [DEEP, networks.mlp([64, 16, 4])], ids=["deep", "mlp"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("float64", 1e-9)])
def test_the_same_run_as_on_the_cpu(network, dtype, tolerance):
    """Same weights, order and dropout; rounding errors grow over 24 steps."""
    there = trained(network, "cuda", precision=dtype)
    here = trained(network, "vectorized", precision=dtype)
    assert apart(there, here) < tolerance
    assert there.accuracy == here.accuracy
    losses = [run.history.column("loss") for run in (there, here)]
    np.testing.assert_allclose(*losses, rtol=tolerance)
    assert all(isinstance(a, np.ndarray) for a in there.parameters.values())


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.02), ("bfloat16", 0.2)])
def test_named_precisions_train_likewise(precision, tolerance):
    """Factors lose 13 or 16 of 24 bits in each product, and these errors grow over 24 steps."""
    run = trained(DEEP, "cuda", precision=precision)
    assert run.settings.precision == precision
    assert 0 < apart(run, trained(DEEP, "cuda")) < tolerance


def test_pinned_data_gives_the_bits_of_data_on_the_gpu(monkeypatch):
    resident = trained(DEEP, "cuda")
    monkeypatch.setattr(training, "DATASET_SHARE", 0.0)
    with pareo.transfers() as moved:
        streamed = trained(DEEP, "cuda")
    assert apart(resident, streamed) == 0
    images = 3 * 250 * 64 * 4
    assert images <= moved.to_device.bytes < 2 * images + 400_000


def test_an_epoch_transfers_only_the_order_and_the_losses():
    network = DEEP
    with Device("cuda") as place:
        step = Step(network, 50, place, sgd(0.9))
        there = pareo.to_device(
            (
                network.initialise(0),
                {f"velocity.{path}": 0 * a for path, a in network.initialise(0).items()},
                DATA.images[:200],
                DATA.labels[:200],
            )
        )
        order = np.random.default_rng(0).permutation(200).reshape(4, 50)
        step.run(*there, order, 0.1)
        with pareo.transfers() as moved:
            losses = step.run(*there, order, 0.1)
    assert losses.shape == (4,)
    assert moved.to_device.bytes == 200 * 8 + 4 * 2 * 8 + 4 * 4  # order, seeds, rates
    assert moved.to_host.bytes == 4 * 4


def test_images_that_the_gpu_cannot_read_are_refused():
    network = DEEP
    with Device("cuda") as place:
        step = Step(network, 50, place)
        parameters, labels = pareo.to_device((network.initialise(0), DATA.labels[:200]))
        order = np.arange(200).reshape(4, 50)
        with pytest.raises(DeviceError, match="images on the GPU, or in pinned memory"):
            step.run(parameters, {}, DATA.images[:200].copy(), labels, order, 0.1)


def test_evaluation_on_the_gpu():
    network = networks.mlp([64, 16, 4])
    run = trained(network, "cuda")

    found = Evaluator(network, Device("cuda"), 32)(
        run.parameters, DATA.test_images.reshape(-1, 64), DATA.test_labels
    )
    assert found[1] == run.accuracy


def test_each_operator_of_a_step_is_timed_against_the_floor(monkeypatch):
    use(monkeypatch, "otherwise")  # the way that has a kernel for each
    network, place = networks.mlp([64, 16, 4]), Device("cuda")
    step = Step(network, 50, place)
    arrays = (network.initialise(0), {}, DATA.images[:50].reshape(-1, 64), DATA.labels[:50])
    with place:
        there = (*pareo.to_device(arrays), (np.float32(0.1),), ())
        rows = operator_times(step.executable, there, seconds=0.01)
    assert {"dot_bias", "cross_entropy_with_gradient", "descend"} <= {row.name for row in rows}
    for row in rows:
        least = floor_seconds(row.flops, row.bytes, floor.peak(place), floor.bandwidth(place))
        assert 0 < least < row.seconds
