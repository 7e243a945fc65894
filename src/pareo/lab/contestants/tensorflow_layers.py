"""pareo's layers as Keras's, on images (N, H, W, C).

Batch normalisation is a layer of our own: Keras's keeps the running variance of the population and
not that of a sample, and does not use TensorFlow's fused kernel, which this one does.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from importlib import import_module
from operator import add, mul
from typing import Any

import numpy as np

from pareo import nn
from pareo.lab.contestants.layers import (
    NORMALISATIONS,
    PRODUCTS,
    SHAPES,
    TABLES,
    TOKENS,
    Calls,
    Window,
    pair,
    shares,
    unknown,
)

tf: Any  # imported by `load`, when needed
keras: Any

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of images with channels last, or first
Sides = tuple[tuple[int, int], tuple[int, int]]  # ((top, bottom), (left, right))
# The names of Keras's variables, by pareo's.
VARIABLES = {"w": "kernel", "b": "bias", "scale": "gamma", "shift": "beta"}
VARIABLES |= {"mean": "moving_mean", "variance": "moving_variance"}


def load() -> tuple[Any, Any]:
    """Import TensorFlow and Keras for this module, and return both."""
    global tf, keras
    tf, keras = import_module("tensorflow"), import_module("keras")
    return tf, keras


def model_of(network: nn.Sequential, batch: int | None) -> tuple[Any, list[float]]:
    """A network as a Keras model, and the weight of the loss of each of its outputs.

    The name of a layer with parameters is its path. Outputs after the first are auxiliary heads.
    """
    shape = network.inputs
    x = keras.Input((*shape[1:], shape[0]) if len(shape) == 3 else shape, batch)
    paths = {path: path for path in network.parameters(shape)}
    heads: list[tuple[float, Any]] = []
    out = network.run(paths, x, Calls(layer, joins(), heads))
    return keras.Model(x, [out, *(out for _, out in heads)]), [1.0, *(w for w, _ in heads)]


def joins() -> dict[str, Callable[[list[Any]], Any]]:
    """How the results of branches become one."""
    return {
        "concat": lambda parts: keras.ops.concatenate(parts, -1 if len(parts[0].shape) == 4 else 1),
        "add": partial(reduce, add),
        "multiply": partial(reduce, mul),
        "matmul": products,
    }


def products(parts: list[Any]) -> Any:
    """Two values multiplied as matrices, along the last two axes where channels are first."""
    if len(parts[0].shape) != 4:
        return keras.ops.matmul(*parts)
    one, two = (keras.ops.transpose(part, FIRST) for part in parts)
    return keras.ops.transpose(keras.ops.matmul(one, two), LAST)


def variables_of(model: Any, network: nn.Sequential) -> dict[str, Any]:
    """The model's variables by pareo's paths."""
    found = {}
    for path in network.parameters(network.inputs):
        name, _, kind = path.rpartition(".")
        found[path] = getattr(model.get_layer(name), VARIABLES[kind])
    return found


def layer(this: nn.Layer, parameters: Mapping[str, str], x: Any) -> Any:
    """One of pareo's layers; the parameters are their paths."""
    name = next(iter(parameters.values())).rpartition(".")[0] if parameters else None
    match this:
        case nn.Conv():
            return conv(this, name, x)
        case nn.Subsample():
            return shared_filter()(pair(this.size), pair(this.stride), name=name)(x)
        case nn.MaxPool():
            window = Window.of(this, x.shape[1:3])
            x, how = padded(x, window.size, window.stride, window.padding, LOWEST)
            return keras.layers.MaxPooling2D(window.size, window.stride, how)(x)
        case nn.AveragePool():
            image = x.shape[1:3]
            window = Window.of(this, image)
            x, how = padded(x, window.size, window.stride, window.padding)
            means = keras.layers.AveragePooling2D(window.size, window.stride, how)(x)
            own = how == "same" or window.padding == NO_SIDES  # it counts a window's own pixels
            if own and not this.counts_padding:
                return means
            inside = this.counts(image)[0][..., None] if own else math.prod(window.size)
            share = (inside / window.counts[..., None]).astype("float32")
            return keras.layers.Lambda(lambda means: means * share)(means)
        case nn.GlobalAveragePool():
            return keras.layers.GlobalAveragePooling2D(keepdims=True)(x)
        case nn.AdaptiveAveragePool():
            down, right = map(shares, x.shape[1:3], pair(this.size))
            if x.shape[1:3] == pair(this.size):
                return x
            return keras.ops.einsum("nhwc,hy,wx->nyxc", x, down, right)
        case nn.Dense():
            return keras.layers.Dense(this.units, use_bias=this.bias, name=name)(x)
        case nn.Flatten():
            first = keras.layers.Permute((3, 1, 2))(x) if len(x.shape) == 4 else x
            return keras.layers.Flatten()(first)
        case nn.Identity():
            return x
        case nn.Scale():
            return own_weight()((x.shape[-1],), lambda x, w: x * w, name=name)(x)
    if isinstance(this, NORMALISATIONS):
        return normalised(this, name, x)
    if isinstance(this, SHAPES):
        y = moved(this, keras.ops.transpose(x, FIRST) if len(x.shape) == 4 else x)
        return keras.ops.transpose(y, LAST) if len(y.shape) == 4 else y
    if isinstance(this, TABLES):
        return by_place(this, name, x)
    if isinstance(this, TOKENS):
        return tokens(this, name, x)
    return activation(this, x)


def moved(this: nn.Layer, x: Any) -> Any:
    """The layers that move elements, or mix those along an axis, of images with channels first."""
    match this:
        case nn.Reshape():
            return keras.ops.reshape(x, (x.shape[0], *this.shape))
        case nn.Permute():
            return keras.ops.transpose(x, this.axes)
        case nn.Pad():
            return keras.ops.pad(x, ((0, 0), *zip(this.before, this.after, strict=True)))
        case nn.Part():
            return x[(slice(None),) * this.axis + (slice(this.start, this.stop),)]
        case nn.Index():
            return keras.ops.take(x, np.array(this.places), axis=this.axis)
        case nn.Mix():
            shares = this.array(x.shape[this.axis]).astype("float32")
            mixed = keras.ops.matmul(keras.ops.moveaxis(x, this.axis, -1), shares)
            return keras.ops.moveaxis(mixed, -1, this.axis)
    raise unknown(this)


def by_place(this: nn.Layer, name: str | None, x: Any) -> Any:
    """Numbers added or multiplied by place: fixed ones, or those of a trained table."""

    join = mul if isinstance(this, PRODUCTS) else add

    def placed(array: Any) -> Any:
        return array.transpose(1, 2, 0)[None] if len(x.shape) == 4 else array[None]

    match this:
        case nn.FixedSum() | nn.FixedProduct():
            numbers = placed(this.array()).astype("float32")
            return keras.layers.Lambda(lambda x: join(x, numbers))(x)
        case nn.TableSum() | nn.TableProduct():
            places = placed(this.array())

            def joined(x: Any, w: Any) -> Any:
                return join(x, keras.ops.take(keras.ops.reshape(w, (-1,)), places))

            return own_weight()(tuple(this.table), joined, name=name)(x)
    raise unknown(this)


def conv(this: nn.Conv, name: str | None, x: Any) -> Any:
    """A convolution, by Keras's own layers where they are fast."""
    size, stride, dilation = pair(this.size), pair(this.stride), pair(this.dilation)
    vertical, horizontal = pair(this.padding)
    sides = (vertical, vertical), (horizontal, horizontal)
    reach = tuple((length - 1) * apart + 1 for length, apart in zip(size, dilation, strict=True))
    x, how = padded(x, (reach[0], reach[1]), stride, sides)
    more = {"dilation_rate": dilation, "use_bias": this.bias, "name": name}
    if 1 < this.groups == x.shape[-1] and stride[0] == stride[1]:
        return keras.layers.DepthwiseConv2D(
            size, stride, how, depth_multiplier=this.filters // this.groups, **more
        )(x)
    kind = keras.layers.Conv2D if this.groups == 1 else grouped_conv()
    return kind(this.filters, size, stride, how, groups=this.groups, **more)(x)


def normalised(this: nn.Layer, name: str | None, x: Any) -> Any:
    """The layers that normalise."""
    match this:
        case nn.BatchNorm():
            return batch_norm()(this.momentum, this.epsilon, name=name)(x)
        case nn.LayerNorm():
            axis = -1 if len(x.shape) == 4 and this.axis in (1, -3) else this.axis
            return keras.layers.LayerNormalization(axis=axis, epsilon=this.epsilon, name=name)(x)
        case nn.GroupNorm():
            return group_norm()(this, name=name)(x)
        case nn.Normalise():
            wide = [1] * (len(x.shape) - 1)
            wide[-1 if len(x.shape) == 4 else 0] = -1
            mean, deviation = (
                tf.reshape(tf.constant(values, "float32"), wide)
                for values in (this.mean, this.deviation)
            )
            return keras.layers.Lambda(lambda x: (x - mean) / deviation)(x)
        case nn.Lrn() if this.size % 2:  # which Keras has not
            around = (this.size // 2, this.k, this.alpha / this.size, this.beta)
            normalise = tf.nn.local_response_normalization
            return keras.layers.Lambda(lambda x: normalise(x, *around))(x)
    raise unknown(this)


def tokens(this: nn.Layer, name: str | None, x: Any) -> Any:
    """The layers of transformers."""
    match this:
        case nn.Tokens():
            return keras.layers.Reshape((x.shape[1] * x.shape[2], x.shape[3]))(x)
        case nn.ClassToken():
            shape = (1, 1, x.shape[2])
            return own_weight()(shape, in_front, name=name)(x)
        case nn.Learned():
            y = own_weight()((1, *this.shape), repeated, name=name)(x)
            return keras.ops.transpose(y, LAST) if len(y.shape) == 4 else y
        case nn.PositionEmbedding():
            return own_weight()((1, *x.shape[1:]), lambda x, w: x + w, name=name)(x)
        case nn.Attention():
            batch, count, features = x.shape
            parts = keras.ops.reshape(x, (batch, count, 3, this.heads, features // 3 // this.heads))
            y = keras.ops.dot_product_attention(
                *(parts[:, :, which] for which in range(3)), is_causal=this.causal
            )
            return keras.ops.reshape(y, (batch, count, features // 3))
        case nn.FirstToken():
            return x[:, 0]
    raise unknown(this)


def repeated(x: Any, w: Any) -> Any:
    """The same array for each image."""
    return keras.ops.repeat(w, x.shape[0], 0)


def in_front(x: Any, w: Any) -> Any:
    """Tokens, with one more in front of those of each image."""
    return keras.ops.concatenate([keras.ops.repeat(w, x.shape[0], 0), x], 1)


def activation(this: nn.Layer, x: Any) -> Any:
    """The layers that change each element by itself, softmax, and its logarithm."""
    match this:
        case nn.ELU():
            return keras.ops.elu(x, this.alpha)
        case nn.Softplus() | nn.Exp() | nn.Log():
            return getattr(keras.ops, type(this).__name__.lower())(x)
        case nn.Power():
            return 1 / x if this.exponent == -1 else keras.ops.power(x, this.exponent)
        case nn.Affine():
            return x * this.factor + this.shift
        case nn.Softmax() | nn.LogSoftmax():
            axis = LAST.index(this.axis) if len(x.shape) == 4 else this.axis
            compute = keras.ops.softmax if isinstance(this, nn.Softmax) else keras.ops.log_softmax
            return compute(x, axis)
        case nn.Sigmoid() | nn.Tanh() | nn.ReLU() | nn.SiLU():
            return keras.layers.Activation(type(this).__name__.lower())(x)
        case nn.LeakyReLU():
            return keras.ops.leaky_relu(x, this.slope)
        case nn.Clip(low=0.0, high=6.0):
            return keras.ops.relu6(x)
        case nn.Clip():
            return keras.ops.clip(x, this.low, this.high)
        case nn.GELU():
            return keras.ops.gelu(x, this.approximate)
        case nn.HardSigmoid():
            return keras.ops.hard_sigmoid(x)
        case nn.HardSwish():
            return keras.ops.hard_silu(x)
    raise unknown(this)


NO_SIDES: Sides = ((0, 0), (0, 0))
LOWEST = -3.4028235e38  # of all float32


def padded(
    x: Any, size: tuple[int, int], stride: tuple[int, int], sides: Sides, value: float = 0.0
) -> tuple[Any, str]:
    """Images and Keras's `padding`; the images are padded only if neither value of it fits.

    The values are `valid`, no padding, and `same`, enough for ceil(pixels / stride) windows.
    """
    if sides == NO_SIDES:
        return x, "valid"
    same = []
    for pixels, length, step in zip(x.shape[1:3], size, stride, strict=True):
        total = max(0, (-(-pixels // step) - 1) * step + length - pixels)
        same.append((total // 2, total - total // 2))
    if sides == tuple(same):
        return x, "same"
    return keras.ops.pad(x, ((0, 0), *sides, (0, 0)), constant_values=value), "valid"


def grouped_conv() -> Any:
    """Conv2D whose groups run one by one: Keras would leave them to XLA, in any graph."""

    class GroupedConv(keras.layers.Conv2D):
        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            split = (keras.ops.split(a, self.groups, -1) for a in (inputs, kernel))
            one = super().convolution_op
            return keras.ops.concatenate([one(x, w) for x, w in zip(*split, strict=True)], -1)

    return GroupedConv


def own_weight() -> Any:
    """A layer with one weight of a given shape, and what is computed with it."""

    class OwnWeight(keras.layers.Layer):
        def __init__(self, shape: Any, compute: Callable[[Any, Any], Any], **rest: Any) -> None:
            super().__init__(**rest)
            self.shape, self.compute = shape, compute

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=self.shape, name="kernel")

        def call(self, x: Any) -> Any:
            return self.compute(x, keras.ops.convert_to_tensor(self.kernel))

    return OwnWeight


def batch_norm() -> Any:
    """Batch normalisation in training, by TensorFlow's fused kernel."""

    class FusedBatchNorm(keras.layers.Layer):
        def __init__(self, momentum: float, epsilon: float, **rest: Any) -> None:
            super().__init__(**rest)
            self.momentum, self.epsilon = momentum, epsilon

        def build(self, shape: Any) -> None:
            for name in ("gamma", "beta", "moving_mean", "moving_variance"):
                own = self.add_weight(
                    shape=(shape[-1],), name=name, trainable=name in ("gamma", "beta")
                )
                setattr(self, name, own)

        def call(self, x: Any) -> Any:
            images = x if len(x.shape) == 4 else x[:, None, None]
            given = (self.gamma, self.beta, self.moving_mean, self.moving_variance)
            # The statistics that it returns have moved, the variance by that of a sample.
            y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
                **dict(zip(("scale", "offset", "mean", "variance"),
                           map(keras.ops.convert_to_tensor, given), strict=True)),
                x=images, epsilon=self.epsilon, exponential_avg_factor=self.momentum,
                is_training=True,
            )  # fmt: skip
            self.moving_mean.assign(mean)
            self.moving_variance.assign(variance)
            return y if len(x.shape) == 4 else y[:, 0, 0]

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    return FusedBatchNorm


def group_norm() -> Any:
    """Group normalisation: Keras's own has a scale and a shift always."""

    class Groups(keras.layers.Layer):
        def __init__(self, layer: nn.GroupNorm, **rest: Any) -> None:
            super().__init__(**rest)
            self.layer = layer

        def build(self, shape: Any) -> None:
            size = (shape[-1] if len(shape) == 4 else shape[1],)
            for name in ("gamma", "beta") if self.layer.trained else ():
                setattr(self, name, self.add_weight(shape=size, name=name))

        def call(self, x: Any) -> Any:
            ops = keras.ops
            first = ops.transpose(x, FIRST) if len(x.shape) == 4 else x
            count = math.prod(first.shape[1:]) // self.layer.groups
            parts = ops.reshape(first, (-1, self.layer.groups, count))
            mean, variance = ops.moments(parts, 2, keepdims=True)
            y = (parts - mean) * ops.rsqrt(variance + self.layer.epsilon)
            y = ops.reshape(y, (-1, *first.shape[1:]))
            if self.layer.trained:
                wide = (1, -1, *[1] * (len(x.shape) - 2))
                scale, shift = (ops.convert_to_tensor(one) for one in (self.gamma, self.beta))
                y = y * ops.reshape(scale, wide) + ops.reshape(shift, wide)
            return ops.transpose(y, LAST) if len(x.shape) == 4 else y

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    return Groups


def shared_filter() -> Any:
    """One filter over every channel; a plain product if windows do not overlap."""

    class SharedFilter(keras.layers.Layer):
        def __init__(self, size: tuple[int, int], stride: tuple[int, int], **rest: Any) -> None:
            super().__init__(**rest)
            self.size, self.stride = size, stride

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=self.size, name="kernel")
            self.bias = self.add_weight(shape=(), name="bias")

        def call(self, x: Any) -> Any:
            return subsample(x, self.kernel, self.stride) + self.bias

    return SharedFilter


def subsample(x: Any, w: Any, stride: tuple[int, int]) -> Any:
    """What `shared_filter` computes, without its bias."""
    _, height, width, channels = x.shape  # the batch is unknown while Keras infers shapes
    kh, kw = w.shape
    ops = keras.ops
    if stride != (kh, kw):
        planes = ops.reshape(ops.transpose(x, (0, 3, 1, 2)), (-1, height, width, 1))
        planes = ops.conv(planes, ops.reshape(w, (kh, kw, 1, 1)), stride)
        planes = ops.reshape(planes, (-1, channels, *planes.shape[1:3]))
        return ops.transpose(planes, (0, 2, 3, 1))
    rows, columns = height // kh, width // kw
    tiles = x[:, : rows * kh, : columns * kw]
    tiles = ops.reshape(tiles, (-1, rows, kh, columns, kw, channels))
    return tf.einsum("nyuxvc,uv->nyxc", tiles, ops.convert_to_tensor(w))
