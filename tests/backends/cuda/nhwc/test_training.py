"""AlexNet and GoogLeNet on the GPU: a training step compared with PyTorch's, in each precision."""

import gc
import weakref

import numpy as np
import pytest
from devices import needs_gpu
from networks_for_tests import draw
from odd_programs import ODD
from recipes import sgd

from pareo import Device, Spec, trace
from pareo.lab.contestants import without_dropout
from pareo.nn import networks
from pareo.training.step import Step, dropout_seeds

pytestmark = [pytest.mark.gpu, needs_gpu]

NAMES = ["alexnet", "alexnet-original", "googlenet"]
BATCH, RATE = 4, 0.01


def start(name):
    network = networks.by_name(name)
    random = np.random.default_rng(0)
    images = random.standard_normal((BATCH, *network.inputs), dtype=np.float32)
    labels = random.integers(0, 1000, BATCH)
    return network, network.initialise(1), images, labels, dropout_seeds(1, 0, network.seeds())


def ours(name, precision):
    """The loss, and the gradients: the velocities after one step from rest."""
    import cupy

    network, parameters, images, labels, seeds = start(name)
    step = Step(network, BATCH, Device("cuda", precision=precision), sgd(0.9))
    moved = {path: cupy.asarray(a) for path, a in parameters.items()}
    speeds = {f"velocity.{path}": cupy.zeros_like(a) for path, a in moved.items()}
    numbers = tuple(np.asarray(seed, np.int64) for seed in seeds)
    arguments = cupy.asarray(images), cupy.asarray(labels), (np.float32(RATE),), numbers
    loss = float(step.executable(moved, speeds, *arguments)[0])
    return loss, {path[len("velocity.") :]: cupy.asnumpy(a) for path, a in speeds.items()}


def theirs(name, precision):
    """The same by PyTorch on the same GPU: float32, tf32, or bfloat16 by autocast."""
    torch = pytest.importorskip("torch")
    from torch_network import training_loss

    network, parameters, images, labels, seeds = start(name)
    exact = precision == "float32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not exact
    leaves = {p: torch.tensor(a, device="cuda", requires_grad=True) for p, a in parameters.items()}
    x, right = torch.tensor(images, device="cuda"), torch.tensor(labels, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
        loss = training_loss(network, leaves, x, right, seeds)
    loss.backward()
    return loss.item(), {path: leaf.grad.cpu().numpy() for path, leaf in leaves.items()}


def distances(found, wanted):
    return {p: np.linalg.norm(found[p] - a) / np.linalg.norm(a) for p, a in wanted.items()}


@pytest.mark.parametrize("name", NAMES)
def test_float32_agrees_with_pytorch(name):
    loss, gradients = ours(name, "float32")
    wanted, right = theirs(name, "float32")
    assert loss == pytest.approx(wanted, rel=1e-5)
    apart = list(distances(gradients, right).values())
    assert max(apart[-2:]) < 1e-4  # the last layer's gradients
    # In the layers before it, rounding may switch a relu or a maximum: one of a million in these
    # untrained networks changes a gradient by a percent. 1.3 % was seen in AlexNet.
    assert max(apart) < 3e-2


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_reduced_precision_is_no_farther_from_float32_than_pytorchs(name, precision):
    exact, right = theirs(name, "float32")
    loss, gradients = ours(name, precision)
    their_loss, their_gradients = theirs(name, precision)
    assert abs(loss - exact) <= 2 * abs(their_loss - exact) + 2e-3 * exact
    our_distance = np.median(list(distances(gradients, right).values()))
    their_distance = np.median(list(distances(their_gradients, right).values()))
    # Both round the same numbers in different orders, so chance decides which of them is closer.
    assert our_distance <= 1.5 * their_distance


# The first step runs launch by launch, the second is captured, the others are replayed.
ORDERS = {"of four": [[2, 1], [0, 3], [3, 3], [1, 2]], "fewer than a batch": [[0, 0]] * 4}
SLOW = 1e-7  # at 1e-4 a loss falls from 12 to 3e-4 in one step, where only rounding is left


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("data", ORDERS)
def test_steps_without_momentum_or_dropout_run_as_fit_runs_them(data, precision):
    """As in races; for this network the backend has no loop of its own."""
    import cupy

    order = np.array(ORDERS[data])
    network = without_dropout(networks.alexnet())
    parameters = network.initialise(1)
    _, _, images, labels, _ = start("alexnet")
    images, labels = images[: order.max() + 1], labels[: order.max() + 1]
    step = Step(network, 2, Device("cuda", precision=precision))
    moved = {path: cupy.asarray(a) for path, a in parameters.items()}
    with Device("cuda", precision=precision):
        losses = step.run(moved, {}, cupy.asarray(images), cupy.asarray(labels), order, SLOW)
    plain = Step(network, 2, Device("compiled"))
    kept = {path: a.copy() for path, a in parameters.items()}
    wanted = plain.run(kept, {}, images, labels, order, SLOW)
    tolerance = {"float32": 1e-5, "tf32": 1e-3, "bfloat16": 1e-2}[precision]  # as in lab/parity.py
    np.testing.assert_allclose(cupy.asnumpy(losses), wanted, rtol=tolerance)


def test_a_step_takes_the_memory_that_was_predicted():
    """Images are read from the dataset: there is no buffer for a batch of them."""
    import cupy

    pool, network = cupy.get_default_memory_pool(), without_dropout(networks.alexnet())
    device, order = Device("cuda", precision="tf32"), np.arange(32).reshape(4, 8)
    images, labels = cupy.zeros((32, 3, 224, 224), np.float32), cupy.zeros(32, np.int64)
    for _ in range(2):  # the first step also allocates what all steps share
        gc.collect()
        before = pool.used_bytes()
        step = Step(network, 8, device)
        moved = {path: cupy.asarray(a) for path, a in network.initialise(1).items()}
        with device:
            step.run(moved, {}, images, labels, order, SLOW)
        used, predicted = pool.used_bytes() - before + step.kept_bytes, step.memory()
        del step, moved
    assert used == pytest.approx(predicted, abs=1 << 20)  # a batch is 4.8 MB


def test_the_dataset_is_released_after_the_steps():
    import cupy

    network = without_dropout(networks.alexnet())
    step = Step(network, 2, Device("cuda", precision="tf32"))
    moved = {path: cupy.asarray(a) for path, a in network.initialise(1).items()}
    images, labels = cupy.zeros((4, 3, 224, 224), np.float32), cupy.zeros(4, np.int64)
    alive = weakref.ref(images)
    with step.device:
        step.run(moved, {}, images, labels, np.arange(4).reshape(2, 2), SLOW)
    del images
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", ODD)
def test_odd_programs_give_the_same_on_the_gpu(name):
    import cupy

    function, *shapes = ODD[name]
    arrays = [a.astype(np.float32) for a in draw(*shapes)]
    program = trace(function, *map(Spec, shapes))
    wanted = program.compile(Device("vectorized"))(*arrays)
    found = program.compile(Device("cuda"))(*map(cupy.asarray, arrays))
    np.testing.assert_allclose(cupy.asnumpy(found), wanted, rtol=1e-4, atol=1e-4)  # sums of 64
