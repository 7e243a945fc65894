"""Batch normalisation, with the activation and the residual sum around it in the same pass."""

from types import ModuleType
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import batch_norm_columns as columns
from pareo.backends.compiled.kernels import batch_norm_loops, batch_norm_planes
from pareo.backends.compiled.kernels import elementwise_codes as codes
from pareo.backends.compiled.kernels.activations import CLIP, HARD_SWISH, NONE, RELU, SILU
from pareo.backends.compiled.runtime.arrays import fill
from pareo.backends.compiled.runtime.thread_pool import split

kernel = backend.kernel
CODES = {NONE: codes.NONE, RELU: codes.RELU, CLIP: codes.CLIP, SILU: codes.SILU,
         HARD_SWISH: codes.HARD_SWISH}  # fmt: skip


def _planes(a: Array) -> Array:
    """(N, C, ...) as (N, C, pixels)."""
    images, channels = a.shape[:2]
    return a.reshape(images, channels, a.size // max(1, images * channels))


def _nothing(a: Array) -> Array:
    """An array without images, where a loop has nothing to read."""
    return np.empty((0, 1, 1), a.dtype)


def _limits(x: Array, how: dict[str, float]) -> tuple[float, float]:
    kind = x.dtype.type
    return kind(how.get("low", 0)), kind(how.get("high", 0))


def _loops(x: Array, activation: int) -> ModuleType:
    """The loops over images of these numbers, with this activation."""
    is_plain = x.dtype == np.float32 and activation in batch_norm_planes.ACTIVATIONS
    return batch_norm_planes if is_plain else batch_norm_loops


def _least(x: Array) -> int:
    """The channels that are worth a thread."""
    return max(1, GRAIN * x.shape[1] // max(1, 4 * x.size))


def _forward(
    out: tuple[Array, Array, Array],
    x: Array,
    scale: Array,
    shift: Array,
    rest: Array | None,
    activation: int,
    *,
    epsilon: float,
    **how: float,
) -> None:
    y, means, variances = out
    if x.ndim == 2 and rest is None:
        given = x, scale, shift, epsilon, CODES[activation], np.array(_limits(x, how))
        split(
            lambda lo, hi: columns.forward(y, means, variances, *given, lo, hi),
            x.shape[1],
            _least(x),
        )
        return
    target, images = _planes(y), _planes(x)
    added = _nothing(x) if rest is None else _planes(rest)
    numbers, loops = (epsilon, activation, *_limits(x, how)), _loops(x, activation)
    split(
        lambda lo, hi: loops.forward(
            target, means, variances, images, scale, shift, added, *numbers, lo, hi
        ),
        x.shape[1],
        _least(x),
    )


def _inference(
    out: Array, x: Array, vectors: tuple[Array, ...], rest: Array | None, activation: int,
    *, epsilon: float, **how: float,
) -> None:  # fmt: skip
    if not x.size:
        return
    target, images = _planes(out), _planes(x)
    added = _nothing(x) if rest is None else _planes(rest)
    numbers, loops = (epsilon, activation, *_limits(x, how)), _loops(x, activation)
    split(
        lambda lo, hi: loops.forward_inference(target, images, *vectors, added, *numbers, lo, hi),
        x.shape[1],
        _least(x),
    )


def _backward(
    out: tuple[Array, Array, Array],
    d: Array,
    g: Array,
    more: Array | None,
    y: Array | None,
    x: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    variance: Array,
    activation: int,
    *,
    epsilon: float,
    **how: float,
) -> None:
    gx, by_scale, by_shift = out
    if not x.size:
        fill(by_scale, 0)
        fill(by_shift, 0)
        return
    if x.ndim == 2 and more is None and y is None:
        matrices = g, x, scale, shift, mean, variance, epsilon
        code = CODES[activation], np.array(_limits(x, how))
        split(
            lambda lo, hi: columns.backward(gx, by_scale, by_shift, *matrices, *code, lo, hi),
            x.shape[1],
            _least(x) // 2 or 1,
        )
        return
    arrays = _planes(gx), _planes(d), by_scale, by_shift, _planes(g)
    others = (_nothing(x) if a is None else _planes(a) for a in (more, y))
    given = (*arrays, *others, _planes(x), scale, shift, mean, variance)
    numbers, loops = (epsilon, activation, *_limits(x, how)), _loops(x, activation)
    split(lambda lo, hi: loops.backward(*given, *numbers, lo, hi), x.shape[1], _least(x) // 2 or 1)


@kernel(strided=False, replayable=True)
def batch_norm(
    out: tuple[Array, Array, Array], x: Array, scale: Array, shift: Array, epsilon: float
) -> None:
    _forward(out, x, scale, shift, None, NONE, epsilon=epsilon)


@kernel(in_place=(0, -1, -1), strided=False, replayable=True)
def batch_norm_gradient(
    out: tuple[Array, Array, Array], g: Array, x: Array, scale: Array, mean: Array,
    variance: Array, epsilon: float,
) -> None:  # fmt: skip
    _backward(out, g, g, None, None, x, scale, scale, mean, variance, NONE, epsilon=epsilon)


@kernel(strided=False, replayable=True)
def batch_norm_inference(
    out: Array, x: Array, scale: Array, shift: Array, mean: Array, variance: Array, epsilon: float
) -> None:
    _inference(out, x, (scale, shift, mean, variance), None, NONE, epsilon=epsilon)


# Residual blocks: the sum, and perhaps relu, after the normalisation. The gradient of relu goes on
# to the other branch, so that it is a result too.

_NORM = "y, m, v = batch_norm(x, s, b)"
_INFERENCE = "y = batch_norm_inference(x, s, b, m, v)"
_NORM_GRADIENT = "gx, gs, gb = batch_norm_gradient(d, x, s, m, v)"


def _register_residual(order: str, relu: bool) -> None:
    last = f"t = add({order})\nz = relu(t)" if relu else f"z = add({order})"
    name = "batch_norm_add_relu" if relu else "batch_norm_add"
    activation = RELU if relu else NONE

    def forward(
        out: tuple[Array, Array, Array], x: Array, s: Array, b: Array, r: Array, **how: Any
    ) -> None:
        _forward(out, x, s, b, r, activation, **how)

    def inference(
        out: Array, x: Array, s: Array, b: Array, m: Array, v: Array, r: Array, **how: Any
    ) -> None:
        _inference(out, x, (s, b, m, v), r, activation, **how)

    forward.__name__ = name
    inference.__name__ = f"batch_norm_inference{name.removeprefix('batch_norm')}"
    backend.fusion(f"{_NORM}\n{last}", "z m v", replayable=True)(forward)
    backend.fusion(f"{_INFERENCE}\n{last}", "z", replayable=True)(inference)


for _relu in (True, False):
    for _order in ("y, r", "r, y"):
        _register_residual(_order, _relu)


@backend.fusion(
    f"g = add(g1, g2)\nd = relu_gradient(g, y)\n{_NORM_GRADIENT}",
    "d gx gs gb",
    in_place=(0, -1, -1, -1),
    replayable=True,
)
def add_relu_batch_norm_gradient(
    out: tuple[Array, ...], g1: Array, g2: Array, y: Array, x: Array, s: Array, m: Array, v: Array,
    **how: Any,
) -> None:  # fmt: skip
    d, *rest = out
    _backward((rest[0], rest[1], rest[2]), d, g1, g2, y, x, s, s, m, v, RELU, **how)


# Activations that are computed again from x (see `recompute`).


def _register_activation(name: str, activation: int) -> None:
    def forward(out: tuple[Array, Array, Array], x: Array, s: Array, b: Array, **how: Any) -> None:
        _forward(out, x, s, b, None, activation, **how)

    def inference(out: Array, x: Array, s: Array, b: Array, m: Array, v: Array, **how: Any) -> None:
        _inference(out, x, (s, b, m, v), None, activation, **how)

    def backward(
        out: tuple[Array, Array, Array], g: Array, x: Array, s: Array, b: Array, m: Array, v: Array,
        **how: Any,
    ) -> None:  # fmt: skip
        _backward(out, out[0], g, None, None, x, s, b, m, v, activation, **how)

    forward.__name__ = f"batch_norm_{name}"
    inference.__name__ = f"batch_norm_inference_{name}"
    backward.__name__ = f"batch_norm_{name}_gradient"
    again = f"{_INFERENCE}\nd = {name}_gradient(g, y)\n{_NORM_GRADIENT}"
    backend.fusion(f"{_NORM}\nz = {name}(y)", "z m v", replayable=True)(forward)
    backend.fusion(again, "gx gs gb", in_place=(0, -1, -1), replayable=True)(backward)
    backend.fusion(f"{_INFERENCE}\nz = {name}(y)", "z", replayable=True)(inference)


for _name, _activation in (
    ("relu", RELU),
    ("clip", CLIP),
    ("silu", SILU),
    ("hard_swish", HARD_SWISH),
):
    _register_activation(_name, _activation)


@backend.fusion(
    f"d = relu_gradient(g, y)\n{_NORM_GRADIENT}",
    "d gx gs gb",
    in_place=(0, -1, -1, -1),
    replayable=True,
)
def relu_batch_norm_gradient(
    out: tuple[Array, ...], g: Array, y: Array, x: Array, s: Array, m: Array, v: Array, **how: Any
) -> None:
    """The gradient of relu(batch_norm(x) + rest), where rest needs the gradient of relu too."""
    d, *rest = out
    _backward((rest[0], rest[1], rest[2]), d, g, None, y, x, s, s, m, v, RELU, **how)
