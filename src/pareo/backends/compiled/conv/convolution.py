"""Convolution: which of four ways suits the shapes, and the fused entries.

`rows`    few small filters at stride 1: whole images in straight loops, bias and activation fused;
          in float32 and where the sizes allow it, in generated `tiles`.
`direct`  very small filters at any stride, groups or dilation: plain loops.
`winograd` 3x3 and 5x5 filters at stride 1, enough channels, float32: with far fewer products.
`columns` everything else: columns and BLAS, bias and activation while the result is in the cache.
"""

from functools import lru_cache, partial
from typing import Any

import numpy as np

from pareo.backends.compiled.backend import backend
from pareo.backends.compiled.conv import direct, im2col, register_tiles, shifted_rows, winograd
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID, TANH
from pareo.backends.compiled.loops import templates
from pareo.backends.compiled.runtime.generated import generated
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.backends.sums import gathered
from pareo.spec import Spec

kernel = backend.kernel
NAMES = {NONE: "", SIGMOID: "sigmoid", TANH: "tanh", RELU: "relu"}


def _way(x: Spec, filters: tuple[int, ...], out: Any, **how: Any) -> str:
    """How to convolve x, or to find the gradient of the filters from that of the result."""
    stride, dilation, groups = how["stride"], how["dilation"], how["groups"]
    if not filters[1]:  # without channels every sum is empty: the others begin with the first
        return "columns"
    if shifted_rows.suits(x, filters, stride, dilation, groups):
        return "rows"
    if direct.suits(filters, groups):
        return "direct"
    return "winograd" if winograd.suits(filters, out, **how) else "columns"


def _rows_room(x: Spec, filters: tuple[int, ...], out: Spec, padding: Any) -> list[Spec]:
    """For every worker one padded image, and three output planes with rows as wide as its."""
    top, left, bottom, right = padding
    height, width = x.shape[2] + top + bottom, x.shape[3] + left + right
    rooms = (workers(), x.shape[1], height, width), (workers(), 3, out.shape[2], width)
    return [x.like(shape) for shape in rooms]


def _tiled(x: Any, filters: tuple[int, ...], out: Any, padding: Any, activation: int) -> Any:
    """The generated module for a layer of `rows` that can be cut into tiles, or None."""
    if x.dtype != np.float32 or any(padding) or not register_tiles.suits(out.shape, filters):
        return None
    return _tiled_module(*out.shape[1:], x.shape[3], *filters[2:], NAMES[activation])


@lru_cache(maxsize=64)
def _tiled_module(*sizes: Any) -> Any:
    return generated(templates.tiled_layer(*sizes))


def _by_threes(filters: int) -> int:
    return -(-filters // 3) * 3


def _forward_room(out: Spec, x: Spec, w: Spec, b: Any = None, **how: Any) -> list[Spec]:
    way = _way(x, w.shape, out, **how)
    if way == "rows":
        threes = _by_threes(w.shape[0])
        room = _rows_room(x, w.shape, out, how["padding"])
        return [*room, w.like((threes, *w.shape[1:])), w.like((threes,))]
    if way == "direct":
        return []
    if way == "winograd":
        return [*winograd.room(x, out, w.shape[2]), winograd.filters_room(w.shape, x)]
    return im2col.room(x, out, w.shape[2:], how["stride"], how["padding"], how["groups"])


def _forward(
    out: Any, x: Any, w: Any, b: Any, activation: int,
    stride: Any, padding: Any, dilation: Any, groups: int, scratch: tuple[Any, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); b is None for the convolution alone."""
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    way = _way(Spec.of(x), w.shape, out, **how)
    if way == "rows":
        room, wide, filters, biases = scratch
        filters[w.shape[0] :] = 0
        filters[: w.shape[0]] = w
        biases[...] = 0
        if b is not None:
            biases[: w.shape[0]] = b

        tiled = _tiled(x, w.shape, out, padding, activation)

        def work(part: int, lo: int, hi: int) -> None:
            if tiled is not None:
                tiled.forward(out[lo:hi], x[lo:hi], w, biases)
                return
            shifted_rows.forward(
                out[lo:hi], room[part], wide[part], x[lo:hi], filters, biases, activation,
                *padding[:2],
            )  # fmt: skip

        split_numbered(work, x.shape[0])
    elif way == "direct":
        shape = (*stride, *padding[:2], *dilation)
        split(lambda lo, hi: direct.forward(out[lo:hi], x[lo:hi], w, groups, *shape), x.shape[0])
        if any(padding):
            direct.padding_times_filters(out, x, w, *shape)
    elif way == "winograd":
        winograd.forward(out, x, w, b, activation, padding, scratch)
    else:
        im2col.forward(out, x, w, b, activation, stride, padding, dilation, groups, scratch[0])


def _fusible(out: Spec, x: Spec, w: Spec, b: Spec, **how: Any) -> bool:
    return _way(x, w.shape, out, **how) != "direct"


@kernel(strided=False, scratch=_forward_room)
def conv(out: Any, x: Any, w: Any, **how: Any) -> None:
    _forward(out, x, w, None, NONE, **how)


_fused: dict[str, Any] = {"when": _fusible, "scratch": _forward_room}


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)\ny = sigmoid(u)", "y", **_fused)
def conv_bias_sigmoid(out: Any, x: Any, w: Any, b: Any, **how: Any) -> None:
    _forward(out, x, w, b, SIGMOID, **how)


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)\ny = tanh(u)", "y", **_fused)
def conv_bias_tanh(out: Any, x: Any, w: Any, b: Any, **how: Any) -> None:
    _forward(out, x, w, b, TANH, **how)


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)\ny = relu(u)", "y", **_fused)
def conv_bias_relu(out: Any, x: Any, w: Any, b: Any, **how: Any) -> None:
    _forward(out, x, w, b, RELU, **how)


@backend.fusion("t = conv(x, w)\nu = add_bias(t, b)", "u", **_fused)
def conv_bias(out: Any, x: Any, w: Any, b: Any, **how: Any) -> None:
    _forward(out, x, w, b, NONE, **how)


def _input_room(out: Spec, g: Spec, w: Spec, *, size: Any, **how: Any) -> list[Spec]:
    if direct.suits(w.shape, how["groups"]):
        return []
    if winograd.suits(w.shape, out, **how):
        return [*winograd.room(g, out, w.shape[2]), winograd.filters_room(w.shape, g)]
    return im2col.room(out, g, w.shape[2:], how["stride"], how["padding"], how["groups"])


@kernel(strided=False, scratch=_input_room)
def conv_input_gradient(
    out: Any, g: Any, w: Any, size: Any, scratch: tuple[Any, ...], **how: Any
) -> None:
    if not scratch:
        shape = (how["groups"], *how["stride"], *how["padding"][:2], *how["dilation"])
        split(lambda lo, hi: direct.input_gradient(out[lo:hi], g[lo:hi], w, *shape), g.shape[0])
    elif winograd.suits(w.shape, out, **how):
        winograd.input_gradient(out, g, w, how["padding"], scratch)
    else:
        im2col.input_gradient(out, g, w, **how, columns=scratch[0])


def _weight_room(out: Spec, x: Spec, g: Spec, *, size: Any, **how: Any) -> list[Spec]:
    way = _way(x, out.shape, g, **how)
    if way == "rows":
        return _rows_back_room((out, g), x, g, padding=how["padding"])
    if way == "direct":
        return [Spec((workers(), *out.shape), np.float64)]
    if way == "winograd":
        return [*winograd.room(x, g, out.shape[2]), winograd.sums_room(out.shape, x)]
    groups = how["groups"]
    return [
        *im2col.room(x, g, size, how["stride"], how["padding"], groups),
        *im2col.sums_room(x, out.shape, groups),
    ]


@kernel(strided=False, scratch=_weight_room)
def conv_weight_gradient(
    out: Any, x: Any, g: Any, size: Any, scratch: tuple[Any, ...], **how: Any
) -> None:
    way = _way(Spec.of(x), out.shape, g, **how)
    if way == "rows":
        _rows_back(out, None, x, g, g, NONE, how["padding"], scratch)
    elif way == "direct":
        sums = scratch[0]
        shape = (*how["stride"], *how["padding"][:2], *how["dilation"])

        def work(part: int, lo: int, hi: int) -> None:
            direct.weight_gradient(sums[part], x[lo:hi], g[lo:hi], how["groups"], *shape)
            if any(how["padding"]):
                direct.padding_times_errors(sums[part], x[lo:hi], g[lo:hi], *shape)

        out[...] = gathered(sums, split_numbered(work, x.shape[0]))
    elif way == "winograd":
        winograd.weight_gradient(out, x, g, how["padding"], scratch)
    else:
        room, *sums = scratch
        im2col.weight_gradient(out, x, g, **how, columns=room, sums=sums[0], totals=sums[1:])


def _rows_back_room(out: Any, x: Spec, g: Spec, y: Any = None, *, padding: Any, **_: Any) -> Any:
    """The rooms of the way forward, and for every worker the sums in double precision."""
    filters = out[0].shape
    threes = _by_threes(filters[0])
    return [
        *_rows_room(x, filters, g, padding),
        Spec((workers(), threes, *filters[1:]), np.float64),
        Spec((workers(), threes), np.float64),
    ]


def _rows_back(
    gw: Any, gb: Any, x: Any, g: Any, y: Any, activation: int, padding: Any,
    scratch: tuple[Any, ...],
) -> None:  # fmt: skip
    """gw and, unless it is None, gb of y = activation(conv(x, w) + b), in one pass."""
    room, wide, sums, bias_sums = scratch

    tiled = _tiled(x, gw.shape, g, padding, activation)

    def work(apart: bool, part: int, lo: int, hi: int) -> None:
        sums[part] = 0
        bias_sums[part] = 0
        if tiled is not None:
            flat, flat_bias = sums[part].reshape(-1), bias_sums[part]
            tiled.backward(flat, flat_bias, x[lo:hi], g[lo:hi], y[lo:hi])
            return
        shifted_rows.backward(
            sums[part], bias_sums[part], room[part], wide[part], x[lo:hi], g[lo:hi], y[lo:hi],
            activation, *padding[:2], apart,
        )  # fmt: skip

    parts = split_numbered(partial(work, False), x.shape[0])
    total = gathered(sums, parts)
    if tiled is None and not np.isfinite(np.add.reduce(total, axis=None)):
        parts = split_numbered(partial(work, True), x.shape[0])
        total = gathered(sums, parts)
    gw[...] = total[: gw.shape[0]]
    if gb is not None:
        gb[...] = gathered(bias_sums, parts)[: gb.shape[0]]


def _is_rows(out: Any, x: Spec, g: Spec, y: Spec, *, stride: Any, dilation: Any, groups: int,
             **_: Any) -> bool:  # fmt: skip
    return shifted_rows.suits(x, out[0].shape, stride, dilation, groups)


def _offer_back(name: str, activation: int) -> None:
    """A fused way back through activation, bias and filters, for a first layer."""

    def back(out: Any, x: Any, g: Any, y: Any, *, padding: Any, scratch: Any, **_: Any) -> None:
        _rows_back(out[0], out[1], x, g, y, activation, padding, scratch)

    back.__name__ = f"conv_bias_{name}_gradient"
    pattern = (
        f"d = {name}_gradient(g, y)\n"
        "gb = sum(d, axis=(0, 2, 3), keepdims=False)\n"
        "gw = conv_weight_gradient(x, d)"
    )
    backend.fusion(pattern, "gw gb", when=_is_rows, scratch=_rows_back_room)(back)


for _name, _activation in (("sigmoid", SIGMOID), ("tanh", TANH), ("relu", RELU)):
    _offer_back(_name, _activation)
