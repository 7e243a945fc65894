"""Convolution of images (N, C, H, W), and the two operators that its gradient needs.

The gradients of each of the three are the other two, so derivatives of any order need no more
operators.
"""

from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Count, Padding, Pair
from pareo.operators.core import Array, operator
from pareo.operators.footprint import places_and_pixels
from pareo.spec import Spec


def window_span(size: int, dilation: int) -> int:
    """How many elements a window covers from its first to its last."""
    return dilation * (size - 1) + 1


def output_sizes(
    name: str,
    image: tuple[int, ...],
    window: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
) -> tuple[int, int]:
    """Height and width of a convolution's output."""
    if min(image) < 1:
        raise ShapeError(f"{name} expects images of at least one pixel; got {tuple(image)}")
    sizes = []
    for axis in (0, 1):
        padded = image[axis] + padding[axis] + padding[axis + 2]
        room = padded - window_span(window[axis], dilation[axis])
        if room < 0 or window[axis] < 1:
            raise ShapeError(
                f"{name} expects a window of at least 1 that fits into the padded image; "
                f"got a window of {tuple(window)} with dilation {dilation} on an image of "
                f"{tuple(image)} with padding {padding}"
            )
        sizes.append(room // stride[axis] + 1)
    return sizes[0], sizes[1]


def _four(name: str, **arrays: Spec) -> None:
    axes = {"w": "(K, C / groups, kh, kw)", "g": "(N, K, H, W)", "x": "(N, C, H, W)"}
    for label, spec in arrays.items():
        if spec.ndim != 4:
            raise ShapeError(f"{name} expects {label} of shape {axes[label]}; got {spec.shape}")


def _channels(name: str, channels: int, filters: tuple[int, ...], groups: int) -> None:
    if filters[1] * groups != channels or filters[0] % groups:
        raise ShapeError(
            f"{name} expects filters (K, C / groups, kh, kw) with C = {channels}, groups = {groups}"
            f" and K a multiple of groups; got {filters}"
        )


@operator
def conv(
    x: Array,
    w: Array,
    stride: Pair = (1, 1),
    padding: Padding = (0, 0),
    dilation: Pair = (1, 1),
    groups: Count = 1,
) -> Spec:
    """Cross-correlation of images with filters, called convolution in neural networks.

    x is (N, C, H, W), w is (K, C / groups, kh, kw); `padding` is (vertical, horizontal) or
    (top, left, bottom, right).

    >>> op.conv(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)))
    array([[[[4., 4.],
             [4., 4.]]]])
    """
    _four("conv", x=x, w=w)
    _channels("conv", x.shape[1], w.shape, groups)
    sizes = output_sizes("conv", x.shape[2:], w.shape[2:], stride, padding, dilation)
    return x.like((x.shape[0], w.shape[0], *sizes))


@conv.flops
def _(out: Spec, x: Spec, w: Spec, **_: Any) -> int:
    return 2 * out.size * w.shape[1] * w.shape[2] * w.shape[3]


@conv.reads
def _(out: Spec, x: Spec, w: Spec, groups: int, **how: Any) -> list[int]:
    return [places_and_pixels(x, out, w.shape[2:], **how)[1], w.size]


@conv.gradient
def _(g: Any, out: Any, x: Any, w: Any, **how: Any) -> Any:
    return (
        op.conv_input_gradient(g, w, size=x.shape[2:], **how),
        op.conv_weight_gradient(x, g, size=w.shape[2:], **how),
    )


@operator
def conv_input_gradient(
    g: Array,
    w: Array,
    size: Pair,
    stride: Pair = (1, 1),
    padding: Padding = (0, 0),
    dilation: Pair = (1, 1),
    groups: Count = 1,
) -> Spec:
    """Gradient of `conv` with respect to its images, of `size` = (H, W).

    >>> op.conv_input_gradient(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)), size=(3, 3))
    array([[[[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]]]])
    """
    _four("conv_input_gradient", g=g, w=w)
    channels = w.shape[1] * groups
    _channels("conv_input_gradient", channels, w.shape, groups)
    sizes = output_sizes("conv_input_gradient", size, w.shape[2:], stride, padding, dilation)
    expected = (g.shape[0], w.shape[0], *sizes)
    if g.shape != expected:
        raise ShapeError(f"conv_input_gradient expects g of shape {expected}; got {g.shape}")
    return g.like((g.shape[0], channels, *size))


@conv_input_gradient.flops
def _(out: Spec, g: Spec, w: Spec, **_: Any) -> int:
    return 2 * g.size * w.shape[1] * w.shape[2] * w.shape[3]


@conv_input_gradient.gradient
def _(u: Any, out: Any, g: Any, w: Any, size: Any, **how: Any) -> Any:
    return op.conv(u, w, **how), op.conv_weight_gradient(u, g, size=w.shape[2:], **how)


@operator
def conv_weight_gradient(
    x: Array,
    g: Array,
    size: Pair,
    stride: Pair = (1, 1),
    padding: Padding = (0, 0),
    dilation: Pair = (1, 1),
    groups: Count = 1,
) -> Spec:
    """Gradient of `conv` with respect to its filters, of `size` = (kh, kw).

    >>> op.conv_weight_gradient(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), size=(2, 2))
    array([[[[4., 4.],
             [4., 4.]]]])
    """
    _four("conv_weight_gradient", x=x, g=g)
    if x.shape[1] % groups or g.shape[1] % groups:
        raise ShapeError(
            f"conv_weight_gradient expects channels that {groups} groups divide; "
            f"got {x.shape[1]} and {g.shape[1]}"
        )
    sizes = output_sizes("conv_weight_gradient", x.shape[2:], size, stride, padding, dilation)
    expected = (x.shape[0], g.shape[1], *sizes)
    if g.shape != expected:
        raise ShapeError(f"conv_weight_gradient expects g of shape {expected}; got {g.shape}")
    return x.like((g.shape[1], x.shape[1] // groups, *size))


@conv_weight_gradient.flops
def _(out: Spec, x: Spec, g: Spec, **_: Any) -> int:
    return 2 * g.size * out.shape[1] * out.shape[2] * out.shape[3]


@conv_weight_gradient.reads
def _(out: Spec, x: Spec, g: Spec, size: Any, groups: int, **how: Any) -> list[int]:
    return [places_and_pixels(x, g, size, **how)[1], g.size]


@conv_weight_gradient.gradient
def _(u: Any, out: Any, x: Any, g: Any, size: Any, **how: Any) -> Any:
    return op.conv_input_gradient(g, u, size=x.shape[2:], **how), op.conv(x, u, **how)
