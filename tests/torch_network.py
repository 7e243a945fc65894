"""The same network in PyTorch, from the very layer objects: what training is checked against.

`Torch` is an interpreter (`pareo.nn.containers.Interpreter`): the structure of a network comes from
its containers, and each layer is computed by PyTorch's own function.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pareo import Device, nn, op
from pareo.nn.containers import Container
from pareo.nn.network import Sequential


def loss_and_gradients(
    network: Sequential, parameters: Mapping[str, Any], images: Any, labels: Any, seeds: Any = ()
) -> tuple[float, dict[str, Any]]:
    """PyTorch's loss in training, and its gradient by every trained parameter."""
    leaves = tensors(network, parameters)
    loss = training_loss(network, leaves, torch.tensor(images), torch.tensor(labels), seeds)
    loss.backward()
    trained = {path: leaf for path, leaf in leaves.items() if leaf.requires_grad}
    return loss.item(), {path: leaf.grad.numpy() for path, leaf in trained.items()}


def tensors(network: Sequential, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the parameters, of which those that are trained have gradients."""
    state = set(network.state)
    return {
        path: torch.tensor(a, requires_grad=path not in state) for path, a in parameters.items()
    }


def training_loss(network: Sequential, leaves: Any, x: Any, labels: Any, seeds: Any = ()) -> Any:
    """The loss in training, of tensors on any device; running statistics move in place."""
    run = Torch(iter(seeds))
    loss = functional.cross_entropy(network.run(leaves, x, run), labels)
    for weight, out in run.heads:
        loss = loss + weight * functional.cross_entropy(out, labels)
    return loss


def forward(network: Sequential, parameters: Mapping[str, Any], x: Any) -> Any:
    """The network's output when it is not in training."""
    return network.run(parameters, x, Torch(None))


@dataclass
class Torch:
    """One pass through a network; without seeds (None) it is not in training."""

    seeds: Iterator[Any] | None
    heads: list[tuple[float, Any]] = field(default_factory=list)

    def layer(self, layer: nn.Layer, parameters: Mapping[str, Any], x: Any) -> Any:
        """The output of one layer."""
        if isinstance(layer, nn.Dropout | nn.StochasticDepth):
            return x if self.seeds is None else x * _mask(layer, x, next(self.seeds))
        if isinstance(layer, nn.BatchNorm):
            return functional.batch_norm(
                x, parameters["mean"], parameters["variance"], parameters["scale"],
                parameters["shift"], self.seeds is not None, layer.momentum, layer.epsilon,
            )  # fmt: skip
        return _layer(layer, parameters, x)

    def join(self, how: str, parts: Sequence[Any]) -> Any:
        """Several results as one."""
        if how == "concat":
            return torch.cat(list(parts), dim=1)
        if how == "matmul":
            return parts[0] @ parts[1]
        joined = parts[0]
        for part in parts[1:]:
            joined = joined + part if how == "add" else joined * part
        return joined

    def head(self, weight: float, head: Container, parameters: Mapping[str, Any], x: Any) -> None:
        """Compute an auxiliary head, in training."""
        if self.seeds is not None:
            self.heads.append((weight, head.run(parameters, x, self)))


def _mask(layer: nn.Dropout | nn.StochasticDepth, x: Any, seed: int) -> Any:
    """pareo's own choice of elements: no other generator would draw the same."""
    shape = tuple(x.shape)
    if isinstance(layer, nn.StochasticDepth):
        shape = (shape[0], *[1] * (x.ndim - 1))
    with Device("sequential" if x.numel() < 1000 else "vectorized"):
        kind = "float64" if x.dtype == torch.float64 else "float32"
        ones = np.ones(shape, kind)
        return torch.from_numpy(op.dropout(ones, layer.rate, seed)).to(x.device)


def _layer(layer: nn.Layer, parameters: Mapping[str, Any], x: Any) -> Any:
    w, b = parameters.get("w"), parameters.get("b")
    match layer:
        case nn.Conv():
            return functional.conv2d(
                x, w, b, layer.stride, layer.padding, layer.dilation, layer.groups
            )
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
                x, layer.size, layer.stride, layer.padding, layer.ceil, layer.counts_padding
            )
        case nn.AdaptiveAveragePool():
            return functional.adaptive_avg_pool2d(x, layer.size)
        case nn.GlobalAveragePool():
            return functional.adaptive_avg_pool2d(x, 1)
        case nn.Lrn():
            return functional.local_response_norm(x, layer.size, layer.alpha, layer.beta, layer.k)
        case nn.LayerNorm():
            moved = x.movedim(layer.axis, -1)
            scale, shift = parameters["scale"], parameters["shift"]
            y = functional.layer_norm(moved, scale.shape, scale, shift, layer.epsilon)
            return y.movedim(-1, layer.axis)
        case nn.GroupNorm():
            scale, shift = parameters.get("scale"), parameters.get("shift")
            return functional.group_norm(x, layer.groups, scale, shift, layer.epsilon)
        case nn.Normalise():
            wide = (1, -1, *[1] * (x.ndim - 2))
            mean, deviation = (torch.tensor(v, dtype=x.dtype).reshape(wide).to(x.device)
                               for v in (layer.mean, layer.deviation))  # fmt: skip
            return (x - mean) / deviation
        case nn.Scale():
            return x * (w.reshape(-1, 1, 1) if x.ndim == 4 else w)
        case nn.Dense():
            return functional.linear(x, w.T, b)
        case nn.Flatten():
            return torch.flatten(x, 1)
        case nn.Identity():
            return x
        case nn.Reshape():
            return x.reshape(len(x), *layer.shape)
        case nn.Permute():
            return x.permute(layer.axes)
        case nn.Pad():
            sides = list(zip(layer.before, layer.after, strict=True))[::-1]
            return functional.pad(x, [side for pair in sides for side in pair])
        case nn.FixedSum():
            return x + torch.tensor(layer.array(), dtype=x.dtype).to(x.device)
        case nn.TableSum():
            places = torch.tensor(layer.array(), dtype=torch.int64).to(x.device)
            return x + w.flatten()[places]
        case nn.FixedProduct():
            return x * torch.tensor(layer.array(), dtype=x.dtype).to(x.device)
        case nn.TableProduct():
            places = torch.tensor(layer.array(), dtype=torch.int64).to(x.device)
            return x * w.flatten()[places]
        case nn.Index():
            return x.index_select(layer.axis, torch.tensor(layer.places).to(x.device))
        case nn.Mix():
            shares = torch.tensor(layer.array(x.shape[layer.axis]), dtype=x.dtype).to(x.device)
            return torch.tensordot(x, shares, ([layer.axis], [0])).movedim(-1, layer.axis)
        case nn.Part():
            return x[(slice(None),) * layer.axis + (slice(layer.start, layer.stop),)]
    return _tokens_or_activation(layer, w, x)


def _tokens_or_activation(layer: nn.Layer, w: Any, x: Any) -> Any:
    match layer:
        case nn.Tokens():
            return x.flatten(2).transpose(1, 2)
        case nn.ClassToken():
            return torch.cat([w.expand(len(x), -1, -1), x], dim=1)
        case nn.Learned():
            return w.expand(len(x), *layer.shape)
        case nn.PositionEmbedding():
            return x + w
        case nn.FirstToken():
            return x[:, 0]
        case nn.Attention():
            parts = (part.unflatten(2, (layer.heads, -1)).transpose(1, 2) for part in x.chunk(3, 2))
            y = functional.scaled_dot_product_attention(*parts, is_causal=layer.causal)
            return y.transpose(1, 2).flatten(2)
        case nn.Sigmoid():
            return torch.sigmoid(x)
        case nn.Tanh():
            return torch.tanh(x)
        case nn.ReLU():
            return torch.relu(x)
        case nn.LeakyReLU():
            return functional.leaky_relu(x, layer.slope)
        case nn.Clip():
            return functional.hardtanh(x, layer.low, layer.high)
        case nn.GELU():
            return functional.gelu(x, approximate="tanh" if layer.approximate else "none")
        case nn.SiLU():
            return functional.silu(x)
        case nn.HardSigmoid():
            return functional.hardsigmoid(x)
        case nn.HardSwish():
            return functional.hardswish(x)
        case nn.Softmax():
            return torch.softmax(x, dim=layer.axis)
        case nn.LogSoftmax():
            return torch.log_softmax(x, dim=layer.axis)
        case nn.ELU():
            return functional.elu(x, layer.alpha)
        case nn.Softplus():
            return functional.softplus(x)
        case nn.Exp():
            return torch.exp(x)
        case nn.Log():
            return torch.log(x)
        case nn.Power():
            return torch.pow(x, layer.exponent)
        case nn.Affine():
            return layer.factor * x + layer.shift
    raise TypeError(f"{layer!r} has no PyTorch counterpart here")
