"""The same network in PyTorch, from the very layer objects: what training is checked against."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pareo import Device, nn, op
from pareo.nn.network import Auxiliary, Branches, Sequential


def loss_and_gradients(
    network: Sequential, parameters: Mapping[str, Any], images: Any, labels: Any, seeds: Any = ()
) -> tuple[float, dict[str, Any]]:
    """PyTorch's loss in training, and its gradient by every parameter."""
    leaves = {path: torch.tensor(a, requires_grad=True) for path, a in parameters.items()}
    loss = training_loss(network, leaves, torch.tensor(images), torch.tensor(labels), seeds)
    loss.backward()
    return loss.item(), {path: leaf.grad.numpy() for path, leaf in leaves.items()}


def training_loss(network: Sequential, leaves: Any, x: Any, labels: Any, seeds: Any = ()) -> Any:
    """The loss in training, of tensors on any device."""
    run = _Run(leaves, iter(seeds))
    loss = functional.cross_entropy(run.sequence(network, "", x), labels)
    for weight, out in run.heads:
        loss = loss + weight * functional.cross_entropy(out, labels)
    return loss


def forward(network: Sequential, parameters: Mapping[str, Any], x: Any) -> Any:
    """The network's output when it is not in training."""
    return _Run(parameters, None).sequence(network, "", x)


class _Run:
    """One pass through a network; without seeds (None) it is not in training."""

    def __init__(self, parameters: Mapping[str, Any], seeds: Iterator[Any] | None) -> None:
        self.parameters, self.seeds = parameters, seeds
        self.heads: list[tuple[float, Any]] = []

    def sequence(self, network: Sequential, path: str, x: Any) -> Any:
        for number, layer in enumerate(network.layers):
            x = self.layer(layer, f"{path}{number}.", x)
        return x

    def layer(self, layer: nn.Layer, path: str, x: Any) -> Any:
        if isinstance(layer, Sequential):
            return self.sequence(layer, path, x)
        if isinstance(layer, Branches):
            parts = enumerate(layer.branches)
            return torch.cat([self.sequence(part, f"{path}{n}.", x) for n, part in parts], dim=1)
        if isinstance(layer, Auxiliary):
            if self.seeds is not None:
                self.heads.append((layer.weight, self.sequence(layer.head, path, x)))
            return x
        if isinstance(layer, nn.Dropout):
            return x if self.seeds is None else x * _mask(layer, x, next(self.seeds))
        return _layer(layer, self.parameters.get(f"{path}w"), self.parameters.get(f"{path}b"), x)


def _mask(layer: nn.Dropout, x: Any, seed: int) -> Any:
    """pareo's own choice of elements: no other generator would draw the same."""
    with Device("sequential" if x.numel() < 1000 else "vectorized"):
        kind = "float64" if x.dtype == torch.float64 else "float32"
        ones = np.ones(tuple(x.shape), kind)
        return torch.from_numpy(op.dropout(ones, layer.rate, seed)).to(x.device)


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
