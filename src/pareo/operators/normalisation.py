"""Batch, layer and local response normalisation, and dropout."""

import math
from collections.abc import Mapping
from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Axis, Count, Real, Share
from pareo.operators.core import Array, Seed, operator
from pareo.spec import Spec


@operator
def lrn(x: Array, size: Count, alpha: Real = 1e-4, beta: Real = 0.75, k: Real = 1.0) -> Spec:
    """Local response normalisation: x / (k + alpha / size * s) ** beta.

    s is the sum of squares over `size` neighbouring channels, size // 2 of them before.

    >>> op.lrn(np.ones((1, 1, 1, 1)), 1, alpha=3.0, beta=0.5)
    array([[[[0.5]]]])
    """
    if x.ndim != 4:
        raise ShapeError(f"lrn expects x of shape (N, C, H, W); got {x.shape}")
    return x


def _squares(x: Spec, size: int) -> int:
    """How many terms all sums of squares have: those of existing channels only."""
    before = size // 2
    channels = x.shape[1]
    each = [min(c - before + size, channels) - max(c - before, 0) for c in range(channels)]
    return sum(each) * x.shape[0] * x.shape[2] * x.shape[3]


@lrn.flops
def _(out: Spec, x: Spec, size: int, **_: Any) -> int:
    return 2 * _squares(x, size) + 4 * out.size


@lrn.gradient
def _(g: Any, out: Any, x: Any, **how: Any) -> Any:
    return op.lrn_gradient(g, x, **how)


@operator
def lrn_gradient(
    g: Array, x: Array, size: Count, alpha: Real = 1e-4, beta: Real = 0.75, k: Real = 1.0
) -> Spec:
    """Gradient of `lrn`.

    >>> one = np.ones((1, 1, 1, 1))
    >>> op.lrn_gradient(one, one, 1, alpha=3.0, beta=0.5)
    array([[[[0.125]]]])
    """
    if x.ndim != 4:
        raise ShapeError(f"lrn_gradient expects x of shape (N, C, H, W); got {x.shape}")
    if g.shape != x.shape:
        raise ShapeError(f"lrn_gradient expects g of shape {x.shape}; got {g.shape}")
    return x


@lrn_gradient.flops
def _(out: Spec, g: Spec, x: Spec, size: int, **_: Any) -> int:
    return 3 * _squares(x, size) + 9 * out.size


def _per_channel(name: str, x: Spec, **vectors: Spec) -> None:
    """Check that each vector has one element for each channel of x, its axis 1."""
    if x.ndim < 2:
        raise ShapeError(f"{name} expects x of shape (N, C, ...); got {x.shape}")
    _fitting(name, x, 1, vectors)


def _fitting(name: str, x: Spec, axis: int, vectors: Mapping[str, Spec]) -> None:
    for what, vector in vectors.items():
        if vector.shape != (x.shape[axis],):
            raise ShapeError(
                f"{name} expects {what} of shape ({x.shape[axis]},) for x of shape {x.shape}; "
                f"got {vector.shape}"
            )


def _above_zero(name: str, epsilon: float) -> None:
    if epsilon <= 0:
        raise ShapeError(f"{name} expects epsilon to be above 0; got {epsilon:g}")


def _count(x: Any) -> int:
    """How many elements of x each channel has."""
    return math.prod(x.shape) // x.shape[1]


def _along(vector: Any, x: Any, axis: int = 1) -> Any:
    """A vector along one axis of x, in a shape that broadcasts."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return op.reshape(vector, shape)


@operator
def batch_norm(
    x: Array, scale: Array, shift: Array, epsilon: Real = 1e-5
) -> tuple[Spec, Spec, Spec]:
    """Each channel of x, brought to mean 0 and variance 1, times scale, plus shift.

    Returns this, and the mean and the variance of each channel over the batch and all pixels: the
    mean of (x - mean) squared, which stays accurate where the mean is large.

    >>> y, mean, variance = op.batch_norm(np.array([[1.0], [3.0]]), np.ones(1), np.zeros(1))
    >>> mean, variance
    (array([2.]), array([1.]))
    """
    _per_channel("batch_norm", x, scale=scale, shift=shift)
    if _count(x) == 0:
        raise ShapeError(f"batch_norm expects at least one element a channel; got {x.shape}")
    _above_zero("batch_norm", epsilon)
    return x, scale, scale


@batch_norm.flops
def _(out: Any, x: Spec, *_: Spec, epsilon: float) -> int:
    return 6 * x.size + 6 * x.shape[1]


@batch_norm.gradient
def _(g: Any, out: Any, x: Any, scale: Any, shift: Any, epsilon: float) -> Any:
    _, mean, variance = out
    parts: list[Any] = [None, None, None]
    if g[0] is not None:
        parts = list(op.batch_norm_gradient(g[0], x, scale, mean, variance, epsilon))
    count = _count(x)
    if g[1] is not None:
        even = op.broadcast(_along(op.scale(1 / count, g[1]), x), x.shape)
        parts[0] = even if parts[0] is None else op.add(parts[0], even)
    if g[2] is not None:
        slope = _along(op.scale(2 / count, g[2]), x)
        spread = op.hadamard(op.sub(x, _along(mean, x)), slope)
        parts[0] = spread if parts[0] is None else op.add(parts[0], spread)
    return parts


@operator
def batch_norm_gradient(
    g: Array, x: Array, scale: Array, mean: Array, variance: Array, epsilon: Real = 1e-5
) -> tuple[Spec, Spec, Spec]:
    """Gradient of `batch_norm`: that of x, of scale and of shift.

    >>> g, x, one = np.array([[1.0], [1.0]]), np.array([[1.0], [3.0]]), np.ones(1)
    >>> op.batch_norm_gradient(g, x, one, 2 * one, one)[2]
    array([2.])
    """
    _per_channel("batch_norm_gradient", x, scale=scale, mean=mean, variance=variance)
    if g.shape != x.shape:
        raise ShapeError(f"batch_norm_gradient expects g of shape {x.shape}; got {g.shape}")
    _above_zero("batch_norm_gradient", epsilon)
    return x, scale, scale


@batch_norm_gradient.flops
def _(out: Any, g: Spec, x: Spec, *_: Spec, epsilon: float) -> int:
    return 8 * x.size + (9 * x.shape[1] if x.size else 0)


@batch_norm_gradient.reads
def _(out: Any, g: Spec, x: Spec, *vectors: Spec, epsilon: float) -> list[int]:
    return [g.size, x.size, *(vector.size if x.size else 0 for vector in vectors)]


@operator
def batch_norm_inference(
    x: Array, scale: Array, shift: Array, mean: Array, variance: Array, epsilon: Real = 1e-5
) -> Spec:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, each for its channel.

    >>> one = np.ones(1)
    >>> op.batch_norm_inference(np.array([[3.0]]), one, one, one, 3 * one, epsilon=1.0)
    array([[2.]])
    """
    _per_channel("batch_norm_inference", x, scale=scale, shift=shift, mean=mean, variance=variance)
    _above_zero("batch_norm_inference", epsilon)
    return x


@batch_norm_inference.flops
def _(out: Spec, x: Spec, *_: Spec, epsilon: float) -> int:
    return 3 * x.size + (3 * x.shape[1] if x.size else 0)


@batch_norm_inference.gradient
def _(
    g: Any, out: Any, x: Any, scale: Any, shift: Any, mean: Any, variance: Any, epsilon: float
) -> Any:
    inverse = op.exp(op.scale(-0.5, op.log(op.add(variance, epsilon))))
    factor = op.hadamard(scale, inverse)
    axes = (0, *range(2, x.ndim))
    total = op.sum(g, axis=axes)
    centred = op.sub(x, _along(mean, x))
    inner = op.hadamard(op.sum(op.hadamard(g, centred), axis=axes), inverse)
    return (
        op.hadamard(g, _along(factor, x)),
        inner,
        total,
        op.scale(-1, op.hadamard(total, factor)),
        op.scale(-0.5, op.hadamard(op.hadamard(inner, scale), op.hadamard(inverse, inverse))),
    )


@operator
def layer_norm(x: Array, scale: Array, shift: Array, axis: Axis = -1, epsilon: Real = 1e-5) -> Spec:
    """x, brought to mean 0 and variance 1 along one axis, times scale, plus shift.

    >>> op.layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), epsilon=1e-30)
    array([[-1.,  1.]])
    """
    _fitting("layer_norm", x, axis, {"scale": scale, "shift": shift})
    if x.shape[axis] == 0:
        raise ShapeError(f"layer_norm expects an axis that is not empty; got {x.shape}")
    _above_zero("layer_norm", epsilon)
    return x


@layer_norm.flops
def _(out: Spec, x: Spec, scale: Spec, shift: Spec, axis: int, epsilon: float) -> int:
    return 7 * x.size + 5 * (x.size // x.shape[axis])


@layer_norm.gradient
def _(g: Any, out: Any, x: Any, scale: Any, shift: Any, axis: int, epsilon: float) -> Any:
    return op.layer_norm_gradient(g, x, scale, axis, epsilon)


@operator
def layer_norm_gradient(
    g: Array, x: Array, scale: Array, axis: Axis = -1, epsilon: Real = 1e-5
) -> tuple[Spec, Spec, Spec]:
    """Gradient of `layer_norm`: that of x, of scale and of shift.

    >>> op.layer_norm_gradient(np.ones((3, 2)), np.ones((3, 2)), np.ones(2))[2]
    array([3., 3.])
    """
    _fitting("layer_norm_gradient", x, axis, {"scale": scale})
    if g.shape != x.shape or x.shape[axis] == 0:
        raise ShapeError(
            f"layer_norm_gradient expects g of the shape of x, not empty; "
            f"got {g.shape} and {x.shape}"
        )
    _above_zero("layer_norm_gradient", epsilon)
    return x, scale, scale


@layer_norm_gradient.flops
def _(out: Any, g: Spec, x: Spec, scale: Spec, axis: int, epsilon: float) -> int:
    return 16 * x.size + 7 * (x.size // x.shape[axis])


@layer_norm_gradient.reads
def _(out: Any, g: Spec, x: Spec, scale: Spec, axis: int, epsilon: float) -> list[int]:
    return [g.size, x.size, scale.size if x.size else 0]


@operator
def dropout(x: Array, rate: Share, seed: Seed) -> Spec:
    """Set a share `rate` of the elements to zero, and scale the others by 1 / (1 - rate).

    The seed and the position of an element decide, in the same way on every device.

    >>> op.dropout(np.ones(8), 0.5, seed=1)
    array([2., 2., 2., 0., 0., 0., 2., 0.])
    """
    if seed.shape != ():
        raise ShapeError(f"dropout expects seed to be one whole number; got {seed.shape}")
    return x


@dropout.flops
def _(out: Spec, x: Spec, seed: Spec, rate: float) -> int:
    return out.size


@dropout.gradient
def _(g: Any, out: Any, x: Any, seed: Any, rate: float) -> Any:
    return op.dropout(g, rate, seed), None


# The hash of dropout (splitmix64): the position of an element, offset by the seed times GOLDEN, is
# mixed until every bit depends on every other; an element is kept if the upper 24 bits reach its
# threshold.
GOLDEN = 0x9E3779B97F4A7C15
FIRST_MIX = 0xBF58476D1CE4E5B9
SECOND_MIX = 0x94D049BB133111EB


def dropout_threshold(rate: float) -> int:
    """The smallest 24-bit hash that keeps an element."""
    return round(rate * (1 << 24))
