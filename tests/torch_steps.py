"""Steps of plain SGD in pareo and in PyTorch, side by side, and networks with fewer channels."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch_network import tensors, training_loss

from pareo import Device, nn, to_device, to_host, trace, value_and_grad
from pareo.nn.network import Sequential
from pareo.nn.torch_names import TorchName, torch_names


@dataclass(frozen=True)
class Seen:
    """What one step computed, by path: before the update, but for the state, which is new."""

    loss: float
    gradients: Mapping[str, Any]
    state: Mapping[str, Any]


def thinner(network: Sequential, factor: int) -> Sequential:
    """The network with all its layers and connections, but a fraction of the channels.

    Its classes are divided, too.
    """

    def thin(layer: nn.Layer) -> nn.Layer:
        match layer:
            case nn.Conv():
                groups = layer.groups if layer.groups == 1 else layer.groups // factor
                filters = max(1, layer.filters // factor)
                return replace(layer, filters=filters, groups=groups)
            case nn.Dense():
                return replace(layer, units=max(1, layer.units // factor))
        return layer

    found = changed(network, thin)
    assert isinstance(found, Sequential)
    return found


def without_chance(network: Sequential) -> Sequential:
    """The network without dropout and stochastic depth; every other layer keeps its path."""

    def sure(layer: nn.Layer) -> nn.Layer:
        chance = isinstance(layer, nn.Dropout | nn.StochasticDepth)
        return nn.Identity() if chance else layer

    found = changed(network, sure)
    assert isinstance(found, Sequential)
    return found


def changed(layer: Any, change: Callable[[nn.Layer], nn.Layer]) -> Any:
    """A network with each layer that is not a container replaced."""
    match layer:
        case Sequential():
            parts = [changed(part, change) for part in layer.layers]
            pairs = list(zip(layer.names, parts, strict=True))
            return Sequential(pairs, layer.input_shape, layer.name)
        case nn.Branches() | nn.Add() | nn.Multiply():
            return type(layer)(*(changed(branch, change) for branch in layer.branches))
        case nn.Residual() | nn.Gate() | nn.Append():
            shortcut = None if layer.shortcut is None else changed(layer.shortcut, change)
            body = changed(layer.body, change)
            return type(layer)(body, shortcut, layer.activation, layer.shortcut_name)
        case nn.Graph():
            whats = [n.what if isinstance(n.what, str) else changed(n.what, change)
                     for n in layer.nodes]  # fmt: skip
            pairs = zip(layer.nodes, whats, strict=True)
            return nn.Graph([(node.name, (what, *node.reads)) for node, what in pairs])
        case nn.Auxiliary():
            return nn.Auxiliary(changed(layer.head, change), layer.weight)
    return change(layer)


def starting_weights(network: Sequential, dtype: str, seed: int = 1) -> dict[str, Any]:
    """Initial weights, but none that starts at 0 or 1 or nearly so, where a mistake is not seen."""
    random = np.random.default_rng(seed)
    found = network.initialise(seed, dtype)
    for path, array in found.items():
        if array.std() < 1e-3:
            spread = 0.2 if array.mean() > 0.5 or array.ndim == 1 else 0.02
            array += random.uniform(-spread, spread, array.shape).astype(dtype)
        if path.endswith(("scale", "variance")):
            np.abs(array, out=array)
    return found


def batches(network: Sequential, size: int, count: int, dtype: str) -> Iterator[tuple[Any, Any]]:
    """Random images and labels."""
    random = np.random.default_rng(5)
    for _ in range(count):
        images = random.standard_normal((size, *network.inputs)).astype(dtype)
        yield images, random.integers(0, network.classes, size)


def steps_of_pareo(
    network: Sequential, device: str, start: Mapping[str, Any], data: Any, rate: float
) -> Iterator[Seen]:
    """Plain SGD by one compiled program for the loss, the gradients and the state."""
    state = {path: start[path] for path in network.state}
    trained = {path: a for path, a in start.items() if path not in state}
    run = None
    for images, labels in data:
        if run is None:
            program = trace(_pareo_step(network), trained, state, images, labels)
            with Device(device):
                run = program.compile()
        with Device(device):
            arguments = to_device((trained, state, images, labels))
            loss, gradients, state = to_host(run(*arguments))
        yield Seen(float(loss), gradients, state)
        trained = {path: a - a.dtype.type(rate) * gradients[path] for path, a in trained.items()}


def _pareo_step(network: Sequential) -> Callable[..., Any]:
    def step(trained: Any, state: Any, images: Any, labels: Any) -> Any:
        moved: dict[str, Any] = {}

        def loss(trained: Any) -> Any:
            total, new = network.loss_and_state({**trained, **state}, images, labels)
            moved.update(new)
            return total

        value, gradients = value_and_grad(loss)(trained)
        return value, gradients, {path: moved[path] for path in state}

    return step


def steps_of_torch(
    network: Sequential, start: Mapping[str, Any], data: Any, rate: float
) -> Iterator[Seen]:
    """The same by PyTorch, with our layers in its functions."""
    leaves = tensors(network, start)
    trained = {path: leaf for path, leaf in leaves.items() if leaf.requires_grad}
    for images, labels in data:
        loss = training_loss(network, leaves, torch.tensor(images), torch.tensor(labels))
        loss.backward()
        gradients = {path: leaf.grad.numpy().copy() for path, leaf in trained.items()}
        state = {path: leaves[path].numpy().copy() for path in network.state}
        yield Seen(loss.item(), gradients, state)
        with torch.no_grad():
            for leaf in trained.values():
                leaf -= rate * leaf.grad
                leaf.grad = None


def steps_of_module(
    module: Any, network: Sequential, data: Any, rate: float,
    names: Mapping[str, TorchName] | None = None,
) -> Iterator[Seen]:  # fmt: skip
    """The same by a module of torchvision or timm, whose weights were loaded before.

    names: of an imported network, those that its parameters have in the module.
    """
    module.train()
    names = torch_names(network) if names is None else names
    shapes = {path: p.shape for path, p in network.parameters(network.inputs).items()}
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)

    def ours(found: Mapping[str, Any], paths: Any) -> dict[str, Any]:
        def one(path: str, name: TorchName) -> Any:
            return name.from_torch(found[name.name].detach().numpy(), shapes[path]).copy()

        return {path: one(path, names[path]) for path in paths}

    state = network.state
    trained = [path for path in names if path not in state]
    for images, labels in data:
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(torch.tensor(images)), torch.tensor(labels))
        loss.backward()
        gradients = {name: p.grad for name, p in module.named_parameters()}
        yield Seen(loss.item(), ours(gradients, trained), ours(dict(module.named_buffers()), state))
        optimizer.step()


def largest_errors(found: Seen, expected: Seen) -> dict[str, float]:
    """How far the loss, the gradient and the state that differ most are off, and of what size.

    Of gradients, the length of the error beside the length of the gradient, or beside a hundredth
    of the longest gradient, whichever is larger: a bias before a batch normalisation has a gradient
    of 0, of which only rounding is left. A running mean is seen beside the deviation for the same
    reason: that of a convolution of normalised values is 0.
    """
    assert list(found.gradients) == list(expected.gradients)
    assert list(found.state) == list(expected.state)
    longest = max(np.linalg.norm(g) for g in expected.gradients.values())
    gradients = [
        float(np.linalg.norm(found.gradients[path] - g) / max(np.linalg.norm(g), longest / 100))
        for path, g in expected.gradients.items()
    ]
    state = [
        float(
            np.linalg.norm(found.state[path] - s) / max(np.linalg.norm(s), _spread(expected, path))
        )
        for path, s in expected.state.items()
    ]
    loss = abs(found.loss - expected.loss) / abs(expected.loss)
    return {"loss": loss, "gradient": max(gradients), "state": max(state, default=0.0)}


def _spread(expected: Seen, path: str) -> float:
    """The length of the running deviations beside a running mean; 0 for other statistics."""
    name, _, last = path.rpartition(".")
    return float(np.sqrt(expected.state[f"{name}.variance"].sum())) if last == "mean" else 0.0
