"""pareo's layers in PyTorch; images are (N, C, H, W), in memory with channels first or last."""

from collections.abc import Callable, Mapping
from functools import cache, reduce
from importlib import import_module
from operator import add, mul
from typing import Any

from pareo import nn
from pareo.array import Array
from pareo.nn.calls import (
    NORMALISATIONS,
    PRODUCTS,
    SHAPES,
    TABLES,
    TOKENS,
    pair,
    total_loss,
    unknown,
)  # fmt: skip

torch: Any  # imported by `load`, when needed
functional: Any


def load() -> Any:
    """Import PyTorch for this module, and return it."""
    global torch, functional
    torch, functional = import_module("torch"), import_module("torch.nn.functional")
    return torch


def loss_of(
    network: nn.Sequential,
    mean_loss: Callable[[Array, Array], Array],
    apply: Callable[[nn.Layer, Mapping[str, Array], Array], Array] | None = None,
) -> Callable[..., Array]:
    """The loss, with that of auxiliary heads, of parameters, images and labels.

    Running statistics are moved in place. `apply` computes layers in the place of `layer`.
    """

    def loss(parameters: Mapping[str, Array], x: Array, labels: Array) -> Array:
        return total_loss(
            network, parameters, x, apply or layer, joins(),
            loss=lambda out: mean_loss(out, labels),
        )  # fmt: skip

    return loss


def joins() -> dict[str, Callable[[list[Array]], Array]]:
    """How the results of branches become one."""
    return {
        "concat": lambda parts: torch.cat(parts, dim=1),
        "add": lambda parts: reduce(add, parts),
        "multiply": lambda parts: reduce(mul, parts),
        "matmul": lambda parts: torch.matmul(*parts),
    }


def layer(
    this: nn.Layer, parameters: Mapping[str, Array], x: Array, training: bool = True
) -> Array:
    """One of pareo's layers, in training or afterwards."""
    w: Any = parameters.get("w")
    b = parameters.get("b")
    match this:
        case nn.Conv():
            return functional.conv2d(x, w, b, this.stride, this.padding, this.dilation, this.groups)
        case nn.Subsample():
            return subsample(x, w, b, pair(this.stride))
        case nn.MaxPool():
            return functional.max_pool2d(
                x, this.size, this.stride, this.padding, ceil_mode=this.ceil
            )
        case nn.AveragePool():
            return functional.avg_pool2d(
                x, this.size, this.stride, this.padding, this.ceil, this.counts_padding
            )
        case nn.GlobalAveragePool():
            return functional.adaptive_avg_pool2d(x, 1)
        case nn.AdaptiveAveragePool():
            return functional.adaptive_avg_pool2d(x, this.size)
        case nn.Dense():
            return torch.addmm(b, x, w) if b is not None and x.ndim == 2 else linear(x, w, b)
        case nn.Flatten():
            return torch.flatten(x, 1)
        case nn.Identity():
            return x
        case nn.Dropout():
            return functional.dropout(x, this.rate, training)
        case nn.StochasticDepth():
            kept = functional.dropout(x.new_ones(len(x), *[1] * (x.ndim - 1)), this.rate, training)
            return x * kept if training else x
        case nn.Scale():
            return x * (w[:, None, None] if x.ndim == 4 else w)
    if isinstance(this, NORMALISATIONS):
        return normalised(this, parameters, x, training)
    if isinstance(this, SHAPES):
        return moved(this, x)
    if isinstance(this, TABLES):
        numbers = by_place(this, w, x)
        return x * numbers if isinstance(this, PRODUCTS) else x + numbers
    if isinstance(this, TOKENS):
        return tokens(this, w, x)
    return activation(this, x)


def moved(this: nn.Layer, x: Array) -> Array:
    """The layers that only move elements, or mix those along an axis."""
    match this:
        case nn.Reshape():
            return x.reshape(len(x), *this.shape)
        case nn.Permute():
            return x.permute(this.axes)
        case nn.Pad():
            pairs = zip(reversed(this.before), reversed(this.after), strict=True)
            return functional.pad(x, [side for pair in pairs for side in pair])
        case nn.Part():
            return x.narrow(this.axis, this.start, this.stop - this.start)
        case nn.Index():
            return x.index_select(this.axis, places_of(this, x.device))
        case nn.Mix():
            shares = shares_of(this, x.shape[this.axis], x.dtype, x.device)
            return (x.movedim(this.axis, -1) @ shares).movedim(-1, this.axis)
    raise unknown(this)


def by_place(this: nn.Layer, w: Any, x: Array) -> Array:
    """The numbers of a layer by place: fixed ones, or those of a trained table."""
    match this:
        case nn.FixedSum() | nn.FixedProduct():
            return numbers_of(this, x.dtype, x.device)
        case nn.TableSum() | nn.TableProduct():
            return w.reshape(-1)[numbers_of(this, torch.int64, x.device)]
    raise unknown(this)


@cache
def numbers_of(this: Any, dtype: Any, device: Any) -> Array:
    """The numbers of a layer on a device; kept, because a CUDA graph copies nothing."""
    return torch.tensor(this.array(), dtype=dtype, device=device)


@cache
def places_of(this: nn.Index, device: Any) -> Array:
    """The places of a layer on a device."""
    return torch.tensor(this.places, device=device)


@cache
def shares_of(this: nn.Mix, count: int, dtype: Any, device: Any) -> Array:
    """The shares of a layer on a device."""
    return torch.tensor(this.array(count), dtype=dtype, device=device)


def linear(x: Array, w: Array, b: Array | None) -> Array:
    """A product with weights (features, units), of rows or of tokens."""
    return functional.linear(x, w.t(), b)


def normalised(this: nn.Layer, parameters: Mapping[str, Array], x: Array, training: bool) -> Array:
    """The layers that normalise; batch normalisation moves its running statistics in training."""
    scale: Any = parameters.get("scale")
    shift = parameters.get("shift")
    match this:
        case nn.BatchNorm():
            mean, variance = parameters["mean"], parameters["variance"]
            return functional.batch_norm(
                x, mean, variance, scale, shift, training, momentum=this.momentum,
                eps=this.epsilon,
            )  # fmt: skip
        case nn.LayerNorm():
            axis = this.axis % x.ndim
            moved = x.movedim(axis, -1)  # a view, and contiguous for images with channels last
            moved = functional.layer_norm(moved, scale.shape, scale, shift, this.epsilon)
            return moved.movedim(-1, axis)
        case nn.GroupNorm():
            return functional.group_norm(x, this.groups, scale, shift, this.epsilon)
        case nn.Normalise():
            mean, deviation = constants(this, x.ndim, x.dtype, x.device)
            return (x - mean) / deviation
        case nn.Lrn():
            return functional.local_response_norm(x, this.size, this.alpha, this.beta, this.k)
    raise unknown(this)


@cache
def constants(this: nn.Normalise, axes: int, dtype: Any, device: Any) -> tuple[Array, Array]:
    """Mean and deviation on a device; kept, because a CUDA graph copies nothing from the host."""
    wide = (-1, *[1] * (axes - 2))
    mean, deviation = (
        torch.tensor(values, dtype=dtype, device=device).reshape(wide)
        for values in (this.mean, this.deviation)
    )
    return mean, deviation


def tokens(this: nn.Layer, w: Array, x: Array) -> Array:
    """The layers of transformers."""
    match this:
        case nn.Tokens():
            return x.flatten(2).transpose(1, 2)
        case nn.ClassToken():
            return torch.cat([w.to(x.dtype).expand(len(x), -1, -1), x], dim=1)
        case nn.Learned():
            return w.to(x.dtype).expand(len(x), *this.shape)
        case nn.PositionEmbedding():
            return x + w
        case nn.Attention():
            batch, count, features = x.shape
            parts = x.reshape(batch, count, 3, this.heads, -1).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(*parts.unbind(), is_causal=this.causal)
            return y.transpose(1, 2).reshape(batch, count, features // 3)
        case nn.FirstToken():
            return x[:, 0]
    raise unknown(this)


def activation(this: nn.Layer, x: Array) -> Array:
    """The layers that change each element by itself, softmax, and its logarithm."""
    match this:
        case nn.Sigmoid():
            return torch.sigmoid(x)
        case nn.Tanh():
            return torch.tanh(x)
        case nn.ReLU():
            return torch.relu(x)
        case nn.LeakyReLU():
            return functional.leaky_relu(x, this.slope)
        case nn.Clip():
            return functional.hardtanh(x, this.low, this.high)
        case nn.GELU():
            return functional.gelu(x, approximate="tanh" if this.approximate else "none")
        case nn.SiLU():
            return functional.silu(x)
        case nn.HardSigmoid():
            return functional.hardsigmoid(x)
        case nn.HardSwish():
            return functional.hardswish(x)
        case nn.ELU():
            return functional.elu(x, this.alpha)
        case nn.Softplus():
            return functional.softplus(x)
        case nn.Exp():
            return torch.exp(x)
        case nn.Log():
            return torch.log(x)
        case nn.Power():
            return powered(this, x)
        case nn.Affine():
            return x * this.factor + this.shift
        case nn.Softmax():
            return torch.softmax(x, dim=this.axis)
        case nn.LogSoftmax():
            return torch.log_softmax(x, dim=this.axis)
    raise unknown(this)


def powered(this: nn.Power, x: Array) -> Array:
    """A fixed power, by functions that are faster where there are any."""
    fast = {-1: torch.reciprocal, -0.5: torch.rsqrt, 0.5: torch.sqrt}.get(this.exponent)
    return fast(x) if fast else torch.pow(x, this.exponent)


def subsample(x: Array, w: Array, b: Array, stride: tuple[int, int]) -> Array:
    """One filter over every channel; a plain product if windows do not overlap.

    That product is several times as fast as a convolution with a group for each channel.
    """
    channels, (kh, kw) = x.shape[1], w.shape
    if stride != (kh, kw):
        filters = w.expand(channels, 1, kh, kw)
        return functional.conv2d(x, filters, stride=stride, groups=channels) + b
    rows, columns = x.shape[2] // kh, x.shape[3] // kw
    tiles = x[:, :, : rows * kh, : columns * kw]
    tiles = tiles.reshape(-1, channels, rows, kh, columns, kw)
    return torch.einsum("ncyuxv,uv->ncyx", tiles, w) + b
