"""Local response normalisation and dropout."""

from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Count, Real, Share
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
