"""The nodes of ONNX that each layer becomes."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pareo.nn import activations as acts
from pareo.nn import layers, normalisation, shapes, tables, tokens
from pareo.nn.layers import Layer, Shape, size_pair
from pareo.nn.onnx_export.writer import Tensor, Weight, Write, Writer
from pareo.nn.pooling import AdaptiveAveragePool, shared_windows
from pareo.operators.attributes import padding as parse_padding
from pareo.operators.core import Where


def _sides(padding: Any) -> list[int]:
    return list(parse_padding(padding, Where("Conv", "padding", (), {})))


def _conv(to: Writer, layer: layers.Conv, own: Mapping[str, Any], x: Tensor) -> str:
    inputs = [x.name, *(to.weight(own[key]) for key in ("w", "b") if key in own)]
    return to.node(
        "Conv", *inputs, kernel_shape=size_pair("Conv", layer.size),
        strides=size_pair("Conv", layer.stride), dilations=size_pair("Conv", layer.dilation),
        pads=_sides(layer.padding), group=layer.groups,
    )  # fmt: skip


def _subsample(to: Writer, layer: layers.Subsample, own: Mapping[str, Any], x: Tensor) -> str:
    """One filter for all channels: a convolution of each by itself, with the filter repeated."""
    channels, size = x.shape[0], size_pair("Subsample", layer.size)
    w = to.node("Expand", to.weight(own["w"]), to.whole((channels, 1, *size)))
    b = to.node("Expand", to.weight(own["b"]), to.whole((channels,)))
    stride = size_pair("Subsample", layer.stride)
    return to.node("Conv", x.name, w, b, strides=stride, group=channels)


def _windows(layer: Any) -> dict[str, Any]:
    size = size_pair("pooling", layer.size)
    stride = size if layer.stride is None else size_pair("pooling", layer.stride)
    return {
        "kernel_shape": size, "strides": stride, "pads": _sides(layer.padding),
        "ceil_mode": int(layer.ceil),
    }  # fmt: skip


def _max_pool(to: Writer, layer: layers.MaxPool, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("MaxPool", x.name, **_windows(layer))


def _average_pool(to: Writer, layer: layers.AveragePool, own: Mapping[str, Any], x: Tensor) -> str:
    y = to.node("AveragePool", x.name, count_include_pad=0, **_windows(layer))
    if not layer.counts_padding:
        return y
    inside, whole = layer.counts(x.shape[1:])  # as the layer itself has it
    return to.node("Mul", y, to.constant((inside / whole)[None, None]))


def _adaptive(to: Writer, layer: AdaptiveAveragePool, own: Mapping[str, Any], x: Tensor) -> str:
    """The mean of windows, as products with a matrix for each axis."""
    sizes = size_pair("AdaptiveAveragePool", layer.size)
    if sizes == x.shape[1:]:
        return x.name
    found = x.name
    for pixels, count in zip(reversed(x.shape[1:]), reversed(sizes), strict=True):
        starts, ends = (np.array(one) for one in shared_windows(pixels, count))
        places = np.arange(pixels)[:, None]
        inside = (places >= starts) & (places < ends)
        found = to.node("MatMul", found, to.constant(inside / inside.sum(axis=0)))
        found = to.node("Transpose", found, perm=(0, 1, 3, 2))
    return found


def _dense(to: Writer, layer: layers.Dense, own: Mapping[str, Any], x: Tensor) -> str:
    weights = [to.weight(own[key]) for key in ("w", "b") if key in own]
    if len(x.shape) == 1:
        return to.node("Gemm", x.name, *weights)
    y = to.node("MatMul", x.name, weights[0])
    return to.node("Add", y, weights[1]) if layer.bias else y


def _scale(to: Writer, layer: layers.Scale, own: Mapping[str, Any], x: Tensor) -> str:
    w: Weight = own["w"]
    wide = (len(w.array), 1, 1) if len(x.shape) == 3 else w.array.shape
    return to.node("Mul", x.name, to.weight(w, wide))


def _batch_norm(
    to: Writer, layer: normalisation.BatchNorm, own: Mapping[str, Any], x: Tensor
) -> str:
    weights = [to.weight(own[key]) for key in ("scale", "shift", "mean", "variance")]
    return to.node(
        "BatchNormalization", x.name, *weights, epsilon=layer.epsilon, momentum=1 - layer.momentum
    )


def _layer_norm(
    to: Writer, layer: normalisation.LayerNorm, own: Mapping[str, Any], x: Tensor
) -> str:
    weights = [to.weight(own[key]) for key in ("scale", "shift")]
    count = len(x.shape) + 1
    axis, found = layer.axis % count, x.name
    order = [*(one for one in range(count) if one != axis), axis]
    if axis != count - 1:
        found = to.node("Transpose", found, perm=order)
    found = to.node("LayerNormalization", found, *weights, axis=-1, epsilon=layer.epsilon)
    if axis != count - 1:
        found = to.node("Transpose", found, perm=[int(one) for one in np.argsort(order)])
    return found


def _group_norm(
    to: Writer, layer: normalisation.GroupNorm, own: Mapping[str, Any], x: Tensor
) -> str:
    """Instance normalisation of the groups; a scale and a shift for each channel follow."""
    ones, zeros = (to.fixed(make(layer.groups)) for make in (np.ones, np.zeros))
    rows = to.node("Reshape", x.name, to.whole((0, layer.groups, -1)))
    y = to.node("InstanceNormalization", rows, ones, zeros, epsilon=layer.epsilon)
    y = to.node("Reshape", y, to.whole((0, *x.shape)))
    if not layer.trained:
        return y
    wide = (x.shape[0], *[1] * (len(x.shape) - 1))
    return to.node(
        "Add", to.node("Mul", y, to.weight(own["scale"], wide)), to.weight(own["shift"], wide)
    )


def _normalise(
    to: Writer, layer: normalisation.Normalise, own: Mapping[str, Any], x: Tensor
) -> str:
    wide = (-1, *[1] * (len(x.shape) - 1))
    inverse = 1 / np.array(layer.deviation, np.float64)
    found = x.name
    if any(layer.mean):
        found = to.node("Sub", found, to.constant(np.array(layer.mean).reshape(wide)))
    return to.node("Mul", found, to.constant(inverse.reshape(wide)))


def _lrn(to: Writer, layer: normalisation.Lrn, own: Mapping[str, Any], x: Tensor) -> str:
    how = {"size": layer.size, "alpha": layer.alpha, "beta": layer.beta, "bias": layer.k}
    return to.node("LRN", x.name, **how)


def _reshaped(shape: Callable[[Any, Tensor], Shape]) -> Write:
    def write(to: Writer, layer: Any, own: Mapping[str, Any], x: Tensor) -> str:
        return to.node("Reshape", x.name, to.whole((0, *shape(layer, x))))

    return write


def _permute(to: Writer, layer: shapes.Permute, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("Transpose", x.name, perm=layer.axes)


def _between(to: Writer, x: str, axis: int, start: int, stop: int) -> str:
    places = [to.whole([one]) for one in (start, stop, axis)]
    return to.node("Slice", x, *places)


def _part(to: Writer, layer: shapes.Part, own: Mapping[str, Any], x: Tensor) -> str:
    return _between(to, x.name, layer.axis, layer.start, layer.stop)


def _pad(to: Writer, layer: shapes.Pad, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("Pad", x.name, to.whole((0, *layer.before, 0, *layer.after)))


def _fixed_sum(to: Writer, layer: tables.FixedSum, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("Add", x.name, to.fixed(layer.array()[None]))


def _table_sum(to: Writer, layer: tables.TableSum, own: Mapping[str, Any], x: Tensor) -> str:
    flat = to.weight(own["w"], (math.prod(layer.table),))
    places = to.whole(layer.array().astype(np.int64)[None])
    return to.node("Add", x.name, to.node("Gather", flat, places, axis=0))


def _fixed_product(
    to: Writer, layer: tables.FixedProduct, own: Mapping[str, Any], x: Tensor
) -> str:
    return to.node("Mul", x.name, to.fixed(layer.array()[None]))


def _table_product(
    to: Writer, layer: tables.TableProduct, own: Mapping[str, Any], x: Tensor
) -> str:
    flat = to.weight(own["w"], (math.prod(layer.table),))
    places = to.whole(layer.array().astype(np.int64)[None])
    return to.node("Mul", x.name, to.node("Gather", flat, places, axis=0))


def _index(to: Writer, layer: shapes.Index, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("Gather", x.name, to.whole(layer.places), axis=layer.axis)


def _mix(to: Writer, layer: tables.Mix, own: Mapping[str, Any], x: Tensor) -> str:
    order = [axis for axis in range(len(x.shape) + 1) if axis != layer.axis] + [layer.axis]
    back = [order.index(axis) for axis in range(len(order))]
    shares = to.fixed(layer.array(x.shape[layer.axis - 1]))
    mixed = to.node("MatMul", to.node("Transpose", x.name, perm=order), shares)
    return to.node("Transpose", mixed, perm=back)


def _tokens(to: Writer, layer: tokens.Tokens, own: Mapping[str, Any], x: Tensor) -> str:
    flat = to.node("Reshape", x.name, to.whole((0, x.shape[0], math.prod(x.shape[1:]))))
    return to.node("Transpose", flat, perm=(0, 2, 1))


def _repeated(to: Writer, x: Tensor, w: str, shape: Shape) -> str:
    """A weight for each input of the batch."""
    batch = to.node("Shape", x.name, start=0, end=1)
    return to.node("Expand", w, to.node("Concat", batch, to.whole(shape), axis=0))


def _learned(to: Writer, layer: tokens.Learned, own: Mapping[str, Any], x: Tensor) -> str:
    return _repeated(to, x, to.weight(own["w"]), layer.shape)


def _class_token(to: Writer, layer: tokens.ClassToken, own: Mapping[str, Any], x: Tensor) -> str:
    token = _repeated(to, x, to.weight(own["w"]), (1, x.shape[1]))
    return to.node("Concat", token, x.name, axis=1)


def _position(
    to: Writer, layer: tokens.PositionEmbedding, own: Mapping[str, Any], x: Tensor
) -> str:
    return to.node("Add", x.name, to.weight(own["w"]))


def _first_token(to: Writer, layer: tokens.FirstToken, own: Mapping[str, Any], x: Tensor) -> str:
    first = _between(to, x.name, 1, 0, 1)
    return to.node("Reshape", first, to.whole((0, x.shape[1])))


def _attention(to: Writer, layer: tokens.Attention, own: Mapping[str, Any], x: Tensor) -> str:
    count, features = x.shape
    size = features // (3 * layer.heads)
    parted = to.node("Reshape", x.name, to.whole((0, count, 3, layer.heads, size)))
    turned = to.node("Transpose", parted, perm=(2, 0, 3, 1, 4))
    q, k, v = (to.node("Gather", turned, to.whole(number), axis=0) for number in range(3))
    keys = to.node("Transpose", k, perm=(0, 1, 3, 2))
    scores = to.node("MatMul", to.node("Mul", q, to.constant(size**-0.5)), keys)
    if layer.causal:
        mask = np.triu(np.full((count, count), -np.inf), 1)
        scores = to.node("Add", scores, to.constant(mask))
    mixed = to.node("MatMul", to.node("Softmax", scores, axis=-1), v)
    back = to.node("Transpose", mixed, perm=(0, 2, 1, 3))
    return to.node("Reshape", back, to.whole((0, count, features // 3)))


def _same(to: Writer, layer: Any, own: Mapping[str, Any], x: Tensor) -> str:
    return x.name


def _simple(op: str, attributes: Callable[[Any], dict[str, Any]] = lambda layer: {}) -> Write:
    def write(to: Writer, layer: Any, own: Mapping[str, Any], x: Tensor) -> str:
        return to.node(op, x.name, **attributes(layer))

    return write


def _clip(to: Writer, layer: acts.Clip, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("Clip", x.name, to.constant(layer.low), to.constant(layer.high))


def _affine(to: Writer, layer: acts.Affine, own: Mapping[str, Any], x: Tensor) -> str:
    scaled = to.node("Mul", x.name, to.constant(layer.factor))
    return to.node("Add", scaled, to.constant(layer.shift)) if layer.shift else scaled


def _power(to: Writer, layer: acts.Power, own: Mapping[str, Any], x: Tensor) -> str:
    if layer.exponent == -1:
        return to.node("Reciprocal", x.name)
    return to.node("Pow", x.name, to.fixed(layer.exponent))


def _silu(to: Writer, layer: acts.SiLU, own: Mapping[str, Any], x: Tensor) -> str:
    return to.node("Mul", x.name, to.node("Sigmoid", x.name))


WRITERS: Mapping[type[Layer], Write] = {
    AdaptiveAveragePool: _adaptive,
    acts.Clip: _clip,
    acts.ELU: _simple("Elu", lambda layer: {"alpha": layer.alpha}),
    acts.Exp: _simple("Exp"),
    acts.Log: _simple("Log"),
    acts.Power: _power,
    acts.Softplus: _simple("Softplus"),
    acts.GELU: _simple("Gelu", lambda layer: {"approximate": ("none", "tanh")[layer.approximate]}),
    acts.HardSigmoid: _simple("HardSigmoid", lambda layer: {"alpha": 1 / 6, "beta": 0.5}),
    acts.HardSwish: _simple("HardSwish"),
    acts.LeakyReLU: _simple("LeakyRelu", lambda layer: {"alpha": layer.slope}),
    acts.ReLU: _simple("Relu"),
    acts.Sigmoid: _simple("Sigmoid"),
    acts.SiLU: _silu,
    acts.Affine: _affine,
    acts.LogSoftmax: _simple("LogSoftmax", lambda layer: {"axis": layer.axis}),
    acts.Softmax: _simple("Softmax", lambda layer: {"axis": layer.axis}),
    acts.Tanh: _simple("Tanh"),
    layers.AveragePool: _average_pool,
    layers.Conv: _conv,
    layers.Dense: _dense,
    layers.Dropout: _same,
    layers.Flatten: _reshaped(lambda layer, x: (math.prod(x.shape),)),
    layers.GlobalAveragePool: _simple("GlobalAveragePool"),
    layers.Identity: _same,
    layers.MaxPool: _max_pool,
    layers.Scale: _scale,
    layers.StochasticDepth: _same,
    layers.Subsample: _subsample,
    normalisation.BatchNorm: _batch_norm,
    normalisation.GroupNorm: _group_norm,
    normalisation.LayerNorm: _layer_norm,
    normalisation.Lrn: _lrn,
    normalisation.Normalise: _normalise,
    shapes.Index: _index,
    shapes.Pad: _pad,
    shapes.Part: _part,
    shapes.Permute: _permute,
    shapes.Reshape: _reshaped(lambda layer, x: layer.shape),
    tables.FixedProduct: _fixed_product,
    tables.FixedSum: _fixed_sum,
    tables.Mix: _mix,
    tables.TableProduct: _table_product,
    tables.TableSum: _table_sum,
    tokens.Attention: _attention,
    tokens.ClassToken: _class_token,
    tokens.FirstToken: _first_token,
    tokens.Learned: _learned,
    tokens.PositionEmbedding: _position,
    tokens.Tokens: _tokens,
}
