"""Operators that shrink images (N, C, H, W) window by window."""

from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Flag, Padding, Pair, StrideOrSize
from pareo.operators.convolution import output_sizes
from pareo.operators.core import Array, Number, operator
from pareo.operators.footprint import places_and_pixels
from pareo.spec import Spec


def pooled_sizes(
    name: str, image: tuple[int, ...], size: Any, stride: Any, padding: Any, ceil: bool
) -> tuple[int, int]:
    """Height and width after pooling; with `ceil`, the last window may extend past the edge."""
    if any(padding[side] >= size[side % 2] for side in range(4)):
        raise ShapeError(f"{name} expects padding smaller than its window {size}; got {padding}")
    if not ceil:
        return output_sizes(name, image, size, stride, padding, (1, 1))
    if min(image) < 1:
        raise ShapeError(f"{name} expects images of at least one pixel; got {tuple(image)}")
    sizes = []
    for axis in (0, 1):
        room = image[axis] + padding[axis] + padding[axis + 2] - size[axis]
        number = max(0, -(-room // stride[axis])) + 1
        if (number - 1) * stride[axis] >= image[axis] + padding[axis]:
            number -= 1  # a window that starts past the image is empty
        sizes.append(number)
    return sizes[0], sizes[1]


def _pooled(name: str, x: Spec, size: Any, stride: Any, padding: Any, ceil: bool) -> Spec:
    if x.ndim != 4:
        raise ShapeError(f"{name} expects x of shape (N, C, H, W); got {x.shape}")
    return x.like((*x.shape[:2], *pooled_sizes(name, x.shape[2:], size, stride, padding, ceil)))


@operator
def max_pool(
    x: Array, size: Pair, stride: StrideOrSize = None, padding: Padding = (0, 0), ceil: Flag = False
) -> Spec:
    """The largest element of each window; NaN where there is a NaN.

    The gradient goes to the first largest element of a window.

    >>> op.max_pool(np.arange(4.0).reshape(1, 1, 2, 2), 2)
    array([[[[3.]]]])
    """
    return _pooled("max_pool", x, size, stride, padding, ceil)


def _covered(image: Spec, pooled: Spec, size: Any, stride: Any, padding: Any, **_: Any) -> Any:
    return places_and_pixels(image, pooled, size, stride, padding)


@max_pool.flops
def _(out: Spec, x: Spec, **how: Any) -> int:
    places, _ = _covered(x, out, **how)
    return places


@max_pool.reads
def _(out: Spec, x: Spec, **how: Any) -> list[int]:
    _, pixels = _covered(x, out, **how)
    return [pixels]


@max_pool.gradient
def _(g: Any, out: Any, x: Any, **how: Any) -> Any:
    return op.max_pool_gradient(g, x, **how)


@operator
def max_pool_gradient(
    g: Array,
    x: Array,
    size: Pair,
    stride: StrideOrSize = None,
    padding: Padding = (0, 0),
    ceil: Flag = False,
) -> Spec:
    """Gradient of `max_pool`: each g goes to the first largest element of its window.

    >>> op.max_pool_gradient(np.ones((1, 1, 1, 1)), np.arange(4.0).reshape(1, 1, 2, 2), 2)
    array([[[[0., 0.],
             [0., 1.]]]])
    """
    expected = _pooled("max_pool_gradient", x, size, stride, padding, ceil)
    if g.shape != expected.shape:
        raise ShapeError(f"max_pool_gradient expects g of shape {expected.shape}; got {g.shape}")
    return x


@max_pool_gradient.flops
def _(out: Spec, g: Spec, x: Spec, **how: Any) -> int:
    places, _ = _covered(x, g, **how)
    return places + g.size


@max_pool_gradient.reads
def _(out: Spec, g: Spec, x: Spec, **how: Any) -> list[int]:
    _, pixels = _covered(x, g, **how)
    return [g.size, pixels]


@operator
def average_pool(
    x: Array, size: Pair, stride: StrideOrSize = None, padding: Padding = (0, 0), ceil: Flag = False
) -> Spec:
    """The mean of each window's elements, padding not counted.

    >>> op.average_pool(np.arange(4.0).reshape(1, 1, 2, 2), 2)
    array([[[[1.5]]]])
    """
    return _pooled("average_pool", x, size, stride, padding, ceil)


@average_pool.flops
def _(out: Spec, x: Spec, **how: Any) -> int:
    places, _ = _covered(x, out, **how)
    return places + out.size


@average_pool.reads
def _(out: Spec, x: Spec, **how: Any) -> list[int]:
    _, pixels = _covered(x, out, **how)
    return [pixels]


@average_pool.gradient
def _(g: Any, out: Any, x: Any, **how: Any) -> Any:
    return op.average_pool_gradient(g, x.shape[2:], **how)


@operator
def average_pool_gradient(
    g: Array,
    image: Pair,
    size: Pair,
    stride: StrideOrSize = None,
    padding: Padding = (0, 0),
    ceil: Flag = False,
) -> Spec:
    """Gradient of `average_pool`, for images of `image` = (H, W).

    >>> op.average_pool_gradient(np.ones((1, 1, 1, 1)), (2, 2), 2)
    array([[[[0.25, 0.25],
             [0.25, 0.25]]]])
    """
    if g.ndim != 4:
        raise ShapeError(f"average_pool_gradient expects g of shape (N, C, H, W); got {g.shape}")
    out = g.like((*g.shape[:2], *image))
    expected = _pooled("average_pool_gradient", out, size, stride, padding, ceil)
    if g.shape != expected.shape:
        raise ShapeError(
            f"average_pool_gradient expects g of shape {expected.shape}; got {g.shape}"
        )
    return out


@average_pool_gradient.flops
def _(out: Spec, g: Spec, image: Any, **how: Any) -> int:
    places, _ = _covered(out, g, **how)
    return places + g.size


@average_pool_gradient.gradient
def _(u: Any, out: Any, g: Any, image: Any, **how: Any) -> Any:
    return op.average_pool(u, **how)


@operator
def subsample(x: Array, w: Array, b: Number, stride: Pair) -> Spec:
    """The first paper's trainable pooling: one filter w (kh, kw) and one number b for all channels.

    >>> op.subsample(np.ones((1, 2, 2, 2)), np.ones((2, 2)), 0.5, stride=2).ravel()
    array([4.5, 4.5])
    """
    if x.ndim != 4:
        raise ShapeError(f"subsample expects x of shape (N, C, H, W); got {x.shape}")
    if w.ndim != 2:
        raise ShapeError(f"subsample expects w of shape (kh, kw); got {w.shape}")
    if b.shape not in ((), (1,)):
        raise ShapeError(f"subsample expects b to be one number; got an array of {b.shape}")
    sizes = output_sizes("subsample", x.shape[2:], w.shape, stride, (0, 0, 0, 0), (1, 1))
    return x.like((*x.shape[:2], *sizes))


@subsample.flops
def _(out: Spec, x: Spec, w: Spec, b: Spec, stride: Any) -> int:
    return out.size * 2 * w.size


@subsample.reads
def _(out: Spec, x: Spec, w: Spec, b: Spec, stride: Any) -> list[int]:
    _, pixels = places_and_pixels(x, out, w.shape, stride)
    return [pixels, w.size, b.size]


@subsample.gradient
def _(g: Any, out: Any, x: Any, w: Any, b: Any, stride: Any) -> Any:
    """Computed as a convolution in which every channel is an image of its own."""
    planes = op.reshape(x, (-1, 1, *x.shape[2:]))
    errors = op.reshape(g, (-1, 1, *g.shape[2:]))
    shared = op.reshape(w, (1, 1, *w.shape))
    to_planes = op.conv_input_gradient(errors, shared, size=x.shape[2:], stride=stride)
    to_shared = op.conv_weight_gradient(planes, errors, size=w.shape, stride=stride)
    return op.reshape(to_planes, x.shape), op.reshape(to_shared, w.shape), _number(g, b)


def _number(g: Any, b: Any) -> Any:
    return op.reshape(op.sum(g), b.shape)
