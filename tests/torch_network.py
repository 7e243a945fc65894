"""The same network in PyTorch, from the very layer objects: what training is checked against."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pareo import Device, nn, op
from pareo.nn.network import Branches, Sequential


def loss_and_gradients(
    network: Sequential, parameters: Mapping[str, Any], images: Any, labels: Any, seeds: Any = ()
) -> tuple[float, dict[str, Any]]:
    """PyTorch's loss in training, and its gradient by every parameter."""
    leaves = {path: torch.tensor(a, requires_grad=True) for path, a in parameters.items()}
    out = forward(network, leaves, torch.tensor(images), seeds)
    loss = functional.cross_entropy(out, torch.tensor(labels))
    loss.backward()
    return loss.item(), {path: leaf.grad.numpy() for path, leaf in leaves.items()}


def forward(network: Sequential, parameters: Mapping[str, Any], x: Any, seeds: Any = None) -> Any:
    """The network's output in training, or without seeds (None) when tested."""
    return _sequence(network, parameters, "", x, None if seeds is None else iter(seeds))


def _sequence(
    network: Sequential,
    parameters: Mapping[str, Any],
    path: str,
    x: Any,
    seeds: Iterator[Any] | None,
) -> Any:
    for number, layer in enumerate(network.layers):
        here = f"{path}{number}."
        if isinstance(layer, Sequential):
            x = _sequence(layer, parameters, here, x, seeds)
        elif isinstance(layer, Branches):
            parts = [
                _sequence(branch, parameters, f"{here}{which}.", x, seeds)
                for which, branch in enumerate(layer.branches)
            ]
            x = torch.cat(parts, dim=1)
        elif isinstance(layer, nn.Dropout):
            x = x if seeds is None else x * _mask(layer, x, next(seeds))
        else:
            x = _layer(layer, parameters.get(f"{here}w"), parameters.get(f"{here}b"), x)
    return x


def _mask(layer: nn.Dropout, x: Any, seed: int) -> Any:
    """pareo's own choice of elements: no other generator would draw the same."""
    with Device("sequential" if x.numel() < 1000 else "vectorized"):
        ones = np.ones(tuple(x.shape), str(x.dtype).removeprefix("torch."))
        return torch.from_numpy(op.dropout(ones, layer.rate, seed))


def _layer(layer: nn.Layer, w: Any, b: Any, x: Any) -> Any:
    match layer:
        case nn.Conv():
            return functional.conv2d(x, w, b, layer.stride, layer.padding, groups=layer.groups)
        case nn.Subsample():
            channels = x.shape[1]
            filters = w.expand(channels, 1, *w.shape)
            return functional.conv2d(x, filters, stride=layer.stride, groups=channels) + b
        case nn.MaxPool():
            return functional.max_pool2d(
                x, layer.size, layer.stride, layer.padding, ceil_mode=layer.ceil
            )
        case nn.AveragePool():
            return functional.avg_pool2d(
                x, layer.size, layer.stride, layer.padding, layer.ceil, count_include_pad=False
            )
        case nn.Lrn():
            return functional.local_response_norm(x, layer.size, layer.alpha, layer.beta, layer.k)
        case nn.Dense():
            return x @ w + b
        case nn.Flatten():
            return torch.flatten(x, 1)
        case nn.Sigmoid():
            return torch.sigmoid(x)
        case nn.Tanh():
            return torch.tanh(x)
        case nn.ReLU():
            return torch.relu(x)
        case nn.Softmax():
            return torch.softmax(x, dim=1)
    raise TypeError(f"{layer!r} has no PyTorch counterpart here")
