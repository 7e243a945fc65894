"""Convolution: the choice of an algorithm by the shapes, and the fused kernels.

`shifted_rows`  few small filters at stride 1 (with AVX-512 fewer than 12): loops over whole images,
                with bias and activation; in float32, and if the sizes allow it, by generated
                `register_tiles`
`depthwise`     a channel for each filter, stride 1 or 2: tiles in registers
`pointwise`     1x1 filters, float32, AVX-512: products in registers, of images where they lie
`by_taps`       few filters of many channels, float32, AVX-512: each tap a filter of one pixel
`direct`        very small filters with any stride, groups or dilation: plain loops
`winograd`      3x3 and 5x5 filters at stride 1, enough channels, float32: far fewer products
`channels_last` other filters, float32: products that read windows where they lie
`im2col`        everything else: columns and BLAS, with bias and activation while a result is in the
                cache
"""

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes, backend
from pareo.backends.compiled.conv import (
    by_taps,
    depthwise,
    direct,
    im2col,
    pointwise,
    register_tiles,
    shifted_rows,
)
from pareo.backends.compiled.conv.channels_last import layer as channels_last
from pareo.backends.compiled.conv.tiled_layer import tiled_layer
from pareo.backends.compiled.conv.winograd import layer as winograd
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID, TANH
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.arrays import add_parts, copy, fill, is_finite
from pareo.backends.compiled.runtime.jit import holds
from pareo.backends.compiled.runtime.thread_pool import least_items, split, split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel
# Filters that are worth registers of 16: with fewer, `shifted_rows` is as fast, and its backward
# pass takes bias and activation along.
FILL_REGISTERS = 12
SHORT = 256  # pixels, for which a loop of `shifted_rows` takes as long to begin as to run
FEW_LOOPS = 128  # of them, which take as long as `im2col` takes to begin
DIRECT = 16  # how many times as long as a product in registers `direct` takes
NAMES = {NONE: "", SIGMOID: "sigmoid", TANH: "tanh", RELU: "relu"}


def _algorithm(x: Spec, filters: Sizes, out: Spec | Array, **how: Any) -> str:
    """The algorithm to convolve x, or to compute the filters' gradient from the output's."""
    groups = how["groups"]
    if not filters[1]:  # without channels all sums are empty; the others start from the first
        return "im2col"
    if _suits_taps(x, filters, out, **how):
        return "by_taps"
    if _suits_rows(x, filters, out, **how):
        return "shifted_rows"
    if depthwise.suits(x, filters, how):
        return "depthwise"
    if pointwise.suits(x, filters, **how):
        return "pointwise"
    if direct.suits(filters, groups):
        return "direct"
    if winograd.suits(filters, out, **how):
        return "winograd"
    return "channels_last" if channels_last.suits(x, filters, out, **how) else "im2col"


def _suits_taps(x: Spec, filters: Sizes, out: Spec | Array, **how: Any) -> bool:
    suits = by_taps.suits(x, filters, out, **how)
    return suits and not winograd.suits(filters, out, **how)


def _suits_rows(x: Spec, filters: Sizes, out: Spec | Array, **how: Any) -> bool:
    """Whether `shifted_rows` is fastest; with 3x3 filters that `winograd` takes, that is."""
    if _suits_taps(x, filters, out, **how):
        return False
    if not shifted_rows.suits(x, filters, how["stride"], how["dilation"], how["groups"]):
        return False
    if shifted_rows.loops(out.shape, filters) > FEW_LOOPS and out.shape[2] * out.shape[3] < SHORT:
        return False
    fills = registers.HAS_AVX512 and filters[0] >= FILL_REGISTERS
    if fills and pointwise.suits(x, filters, **how):
        return False
    if fills and channels_last.suits(x, filters, out, **how):
        return False
    return tuple(filters[2:]) != (3, 3) or not winograd.suits(filters, out, **how)


def _rows_scratch(x: Spec, out: Spec, padding: Sizes) -> list[Spec]:
    """For every worker one padded image, and three output planes with rows of the same width."""
    top, left, bottom, right = padding
    height, width = x.shape[2] + top + bottom, x.shape[3] + left + right
    shapes = (workers(), x.shape[1], height, width), (workers(), 3, out.shape[2], width)
    return [x.like(shape) for shape in shapes]


def _tiled(
    x: Array, filters: Sizes, out: Array, padding: Sizes, activation: int
) -> ModuleType | None:
    """The generated module for a layer of `shifted_rows` that can be cut into tiles, or None."""
    if x.dtype != np.float32 or any(padding) or not register_tiles.suits(out.shape, filters):
        return None
    return tiled_layer(*out.shape[1:], x.shape[3], *filters[2:], NAMES[activation])


def _least(results: Array, filters: Array, slower: int = 1) -> int:
    """How many images are worth a thread, by loops that are `slower` than products."""
    flops = slower * 2 * results.size * filters[0].size
    return least_items(len(results), flops)


def _padded_filters(filters: int) -> int:
    """A number of filters, rounded up to a multiple of three (see `shifted_rows`)."""
    return -(-filters // 3) * 3


def _forward_scratch(out: Spec, x: Spec, w: Spec, b: Spec | None = None, **how: Any) -> list[Spec]:
    algorithm = _algorithm(x, w.shape, out, **how)
    if algorithm == "shifted_rows":
        threes = _padded_filters(w.shape[0])
        planes = _rows_scratch(x, out, how["padding"])
        return [*planes, w.like((threes, *w.shape[1:])), w.like((threes,))]
    if algorithm == "direct":
        return []
    if algorithm == "by_taps":
        return by_taps.scratch(x, w.shape)
    if algorithm == "depthwise":
        return depthwise.scratch(x, out, w.shape, how["stride"][0], how["padding"])
    if algorithm == "pointwise":
        return pointwise.scratch(x, w.shape[1], how["stride"])
    if algorithm == "winograd":
        return winograd.scratch(x, out, w.shape[2])
    if algorithm == "channels_last":
        return channels_last.scratch(x, w.shape, out, how["stride"], how["padding"])
    return im2col.scratch(x, out, w.shape[2:], how["stride"], how["padding"], how["groups"])


def _forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int,
    stride: Sizes, padding: Sizes, dilation: Sizes, groups: int,
    scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None."""
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    algorithm = _algorithm(Spec.of(x), w.shape, out, **how)
    if algorithm == "shifted_rows":
        image, wide, filters, biases = scratch
        fill(filters[w.shape[0] :], 0)
        copy(filters[: w.shape[0]], w)
        fill(biases, 0)
        if b is not None:
            copy(biases[: w.shape[0]], b)

        tiled = _tiled(x, w.shape, out, padding, activation)

        def work(part: int, lo: int, hi: int) -> None:
            if tiled is not None:
                tiled.forward(out[lo:hi], x[lo:hi], w, biases)
                return
            shifted_rows.forward(
                out[lo:hi], image[part], wide[part], x[lo:hi], filters, biases, activation,
                *padding[:2],
            )  # fmt: skip

        split_numbered(work, x.shape[0], _least(out, w))
    elif algorithm == "by_taps":
        by_taps.forward(out, x, w, b, activation, how, scratch)
        if any(padding) and not holds(is_finite, w.reshape(-1)):  # what it leaves out
            direct.padding_times_filters(out, x, w, *stride, *padding[:2], *dilation)
    elif algorithm == "depthwise":
        depthwise.forward(out, x, w, b, stride[0], padding, scratch[0])
    elif algorithm == "pointwise":
        pointwise.forward(out, x, w, b, activation, stride, scratch)
    elif algorithm == "direct":
        shape = (*stride, *padding[:2], *dilation)
        split(
            lambda lo, hi: direct.forward(out[lo:hi], x[lo:hi], w, groups, *shape),
            x.shape[0],
            _least(out, w, DIRECT),
        )
        if any(padding):
            direct.padding_times_filters(out, x, w, *shape)
    elif algorithm == "winograd":
        winograd.forward(out, x, w, b, activation, padding, scratch)
    elif algorithm == "channels_last":
        channels_last.forward(out, x, w, b, activation, stride, padding, scratch)
    else:
        im2col.forward(out, x, w, b, activation, stride, padding, dilation, groups, scratch)


def _fusible(out: Spec, x: Spec, w: Spec, b: Spec, **how: Any) -> bool:
    return _algorithm(x, w.shape, out, **how) not in ("direct", "depthwise")


def _fusible_bias(out: Spec, x: Spec, w: Spec, b: Spec, **how: Any) -> bool:
    return _algorithm(x, w.shape, out, **how) != "direct"


@kernel(strided=False, scratch=_forward_scratch, replayable=True)
def conv(out: Array, x: Array, w: Array, **how: Any) -> None:
    _forward(out, x, w, None, NONE, **how)


_fused: dict[str, Any] = {"when": _fusible, "scratch": _forward_scratch, "replayable": True}


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)\ny = sigmoid(u)", "y", **_fused)
def conv_bias_sigmoid(out: Array, x: Array, w: Array, b: Array, **how: Any) -> None:
    _forward(out, x, w, b, SIGMOID, **how)


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)\ny = tanh(u)", "y", **_fused)
def conv_bias_tanh(out: Array, x: Array, w: Array, b: Array, **how: Any) -> None:
    _forward(out, x, w, b, TANH, **how)


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)\ny = relu(u)", "y", **_fused)
def conv_bias_relu(out: Array, x: Array, w: Array, b: Array, **how: Any) -> None:
    _forward(out, x, w, b, RELU, **how)


@backend.fusion(
    "t = conv(x, w)\nu = add_bias(t, b)", "u", when=_fusible_bias, scratch=_forward_scratch,
    replayable=True,
)  # fmt: skip
def conv_bias(out: Array, x: Array, w: Array, b: Array, **how: Any) -> None:
    _forward(out, x, w, b, NONE, **how)


def _input_gradient_scratch(out: Spec, g: Spec, w: Spec, *, size: Sizes, **how: Any) -> list[Spec]:
    if depthwise.suits(out, w.shape, how):
        stride, padding = how["stride"][0], how["padding"]
        return depthwise.gradient_scratch(out, g, w.shape, stride, padding)
    if pointwise.suits(out, w.shape, **how):
        return pointwise.scratch(out, w.shape[0], how["stride"])
    if direct.suits(w.shape, how["groups"]):
        return []
    if winograd.suits(w.shape, out, **how):
        return winograd.scratch(g, out, w.shape[2])
    if channels_last.suits_input_gradient(out, w.shape, g, **how):
        return channels_last.input_scratch(out, g, w.shape, how["stride"], how["padding"])
    return im2col.scratch(out, g, w.shape[2:], how["stride"], how["padding"], how["groups"])


def _plain_input_gradient(out: Array, g: Array, w: Array, how: dict[str, Any]) -> None:
    """By loops, which multiply nothing but errors and filters."""
    shape = (how["groups"], *how["stride"], *how["padding"][:2], *how["dilation"])
    split(
        lambda lo, hi: direct.input_gradient(out[lo:hi], g[lo:hi], w, *shape),
        g.shape[0],
        _least(g, w, DIRECT),
    )


@kernel(strided=False, scratch=_input_gradient_scratch, replayable=True)
def conv_input_gradient(
    out: Array, g: Array, w: Array, size: Sizes, scratch: tuple[Array, ...], **how: Any
) -> None:
    if depthwise.suits(out, w.shape, how) and holds(is_finite, w.reshape(-1)):
        depthwise.input_gradient(out, g, w, how["stride"][0], how["padding"], scratch[0])
    elif pointwise.suits(out, w.shape, **how):
        pointwise.input_gradient(out, g, w, how["stride"], scratch)
    elif depthwise.suits(out, w.shape, how) or direct.suits(w.shape, how["groups"]):
        _plain_input_gradient(out, g, w, how)
    elif winograd.suits(w.shape, out, **how):
        winograd.input_gradient(out, g, w, how["padding"], scratch)
    elif channels_last.suits_input_gradient(out, w.shape, g, **how):
        # It multiplies zeros around the errors by filters, too, which must be finite for that.
        if holds(is_finite, w.reshape(-1)):
            channels_last.input_gradient(out, g, w, how["stride"], how["padding"], scratch)
            return
        _plain_input_gradient(out, g, w, how)
    else:
        im2col.input_gradient(out, g, w, **how, scratch=scratch)


def _weight_gradient_scratch(out: Spec, x: Spec, g: Spec, *, size: Sizes, **how: Any) -> list[Spec]:
    algorithm = _algorithm(x, out.shape, g, **how)
    if algorithm == "shifted_rows":
        return _rows_backward_scratch((out, g), x, g, padding=how["padding"])
    if algorithm == "direct":
        return [Spec((workers(), *out.shape), np.float64)]
    if algorithm == "by_taps":
        return by_taps.gradient_scratch(x, out.shape)
    if algorithm == "depthwise":
        buffers = depthwise.scratch(x, g, out.shape, how["stride"][0], how["padding"])
        return [*buffers, *depthwise.sums_scratch(x, out.shape)]
    if algorithm == "pointwise":
        return pointwise.gradient_scratch(x, out.shape, how["stride"])
    if algorithm == "winograd":
        return winograd.gradient_scratch(x, g, out.shape[2])
    if algorithm == "channels_last":
        return channels_last.gradient_scratch(x, out.shape, g, how["stride"], how["padding"])
    groups = how["groups"]
    return [
        *im2col.scratch(x, g, size, how["stride"], how["padding"], groups),
        *im2col.sums_scratch(x, out.shape, groups),
    ]


@kernel(strided=False, scratch=_weight_gradient_scratch, replayable=True)
def conv_weight_gradient(
    out: Array, x: Array, g: Array, size: Sizes, scratch: tuple[Array, ...], **how: Any
) -> None:
    algorithm = _algorithm(Spec.of(x), out.shape, g, **how)
    if algorithm == "shifted_rows":
        _rows_backward(out, None, x, g, g, NONE, how["padding"], scratch)
    elif algorithm == "direct":
        _plain_weight_gradient(out, x, g, how, scratch[0])
    elif algorithm == "by_taps":
        by_taps.weight_gradient(out, x, g, how, scratch)
        if not holds(is_finite, out.reshape(-1)):  # pixels that a tap does not see were read, too
            totals = scratch[3].reshape(len(scratch[3]), *out.shape)
            _plain_weight_gradient(out, x, g, how, totals)
    elif algorithm == "depthwise":
        depthwise.weight_gradient(out, x, g, how["stride"][0], how["padding"], scratch)
    elif algorithm == "pointwise":
        pointwise.weight_gradient(out, x, g, how["stride"], scratch)
    elif algorithm == "winograd":
        winograd.weight_gradient(out, x, g, how["padding"], scratch)
    elif algorithm == "channels_last":
        channels_last.weight_gradient(out, x, g, how["stride"], how["padding"], scratch)
    else:
        count = im2col.sums_count(x.shape)
        own, (sums, *totals) = scratch[:-count], scratch[-count:]
        im2col.weight_gradient(out, x, g, **how, scratch=own, sums=sums, totals=totals)


def _plain_weight_gradient(
    out: Array, x: Array, g: Array, how: dict[str, Any], sums: Array
) -> None:
    """By loops; sums: for every worker, in double precision."""
    shape = (*how["stride"], *how["padding"][:2], *how["dilation"])

    def work(part: int, lo: int, hi: int) -> None:
        direct.weight_gradient(sums[part], x[lo:hi], g[lo:hi], how["groups"], *shape)
        if any(how["padding"]):
            direct.padding_times_gradients(sums[part], x[lo:hi], g[lo:hi], *shape)

    add_parts(out, sums, split_numbered(work, x.shape[0], _least(g, out, DIRECT)))


def _rows_backward_scratch(
    out: tuple[Spec, ...], x: Spec, g: Spec, y: Spec | None = None, *, padding: Sizes, **_: Any
) -> list[Spec]:
    """The work arrays of the forward pass, and for every worker the sums in double precision."""
    filters = out[0].shape
    threes = _padded_filters(filters[0])
    return [
        *_rows_scratch(x, g, padding),
        Spec((workers(), threes, *filters[1:]), np.float64),
        Spec((workers(), threes), np.float64),
    ]


def _rows_backward(
    gw: Array, gb: Array | None, x: Array, g: Array, y: Array,
    activation: int, padding: Sizes, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """gw, and gb unless it is None, of y = activation(conv(x, w) + b), in one pass."""
    image, wide, sums, bias_sums = scratch

    tiled = _tiled(x, gw.shape, g, padding, activation)

    def work(by_rows: bool, part: int, lo: int, hi: int) -> None:
        fill(sums[part], 0)
        fill(bias_sums[part], 0)
        if tiled is not None:
            flat, flat_bias = sums[part].reshape(-1), bias_sums[part]
            tiled.backward(flat, flat_bias, x[lo:hi], g[lo:hi], y[lo:hi])
            return
        shifted_rows.backward(
            sums[part], bias_sums[part], image[part], wide[part], x[lo:hi], g[lo:hi], y[lo:hi],
            activation, *padding[:2], by_rows,
        )  # fmt: skip

    least = _least(g, gw)
    parts = split_numbered(partial(work, False), x.shape[0], least)
    add_parts(gw, sums, parts)
    if tiled is None and not holds(is_finite, gw.reshape(-1)):
        parts = split_numbered(partial(work, True), x.shape[0], least)
        add_parts(gw, sums, parts)
    if gb is not None:
        add_parts(gb, bias_sums, parts)


def _uses_rows(
    out: tuple[Spec, ...], x: Spec, g: Spec, y: Spec, *, size: Sizes, **how: Any
) -> bool:
    return _suits_rows(x, out[0].shape, g, **how)


def _register_backward(name: str, activation: int) -> None:
    """A fused backward pass through activation, bias and filters, for a first layer."""

    def backward(
        out: tuple[Array, Array],
        x: Array,
        g: Array,
        y: Array,
        *,
        padding: Sizes,
        scratch: tuple[Array, ...],
        **_: Any,
    ) -> None:
        _rows_backward(out[0], out[1], x, g, y, activation, padding, scratch)

    backward.__name__ = f"conv_bias_{name}_gradient"
    pattern = (
        f"d = {name}_gradient(g, y)\n"
        "gb = sum(d, axis=(0, 2, 3), keepdims=False)\n"
        "gw = conv_weight_gradient(x, d)"
    )
    fusion = backend.fusion(
        pattern, "gw gb", when=_uses_rows, scratch=_rows_backward_scratch, replayable=True
    )
    fusion(backward)


for _name, _activation in (("sigmoid", SIGMOID), ("tanh", TANH), ("relu", RELU)):
    _register_backward(_name, _activation)
