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


def distance(found, wanted):
    apart = [np.linalg.norm(found[p] - a) / np.linalg.norm(a) for p, a in wanted.items()]
    return np.median(apart) if apart else 0.0


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_no_farther_from_float32_than_pytorchs(name, precision):
    if name == "vit-tiny-16" and precision == "bfloat16":
        pytest.importorskip("cudnn")
    exact, right, state = theirs(name, "float32")
    loss, gradients, found = ours(name, precision)
    their_loss, their_gradients, their_state = theirs(name, precision)
    assert abs(loss - exact) <= 2 * abs(their_loss - exact) + 2e-3 * exact
    # Both round the same numbers in different orders. In float32 theirs is the reference itself,
    # and a relu that rounding switches changes gradients by up to a percent.
    assert distance(gradients, right) <= 1.5 * distance(their_gradients, right) + 1e-2
    assert distance(found, state) <= 1.5 * distance(their_state, state) + 1e-5
