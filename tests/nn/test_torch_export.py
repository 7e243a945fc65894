"""Networks to PyTorch: the same outputs, losses and gradients, for every network by name."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_steps import batches, starting_weights, steps_of_pareo, thinner, without_chance

import pareo
from pareo import nn
from pareo.errors import PareoError, ShapeError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.nn.torch_export import to_torch
from pareo.nn.torch_names import from_torch_arrays, to_torch_arrays, torch_names

SIZES = {"alexnet": 63, "alexnet-original": 67, "lenet5": 28}
# What the channels are divided by; the widths of these have no larger common divisor.
FACTORS = {"lenet5": 1, "papers-cnn": 1, "mlp-small": 1, "alexnet-original": 2, "resnet8": 2,
           "resnet20": 4, "mobilenet-v2": 8, "efficientnet-b0": 8}  # fmt: skip
EXACT = 1e-9  # of a norm, in float64: sums in another order through a hundred layers


def small(name: str) -> Sequential:
    """The named network with all its layers, but few channels and small images."""
    factor, size = FACTORS.get(name, 16), SIZES.get(name, 64)
    network = networks.sized(name, (3, size, size), 5 * factor)
    return network if name.startswith("mlp") else without_chance(thinner(network, factor))


def close(found: Any, expected: Any, least: float = 0.0) -> bool:
    right = np.asarray(expected)
    return bool(np.linalg.norm(found - right) <= EXACT * np.linalg.norm(right) + least)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_network_has_the_same_outputs_and_gradients(name: str) -> None:
    network = small(name)
    start = starting_weights(network, "float64")
    [(images, labels)] = batches(network, 3, 1, "float64")
    [seen] = steps_of_pareo(network, "vectorized", start, [(images, labels)], rate=0.0)
    module = to_torch(network, start)
    x, wanted = torch.from_numpy(images), torch.from_numpy(labels)
    with torch.no_grad():
        after = module.eval()(x).numpy()
    with pareo.Device("vectorized"):
        assert close(after, network(start, images))
    results = module.train()(x)
    out, *heads = results if isinstance(results, tuple) else (results,)
    weights = [layer.weight for _, layer, _ in network.walk(network.inputs)
               if isinstance(layer, nn.Auxiliary)]  # fmt: skip
    loss = functional.cross_entropy(out, wanted)
    for weight, head in zip(weights, heads, strict=True):
        loss = loss + weight * functional.cross_entropy(head, wanted)
    loss.backward()
    assert close(loss.item(), seen.loss)
    found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = torch_names(network)
    nothing = 1e-12 * float(np.sqrt(sum(np.vdot(g, g) for g in seen.gradients.values())))
    for path, right in seen.gradients.items():
        theirs = found[names[path].name].grad.numpy()
        assert close(names[path].from_torch(theirs, right.shape), right, nothing), path
    for path, right in seen.state.items():
        assert close(found[names[path].name].numpy(), right), path


class Net(torch.nn.Module):
    """A graph with a shared input, a linear layer of pixels and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.fc = torch.nn.Linear(6, 4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        y = torch.cat([y[:, :3], y[:, 3:] * torch.sigmoid(y[:, :3])], 1)
        return self.drop(self.fc(y.mean((2, 3))))


def test_an_imported_graph_goes_back_under_its_own_names() -> None:
    torch.manual_seed(0)
    original = Net()
    imported = pareo.from_torch(original, (2, 5, 5))
    module = to_torch(imported)
    names = {n for n in original.state_dict() if "num_batches" not in n}
    assert set(module.state_dict()) == names
    x = torch.randn(3, 2, 5, 5)
    results = []
    for one in (original.eval(), module.eval()):
        out = one(x)
        out.square().sum().backward()
        results.append((out.detach(), {n: p.grad for n, p in one.named_parameters()}))
    (expected, theirs), (found, ours) = results
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, theirs)


def test_a_module_is_copied_moved_and_loaded_as_any_other() -> None:
    network = networks.lenet5()
    weights = network.initialise(3)
    module = to_torch(network, weights)
    other = copy.deepcopy(to_torch(network, network.initialise(4)))
    other.load_state_dict(module.state_dict())
    back = from_torch_arrays(network, {n: a.numpy() for n, a in other.state_dict().items()})
    assert all(np.array_equal(back[path], a) for path, a in weights.items())
    arrays = to_torch_arrays(network, weights)
    assert {n: tuple(a.shape) for n, a in module.state_dict().items()} == {
        n: a.shape for n, a in arrays.items()
    }
    assert module.double()(torch.zeros(2, 1, 28, 28, dtype=torch.float64)).dtype == torch.float64
    weights["c1.w"][:] = 0  # the module has copies
    assert module.c1.weight.abs().sum() > 0


def test_dropout_and_stochastic_depth_are_at_work_in_training_only() -> None:
    torch.manual_seed(0)
    network = nn.Sequential([nn.Dropout(0.5), nn.StochasticDepth(0.5)], (64,), "chance")
    module, x = to_torch(network), torch.ones(200, 64)
    assert torch.equal(module.eval()(x), x)
    y = module.train()(x)
    assert {0.0, 4.0} == set(y.unique().tolist())
    kept = (y.sum(1) > 0).float().mean().item()
    assert 0.3 < kept < 0.7  # of 200 images
    assert abs(y.mean().item() - 1) < 0.3


def test_wrong_arguments_are_one_sentence() -> None:
    network = networks.lenet5()
    with pytest.raises(PareoError, match="to_torch expects a network of pareo"):
        to_torch(torch.nn.Linear(2, 2))
    weights = network.initialise()
    weights["other"] = weights.pop("f6.w")
    with pytest.raises(ShapeError, match=r"missing: f6\.w.*left over: other"):
        to_torch(network, weights)
    taken = nn.Sequential([("forward", nn.Dense(2))], (3,), "taken")
    with pytest.raises(ShapeError, match=r"cannot have a weight called forward\.weight"):
        to_torch(taken)
