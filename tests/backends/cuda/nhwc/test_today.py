"""Networks of today on the GPU: a first training step compared with PyTorch's."""

import numpy as np
import pytest
from devices import needs_gpu
from recipes import sgd

from pareo import Device
from pareo.nn import networks
from pareo.training.step import Step, dropout_seeds

pytestmark = [pytest.mark.gpu, needs_gpu]

NAMES = ["resnet18", "mobilenet-v2", "densenet121", "vit-tiny-16"]
BATCH = 8


def start(name):
    network = networks.by_name(name)
    random = np.random.default_rng(0)
    images = random.standard_normal((BATCH, *network.inputs), dtype=np.float32)
    labels = random.integers(0, network.classes, BATCH)
    return network, network.initialise(1), images, labels, dropout_seeds(1, 0, network.seeds())


def ours(name, precision):
    """The loss, the gradients (velocities after one step from rest), and the new state."""
    import cupy

    network, parameters, images, labels, seeds = start(name)
    step = Step(network, BATCH, Device("cuda", precision=precision), sgd(0.9))
    moved = {path: cupy.asarray(a) for path, a in parameters.items()}
    state = set(network.state)
    speeds = {f"velocity.{p}": cupy.zeros_like(a) for p, a in moved.items() if p not in state}
    numbers = tuple(np.asarray(seed, np.int64) for seed in seeds)
    arguments = cupy.asarray(images), cupy.asarray(labels), (np.float32(0.01),), numbers
    loss = float(step.executable(moved, speeds, *arguments)[0])
    gradients = {p[len("velocity.") :]: cupy.asnumpy(a) for p, a in speeds.items()}
    return loss, gradients, {path: cupy.asnumpy(moved[path]) for path in state}


def theirs(name, precision):
    """The same by PyTorch on the same GPU: float32, tf32, or bfloat16 by autocast."""
    torch = pytest.importorskip("torch")
    from torch_network import training_loss

    network, parameters, images, labels, seeds = start(name)
    exact = precision == "float32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not exact
    state = set(network.state)
    leaves = {
        path: torch.tensor(a, device="cuda", requires_grad=path not in state)
        for path, a in parameters.items()
    }
    x, right = torch.tensor(images, device="cuda"), torch.tensor(labels, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
        loss = training_loss(network, leaves, x, right, seeds)
    loss.backward()
    gradients = {p: leaf.grad.cpu().numpy() for p, leaf in leaves.items() if p not in state}
    return loss.item(), gradients, {path: leaves[path].cpu().numpy() for path in state}


# Both round the same numbers in different orders, and PyTorch computes a few layers of tf32 in
# float32. A relu that rounding switches changes gradients by up to some percents.
SLACK = {"float32": 1e-5, "tf32": 2.0**-11, "bfloat16": 2.0**-8}


def distances(found, wanted):
    """The relative error of each array, beside a hundredth of the longest at least."""
    least = max((np.linalg.norm(a) for a in wanted.values()), default=0) / 100
    return {
        path: np.linalg.norm(found[path] - a) / max(np.linalg.norm(a), least)
        for path, a in wanted.items()
    }


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_no_farther_from_float32_than_pytorchs(name, precision):
    if name == "vit-tiny-16" and precision == "bfloat16":
        pytest.importorskip("cudnn")
    exact, right, state = theirs(name, "float32")
    loss, gradients, found = ours(name, precision)
    their_loss, their_gradients, their_state = theirs(name, precision)
    assert abs(loss - exact) <= 2 * abs(their_loss - exact) + 2e-3 * exact
    apart, their_apart = distances(gradients, right), distances(their_gradients, right)
    far = {p: (e, their_apart[p]) for p, e in apart.items() if e > 3 * their_apart[p] + 0.05}
    assert not far
    assert np.median(list(apart.values())) <= 1.5 * np.median(list(their_apart.values())) + 1e-2
    apart, their_apart = distances(found, state), distances(their_state, state)
    slack = SLACK[precision]
    assert not {p: e for p, e in apart.items() if e > 1.5 * their_apart[p] + slack}
