"""Batch normalisation, alone or with the sum and the relu that follow it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels.channels import Channels
from pareo.backends.cuda.kernels.elementwise import WIDEST
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.runtime.launch import NULL
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

NONE = -1  # no operand is overwritten


def _scratch(out: Any, first: Spec, *_: Spec, **__: Any) -> list[Spec]:
    """For the sums of the parts, and four numbers for each channel."""
    channels = Channels.of(first)
    return [channels.partial, first.like((4 * channels.channels,))]


def _elements(name: str, arrays: Sequence[Array], numbers: Array, *more: Any) -> None:
    """Launch NAME of batch_norm.cu over all elements; an array that is None becomes null.

    `numbers` are four for each channel.
    """
    out: Array = arrays[0]
    channels, count, pixels = out.shape[1], out.size, Channels.of(out).pixels
    width = WIDEST // out.itemsize
    if pixels % width == 0 and not any(a.data.ptr % WIDEST for a in arrays if a is not None):
        name, count, pixels = f"{name}_packed", count // width, pixels // width
    pointers = [NULL if array is None else array for array in arrays]
    arguments = (*pointers, numbers, count, channels, pixels, *more)
    launch.over(count, "batch_norm", name, out.dtype.char, *arguments)


def _forward(
    out: Sequence[Array],
    x: Array,
    scale: Array,
    shift: Array,
    rest: Array | None,
    relu: bool,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    y, mean, variance = out
    partial, numbers = scratch
    channels, kind = Channels.of(x), x.dtype.char
    channels.sum("batch_norm", "statistics", kind, partial, x)
    channels.finish(
        "batch_norm", "statistics", kind, mean, variance, numbers, partial, x, scale, shift,
        channels.layout, np.float64(epsilon),
    )  # fmt: skip
    _elements("normalised", [y, x, rest], numbers, np.int32(relu))


def _inference(
    out: Array,
    x: Array,
    vectors: Sequence[Array],
    rest: Array | None,
    relu: bool,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    count, (numbers,) = x.shape[1], scratch
    arguments = (numbers, *vectors, count, np.float64(epsilon))
    launch.over(count, "batch_norm", "inference", x.dtype.char, *arguments)
    _elements("normalised", [out, x, rest], numbers, np.int32(relu))


def _backward(
    out: Sequence[Array],
    after: Array | None,
    g: Array,
    y: Array | None,
    x: Array,
    vectors: Sequence[Array],
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    """The gradient; first that of relu, whose result is y, which is written to `after`."""
    to_x, to_scale, to_shift = out
    scale, mean, variance = vectors
    partial, numbers = scratch
    channels, kind = Channels.of(x), x.dtype.char
    result = NULL if y is None else y
    channels.sum("batch_norm", "errors", kind, partial, g, result, x, mean)
    channels.finish(
        "batch_norm", "slopes", kind, to_scale, to_shift, numbers, partial, scale, mean, variance,
        channels.layout, np.float64(epsilon),
    )  # fmt: skip
    _elements("gradients", [to_x, after, g, y, x], numbers)


@backend.kernel(in_place=(0, NONE, NONE), strided=False, scratch=_scratch)
def batch_norm(
    out: Array, x: Array, scale: Array, shift: Array, epsilon: float, scratch: Sequence[Array]
) -> None:
    _forward(out, x, scale, shift, None, False, epsilon, scratch)


@backend.kernel(in_place=(0, NONE, NONE), strided=False, scratch=_scratch)
def batch_norm_gradient(
    out: Array,
    g: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    _backward(out, None, g, None, x, (scale, mean, variance), epsilon, scratch)


def _numbers(out: Spec, x: Spec, *_: Spec, **__: Any) -> list[Spec]:
    return [x.like((4 * x.shape[1],))]


@backend.kernel(in_place=(0,), strided=False, scratch=_numbers)
def batch_norm_inference(
    out: Array,
    x: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    _inference(out, x, (scale, shift, mean, variance), None, False, epsilon, scratch)


NORM = "y, m, v = batch_norm(x, s, b)"
INFERENCE = "y = batch_norm_inference(x, s, b, m, v)"


def _residual(last: str, name: str, relu: bool) -> None:
    """What adds another array r to the normalised one."""

    def forward(
        out: Array, x: Array, s: Array, b: Array, r: Array, *, epsilon: float, scratch: Any
    ) -> None:
        _forward(out, x, s, b, r, relu, epsilon, scratch)

    def inference(
        out: Array, x: Array, s: Array, b: Array, m: Array, v: Array, r: Array, *, epsilon: float,
        scratch: Any,
    ) -> None:  # fmt: skip
        _inference(out, x, (s, b, m, v), r, relu, epsilon, scratch)

    forward.__name__, inference.__name__ = f"batch_norm_{name}", f"batch_norm_inference_{name}"
    in_place = (0, NONE, NONE)
    backend.fusion(f"{NORM}\n{last}", "z m v", scratch=_scratch, in_place=in_place)(forward)
    backend.fusion(f"{INFERENCE}\n{last}", "z", scratch=_numbers, in_place=(0,))(inference)


for _order in ("y, r", "r, y"):
    _residual(f"t = add({_order})\nz = relu(t)", "add_relu", True)
    _residual(f"z = add({_order})", "add", False)


@backend.fusion(f"{NORM}\nz = relu(y)", "z m v", scratch=_scratch, in_place=(0, NONE, NONE))
def batch_norm_relu(
    out: Array, x: Array, s: Array, b: Array, *, epsilon: float, scratch: Sequence[Array]
) -> None:
    _forward(out, x, s, b, None, True, epsilon, scratch)


@backend.fusion(f"{INFERENCE}\nz = relu(y)", "z", scratch=_numbers, in_place=(0,))
def batch_norm_inference_relu(
    out: Array,
    x: Array,
    s: Array,
    b: Array,
    m: Array,
    v: Array,
    *,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    _inference(out, x, (s, b, m, v), None, True, epsilon, scratch)


GRADIENT = "d = relu_gradient(g, y)\nto_x, to_s, to_b = batch_norm_gradient(d, x, s, m, v)"


@backend.fusion(GRADIENT, "to_x to_s to_b", scratch=_scratch, in_place=(0, NONE, NONE))
def relu_batch_norm_gradient(
    out: Array, g: Array, y: Array, x: Array, s: Array, m: Array, v: Array, *, epsilon: float,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    _backward(out, None, g, y, x, (s, m, v), epsilon, scratch)


@backend.fusion(GRADIENT, "d to_x to_s to_b", scratch=_scratch, in_place=(0, NONE, NONE, NONE))
def relu_and_batch_norm_gradient(
    out: Array, g: Array, y: Array, x: Array, s: Array, m: Array, v: Array, *, epsilon: float,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    """Where the other branch of a residual block needs the gradient of relu too."""
    after, *rest = out
    _backward(rest, after, g, y, x, (s, m, v), epsilon, scratch)
