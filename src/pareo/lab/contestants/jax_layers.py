"""pareo's layers in JAX, on images with channels first or last."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from importlib import import_module
from operator import add, mul
from typing import Any

from pareo import nn
from pareo.lab.contestants.layers import (
    NORMALISATIONS,
    PRODUCTS,
    SHAPES,
    TABLES,
    TOKENS,
    Window,
    pair,
    shares,
    total_loss,
    unknown,
)
from pareo.lab.contestants.own_layers import Functions
from pareo.lab.contestants.task import Array

jax: Any  # imported by `load`, when needed
jnp: Any
lax: Any

Size = int | Sequence[int]
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of images with channels last, or first


def load() -> Any:
    """Import JAX for this module, and return it."""
    global jax, jnp, lax
    jax, jnp, lax = (import_module(name) for name in ("jax", "jax.numpy", "jax.lax"))
    return jax


def loss_and_state(
    network: nn.Sequential,
    trained: Mapping[str, Array],
    state: Mapping[str, Array],
    x: Array,
    mean_loss: Callable[[Array], Array],
    last: bool = False,
    half: bool = False,
    own: Functions | None = None,
) -> tuple[Array, dict[str, Array]]:
    """The loss, with that of auxiliary heads, and the new running statistics.

    `half` multiplies in bfloat16; normalisations stay in float32, and so do statistics.
    """
    if half:
        trained = {
            path: a if is_fine(path) else a.astype(jnp.bfloat16) for path, a in trained.items()
        }
        x = x.astype(jnp.bfloat16)
    paths = {id(array): path for path, array in state.items()}
    new: dict[str, Array] = {}

    def apply(this: nn.Layer, parameters: Mapping[str, Array], x: Array) -> Array:
        if own:
            first = x.transpose(FIRST) if last and x.ndim == 4 else x
            if function := own.get((this, first.shape[1:])):
                y = function(parameters, first).astype(x.dtype)
                return y.transpose(LAST) if last and y.ndim == 4 else y
        if not isinstance(this, nn.BatchNorm):
            return layer(this, parameters, x, last, half)
        y, *statistics = batch_norm(this, parameters, x, last)
        for name, value in zip(("mean", "variance"), statistics, strict=True):
            new[paths[id(parameters[name])]] = value
        return y

    def loss(out: Array) -> Array:
        return mean_loss(out.astype(jnp.float32))

    return total_loss(network, {**trained, **state}, x, apply, joins(last), loss), new


def is_fine(path: str) -> bool:
    """Whether a parameter stays in float32: those of normalisations do."""
    return path.rpartition(".")[2] in ("scale", "shift")


def joins(last: bool) -> dict[str, Callable[[list[Array]], Array]]:
    """How the results of branches become one."""
    return {
        "concat": lambda parts: jnp.concatenate(parts, channels_of(parts[0], last)),
        "add": partial(reduce, add),
        "multiply": partial(reduce, mul),
        "matmul": partial(products, last=last),
    }


def products(parts: list[Array], last: bool) -> Array:
    """Two values multiplied as matrices, along the last two axes where channels are first."""
    if not last or parts[0].ndim != 4:
        return parts[0] @ parts[1]
    one, two = (part.transpose(FIRST) for part in parts)
    return (one @ two).transpose(LAST)


def axis_of(axis: int, x: Array, last: bool) -> int:
    """Where an axis of values with channels first is."""
    return LAST.index(axis) if last and x.ndim == 4 else axis


def channels_of(x: Array, last: bool) -> int:
    """The axis of channels; tokens, and features alone, have their own at the same place always."""
    return 3 if last and x.ndim == 4 else 1


def along(vector: Array, x: Array, axis: int) -> Array:
    """A vector along one axis of x, in a shape that broadcasts."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return vector.reshape(shape)


def layer(
    this: nn.Layer, parameters: Mapping[str, Array], x: Array, last: bool, half: bool = False
) -> Array:
    """One of pareo's layers, in training, other than batch normalisation."""
    w: Any = parameters.get("w")
    b = parameters.get("b")
    channels = channels_of(x, last)
    match this:
        case nn.Conv():
            y = conv(x, w, this.stride, this.padding, this.groups, last, this.dilation)
            return y if b is None else y + along(b, y, channels)
        case nn.Subsample():
            if last:
                return subsample(x.transpose(FIRST), w, b, pair(this.stride)).transpose(LAST)
            return subsample(x, w, b, pair(this.stride))
        case nn.MaxPool():
            return windows(x, Window.of(this, sides(x, last)), -jnp.inf, lax.max, last)
        case nn.AveragePool():
            window = Window.of(this, sides(x, last))
            counts = window.counts[..., None] if last else window.counts
            return windows(x, window, 0.0, lax.add, last) / counts.astype(x.dtype)
        case nn.GlobalAveragePool():
            return jnp.mean(x, (1, 2) if last else (2, 3), keepdims=True)
        case nn.AdaptiveAveragePool():
            down, right = map(shares, sides(x, last), pair(this.size))
            if sides(x, last) == pair(this.size):
                return x
            how = "nhwc,hy,wx->nyxc" if last else "nchw,hy,wx->ncyx"
            return jnp.einsum(how, x, down.astype(x.dtype), right.astype(x.dtype))
        case nn.Dense():
            return x @ w if b is None else x @ w + b
        case nn.Flatten():
            x = x.transpose(FIRST) if last and x.ndim == 4 else x  # as weights expect them
            return x.reshape(x.shape[0], -1)
        case nn.Identity():
            return x
        case nn.Scale():
            return x * (along(w, x, channels) if x.ndim == 4 else w)
    if isinstance(this, NORMALISATIONS):
        return normalised(this, parameters, x, last)
    if isinstance(this, SHAPES):
        y = moved(this, x.transpose(FIRST) if last and x.ndim == 4 else x)
        return y.transpose(LAST) if last and y.ndim == 4 else y
    if isinstance(this, TABLES):
        numbers = by_place(this, w, x)
        numbers = numbers.transpose(LAST) if last and x.ndim == 4 else numbers
        return x * numbers if isinstance(this, PRODUCTS) else x + numbers
    if isinstance(this, TOKENS):
        return tokens(this, w, x, last, half)
    return activation(this, x, last)


def moved(this: nn.Layer, x: Array) -> Array:
    """The layers that move elements, or mix those along an axis, of images with channels first."""
    match this:
        case nn.Reshape():
            return x.reshape(x.shape[0], *this.shape)
        case nn.Permute():
            return x.transpose(this.axes)
        case nn.Pad():
            return jnp.pad(x, [(0, 0), *zip(this.before, this.after, strict=True)])
        case nn.Part():
            return lax.slice_in_dim(x, this.start, this.stop, axis=this.axis)
        case nn.Index():
            return jnp.take(x, jnp.array(this.places), axis=this.axis)
        case nn.Mix():
            shares = jnp.asarray(this.array(x.shape[this.axis]), x.dtype)
            return jnp.moveaxis(jnp.moveaxis(x, this.axis, -1) @ shares, -1, this.axis)
    raise unknown(this)


def by_place(this: nn.Layer, w: Array, x: Array) -> Array:
    """The numbers of a layer by place: fixed ones, or those of a trained table."""
    match this:
        case nn.FixedSum() | nn.FixedProduct():
            return jnp.asarray(this.array(), x.dtype)[None]
        case nn.TableSum() | nn.TableProduct():
            return w.reshape(-1)[this.array()][None]
    raise unknown(this)


def batch_norm(
    this: nn.BatchNorm, parameters: Mapping[str, Array], x: Array, last: bool
) -> tuple[Array, Array, Array]:
    """The normalised batch, and the new running mean and variance, all statistics in float32.

    The variance is the mean square less the square of the mean, as Flax computes it: both sums are
    one pass over x.
    """
    channels = channels_of(x, last)
    axes = tuple(axis for axis in range(x.ndim) if axis != channels)
    fine = x.astype(jnp.float32)
    mean = jnp.mean(fine, axes)
    variance = jnp.maximum(jnp.mean(lax.square(fine), axes) - lax.square(mean), 0.0)
    factor = lax.rsqrt(variance + this.epsilon) * parameters["scale"]
    y = (fine - along(mean, x, channels)) * along(factor, x, channels)
    y = (y + along(parameters["shift"], x, channels)).astype(x.dtype)
    count = x.size // x.shape[channels]
    found = mean, variance * (count / (count - 1))  # as that of a sample
    kept = (parameters[name] * (1 - this.momentum) for name in ("mean", "variance"))
    moved = (old + this.momentum * now for old, now in zip(kept, found, strict=True))
    return y, *(lax.stop_gradient(value) for value in moved)


def normalised(this: nn.Layer, parameters: Mapping[str, Array], x: Array, last: bool) -> Array:
    """The other layers that normalise."""
    channels = channels_of(x, last)
    match this:
        case nn.LayerNorm():
            axis = channels if this.axis % x.ndim == 1 else this.axis
            fine = x.astype(jnp.float32)
            mean = jnp.mean(fine, axis, keepdims=True)
            variance = jnp.mean(lax.square(fine - mean), axis, keepdims=True)
            y = (fine - mean) * lax.rsqrt(variance + this.epsilon)
            scale, shift = (along(parameters[name], x, axis) for name in ("scale", "shift"))
            return (y * scale + shift).astype(x.dtype)
        case nn.GroupNorm():
            first = x.transpose(FIRST) if last and x.ndim == 4 else x
            fine = first.reshape(x.shape[0], this.groups, -1).astype(jnp.float32)
            mean = jnp.mean(fine, 2, keepdims=True)
            variance = jnp.mean(lax.square(fine - mean), 2, keepdims=True)
            y = ((fine - mean) * lax.rsqrt(variance + this.epsilon)).reshape(first.shape)
            if this.trained:
                y = y * along(parameters["scale"], y, 1) + along(parameters["shift"], y, 1)
            y = y.astype(x.dtype)
            return y.transpose(LAST) if last and x.ndim == 4 else y
        case nn.Normalise():
            mean, deviation = (
                along(jnp.array(values, x.dtype), x, channels)
                for values in (this.mean, this.deviation)
            )
            return (x - mean) / deviation
        case nn.Lrn():
            before = this.size // 2
            size, padding = [1] * 4, [(0, 0)] * 4
            size[channels], padding[channels] = this.size, (before, this.size - 1 - before)
            sums = lax.reduce_window(x * x, 0.0, lax.add, size, (1, 1, 1, 1), padding)
            return x / (this.k + this.alpha / this.size * sums) ** this.beta
    raise unknown(this)


def tokens(this: nn.Layer, w: Array, x: Array, last: bool, half: bool) -> Array:
    """The layers of transformers."""
    match this:
        case nn.Tokens():
            x = x if last else x.transpose(LAST)
            return x.reshape(x.shape[0], -1, x.shape[3])
        case nn.ClassToken():
            return jnp.concatenate([jnp.broadcast_to(w, (x.shape[0], 1, x.shape[2])), x], 1)
        case nn.Learned():
            y = jnp.broadcast_to(w, (x.shape[0], *this.shape))
            return y.transpose(LAST) if last and y.ndim == 4 else y
        case nn.PositionEmbedding():
            return x + w
        case nn.Attention():
            batch, count, features = x.shape
            parts = x.reshape(batch, count, 3, this.heads, -1)
            # cuDNN's fused kernel takes bfloat16 only.
            fused = half and jax.default_backend() == "gpu" and parts.shape[-1] % 8 == 0
            y = jax.nn.dot_product_attention(
                *(parts[:, :, which] for which in range(3)), is_causal=this.causal,
                implementation="cudnn" if fused else "xla",
            )  # fmt: skip
            return y.reshape(batch, count, features // 3)
        case nn.FirstToken():
            return x[:, 0]
    raise unknown(this)


def activation(this: nn.Layer, x: Array, last: bool) -> Array:
    """The layers that change each element by itself, softmax, and its logarithm."""
    match this:
        case nn.Sigmoid():
            return jax.nn.sigmoid(x)
        case nn.Tanh():
            return jnp.tanh(x)
        case nn.ReLU():
            return jax.nn.relu(x)
        case nn.LeakyReLU():
            return jax.nn.leaky_relu(x, this.slope)
        case nn.Clip():
            return jnp.clip(x, this.low, this.high)
        case nn.GELU():
            return jax.nn.gelu(x, this.approximate)
        case nn.SiLU():
            return jax.nn.silu(x)
        case nn.HardSigmoid():
            return jax.nn.hard_sigmoid(x)
        case nn.HardSwish():
            return jax.nn.hard_swish(x)
        case nn.ELU():
            return jax.nn.elu(x, this.alpha)
        case nn.Softplus():
            return jax.nn.softplus(x)
        case nn.Exp():
            return jnp.exp(x)
        case nn.Log():
            return jnp.log(x)
        case nn.Power():
            return 1 / x if this.exponent == -1 else x**this.exponent
        case nn.Affine():
            return x * this.factor + this.shift
        case nn.Softmax():
            return jax.nn.softmax(x, axis=axis_of(this.axis, x, last))
        case nn.LogSoftmax():
            return jax.nn.log_softmax(x, axis=axis_of(this.axis, x, last))
    raise unknown(this)


def sides(x: Array, last: bool) -> tuple[int, int]:
    """Height and width of images."""
    height, width = x.shape[1:3] if last else x.shape[2:]
    return height, width


def conv(
    x: Array,
    w: Array,
    stride: Size,
    padding: Size,
    groups: int = 1,
    last: bool = False,
    dilation: Size = 1,
) -> Array:
    """A convolution without bias."""
    images = "NHWC" if last else "NCHW"
    return lax.conv_general_dilated(
        x, w, pair(stride), [(p, p) for p in pair(padding)], rhs_dilation=pair(dilation),
        dimension_numbers=(images, "OIHW", images), feature_group_count=groups,
    )  # fmt: skip


def windows(
    x: Array, window: Window, start: float, combine: Callable[..., Array], last: bool = False
) -> Array:
    """Every window of every channel, combined to one number."""

    def placed(sides: Any, other: Any) -> tuple[Any, ...]:
        return (other, *sides, other) if last else (other, other, *sides)

    return lax.reduce_window(
        x, start, combine, placed(window.size, 1), placed(window.stride, 1),
        placed(window.padding, (0, 0)),
    )  # fmt: skip


def subsample(x: Array, w: Array, b: Array, stride: tuple[int, int]) -> Array:
    """One filter over every channel; a plain product if windows do not overlap.

    That product is ten times as fast as the convolution here.
    """
    n, channels, height, width = x.shape
    kh, kw = w.shape
    if stride != (kh, kw):
        planes = conv(x.reshape(-1, 1, height, width), w[None, None], stride, 0)
        return planes.reshape(n, channels, *planes.shape[2:]) + b
    rows, columns = height // kh, width // kw
    tiles = x[:, :, : rows * kh, : columns * kw].reshape(n, channels, rows, kh, columns, kw)
    return jnp.einsum("ncyuxv,uv->ncyx", tiles, w) + b
