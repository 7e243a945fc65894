"""ONNX's operators as layers: each function takes the reader and a node with its inputs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.nn import activations, layers
from pareo.nn.layers import Layer
from pareo.nn.normalisation import Lrn
from pareo.nn.onnx_import import arithmetic, norms, terms, views
from pareo.nn.onnx_import.reader import OnnxReader, Operator, Step
from pareo.nn.onnx_import.values import Constant, Term
from pareo.nn.onnx_import.weights import constant, dense, given, value
from pareo.nn.onnx_import.windows import average_pool, conv, max_pool, pad
from pareo.nn.torch_import import arithmetic as functions
from pareo.nn.torch_import import pools
from pareo.nn.torch_import.joins import joined, scaled
from pareo.nn.torch_import.moved import Moved, moved_operators
from pareo.nn.torch_import.operands import images
from pareo.nn.torch_import.products import along
from pareo.nn.torch_import.values import Unsupported, Value

MOVED = moved_operators(dense)


def gemm(reader: OnnxReader, step: Step) -> Any:
    """A dense layer; alpha and beta become part of its weights."""
    alpha, beta = step.get("alpha", 1.0), step.get("beta", 1.0)
    if step.get("transA", 0):
        raise Unsupported("with transA = 1")
    w, b = constant(step, 1, "weight"), step.input(2)
    weight = given(w, "transposed" if step.get("transB", 0) else "same", alpha)
    bias = None
    if b is not None:
        units = weight[0].shape[-1]
        b = constant(step, 2, "bias")
        if b.array.size not in (1, units) or b.shape[:-1] not in ((), (1,)):
            raise Unsupported(f"its bias has the shape {b.shape}")
        wide = np.broadcast_to(b.array.ravel(), units)
        bias = (wide * np.asarray(beta, wide.dtype), b.named("reshaped"))
    if len(weight[0].shape) != 2:
        raise Unsupported(f"its weight has the shape {w.shape}")
    x = step.inputs[0]
    if isinstance(x, Moved):
        return MOVED["linear"](reader, x, weight, bias)
    if len(value(x).shape) != 1:
        raise Unsupported(f"its input has the shape (N, {', '.join(map(str, x.shape))})")
    return dense(reader, x, weight, bias)


def matmul(reader: OnnxReader, step: Step) -> Any:
    """A dense layer without bias, or a product of attention."""
    x, w = step.inputs
    if not isinstance(w, Constant):
        return terms.product(reader, x, w)
    if w.array.ndim != 2:
        raise Unsupported(f"its weight has the shape {w.shape}")
    if isinstance(x, Moved):
        return MOVED["linear"](reader, x, given(w), None)
    return dense(reader, value(x), given(w), None)


def lrn(reader: OnnxReader, step: Step) -> Value:
    """Local response normalisation."""
    layer = Lrn(step.get("size"), step.get("alpha"), step.get("beta"), step.get("bias"))
    return reader.layer(layer, images(step.inputs[0]))


def global_average_pool(reader: OnnxReader, step: Step) -> Value:
    """The mean of all pixels."""
    return reader.layer(layers.GlobalAveragePool(), images(step.inputs[0]))


def global_max_pool(reader: OnnxReader, step: Step) -> Value:
    """The largest pixel."""
    x = images(step.inputs[0])
    return reader.layer(layers.MaxPool(x.shape[1:]), x)


def elementwise(make: Callable[[Step], Layer | None]) -> Operator:
    """An operator that changes each element by itself; None is nothing to do."""

    def read(reader: OnnxReader, step: Step) -> Any:
        return applied(reader, step.inputs[0], make(step))

    return read


def applied(reader: OnnxReader, x: Any, layer: Layer | None) -> Any:
    """A layer of elements by themselves, of values in any order."""
    if layer is None:
        return x
    if isinstance(x, Moved):
        return replace(x, origin=reader.layer(layer, x.origin))
    return reader.layer(layer, value(x))


def clip(reader: OnnxReader, step: Step) -> Any:
    """Limits below, above or both."""
    low, high = (step.numbers(place, "a limit") for place in (1, 2))
    most = float(np.finfo(np.float32).max)
    below = -most if low is None else max(-most, float(low.reshape(())))
    above = most if high is None else min(most, float(high.reshape(())))
    if (below, above) == (-most, most):
        return step.inputs[0]
    if below > above:
        below = above  # as ONNX defines it
    relu = (below, above) == (0.0, most)
    layer = activations.ReLU() if relu else activations.Clip(below, above)
    return applied(reader, step.inputs[0], layer)


def hard_sigmoid(reader: OnnxReader, step: Step) -> Any:
    """alpha x + beta, between 0 and 1."""
    alpha, beta = step.get("alpha"), step.get("beta")
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return applied(reader, step.inputs[0], activations.HardSigmoid())
    return applied(
        reader,
        arithmetic.affine(reader, value(step.inputs[0]), alpha, beta),
        activations.Clip(0.0, 1.0),
    )


def softmax(reader: OnnxReader, step: Step) -> Any:
    """Softmax of classes, or of the scores of attention."""
    x, axis = step.inputs[0], step.get("axis", -1)
    if isinstance(x, Term):
        return terms.softmax(x, axis)
    return along(reader, x, axis, None, activations.Softmax)


def log_softmax(reader: OnnxReader, step: Step) -> Any:
    """The logarithm of softmax."""
    return along(reader, step.inputs[0], step.get("axis", -1), None, activations.LogSoftmax)


def prelu(reader: OnnxReader, step: Step) -> Any:
    """A leaky ReLU whose slope is one number, or trained for each channel."""
    slope = step.numbers(1, "its slope")
    if slope.size != 1:
        return _prelu_of_channels(reader, value(step.inputs[0]), constant(step, 1, "slope"))
    reader.notes.append(f"the slope of {step.name or 'PRelu'} stays as it is in training")
    return applied(reader, step.inputs[0], activations.LeakyReLU(float(slope.reshape(()))))


def _prelu_of_channels(reader: OnnxReader, x: Value, slope: Constant) -> Value:
    if arithmetic.spread(reader, x, slope) != (1,) or x.last or len(x.shape) != 3:
        raise Unsupported(f"with slopes of shape {slope.shape}")
    above = reader.layer(activations.ReLU(), x)
    # x below 0, else 0; its gradient at 0 is 1.
    below = joined(reader, "add", [x, reader.layer(activations.Affine(-1.0), above)])
    weights = {"w": (slope.array.ravel(), slope.named("reshaped"))}
    return joined(reader, "add", [above, reader.layer(layers.Scale(), below, weights)])


def softsign(reader: OnnxReader, step: Step) -> Any:
    """x / (1 + |x|)."""
    x = step.inputs[0]
    return functions.div(reader, x, scaled(reader, functions.absolute(reader, x), 1.0, 1.0))


def reduced(reduce: Callable[..., Any]) -> Operator:
    """The elements along some axes as one."""

    def read(reader: OnnxReader, step: Step) -> Any:
        axes, keep = views.axes_of(step), bool(step.get("keepdims", 1))
        if not axes and step.get("noop_with_empty_axes", 0):
            return step.inputs[0]
        return reduce(reader, value(step.inputs[0]), axes, keep)

    return read


def dropout(reader: OnnxReader, step: Step) -> Any:
    """Dropout where the file has it in training; else nothing."""
    step.get("seed")
    ratio, training = step.numbers(1, "its ratio"), step.numbers(2, "its mode")
    share = 0.5 if ratio is None else float(ratio.reshape(()))
    if training is None or not training.reshape(()) or not share:
        return step.inputs[0]
    return applied(reader, step.inputs[0], layers.Dropout(share))


def same(reader: OnnxReader, step: Step) -> Any:
    """The input itself."""
    return step.inputs[0]


def cast(reader: OnnxReader, step: Step) -> Any:
    """The input itself, where its type stays the same."""
    step.get("saturate")
    step.get("round_mode")
    wanted = step.get("to")
    if {"float32": 1, "float64": 11}[str(reader.dtype)] != wanted:
        raise Unsupported(f"with to = {wanted}, another type than the input's")
    return step.inputs[0]


def _leaky(step: Step) -> Layer:
    return activations.LeakyReLU(step.get("alpha"))


def _gelu(step: Step) -> Layer:
    return activations.GELU(step.get("approximate", "none") == "tanh")


def _swish(step: Step) -> Layer:
    if step.get("alpha", 1.0) != 1.0:
        raise Unsupported(f"with alpha = {step.get('alpha')}")
    return activations.SiLU()


OPERATORS: Mapping[str, Operator] = {
    "Abs": lambda reader, step: functions.absolute(reader, value(step.inputs[0])),
    "Add": arithmetic.add,
    "AveragePool": average_pool,
    "BatchNormalization": norms.batch_normalization,
    "Cast": cast,
    "Celu": lambda reader, step: functions.celu(reader, value(step.inputs[0]), step.get("alpha")),
    "Clip": clip,
    "Concat": views.concat,
    "Conv": conv,
    "Div": arithmetic.div,
    "Dropout": dropout,
    "Elu": elementwise(lambda step: activations.ELU(step.get("alpha"))),
    "Erf": terms.erf,
    "Exp": elementwise(lambda step: activations.Exp()),
    "Expand": views.expand,
    "Flatten": views.flatten,
    "Gather": views.gather,
    "Gelu": elementwise(_gelu),
    "Gemm": gemm,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": elementwise(lambda step: activations.HardSwish()),
    "Identity": same,
    "GroupNormalization": norms.group_normalization,
    "InstanceNormalization": norms.instance_normalization,
    "LRN": lrn,
    "LayerNormalization": norms.layer_normalization,
    "LeakyRelu": elementwise(_leaky),
    "Log": elementwise(lambda step: activations.Log()),
    "LogSoftmax": log_softmax,
    "MatMul": matmul,
    "MaxPool": max_pool,
    "Mish": lambda reader, step: functions.mish(reader, value(step.inputs[0])),
    "Mul": arithmetic.mul,
    "Neg": elementwise(lambda step: activations.Affine(-1.0)),
    "PRelu": prelu,
    "Pad": pad,
    "Pow": arithmetic.power,
    "Reciprocal": elementwise(lambda step: activations.Power(-1.0)),
    "ReduceMax": reduced(pools.amax),
    "ReduceMean": views.reduce_mean,
    "ReduceMin": reduced(pools.amin),
    "ReduceSum": reduced(pools.sum_),
    "Relu": elementwise(lambda step: activations.ReLU()),
    "Reshape": views.reshape,
    "Selu": lambda reader, step: functions.elu(
        reader, value(step.inputs[0]), step.get("alpha"), step.get("gamma")
    ),
    "Shape": views.shape,
    "Sigmoid": elementwise(lambda step: activations.Sigmoid()),
    "Size": views.size,
    "Slice": views.slice_,
    "Softmax": softmax,
    "Softplus": elementwise(lambda step: activations.Softplus()),
    "Softsign": softsign,
    "Split": views.split,
    "Sqrt": terms.sqrt,
    "Squeeze": views.squeeze,
    "Sub": arithmetic.sub,
    "Sum": arithmetic.sum_,
    "Swish": elementwise(_swish),
    "Tanh": elementwise(lambda step: activations.Tanh()),
    "Transpose": views.transpose,
    "Unsqueeze": views.unsqueeze,
}
