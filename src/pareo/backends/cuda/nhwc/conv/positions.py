"""Positions in filter_gradient_strips.cu and few_channels.cu: pixels, and zeros between them."""

from pareo.backends.cuda.nhwc.conv.problem import Convolution


def position_grid(one: Convolution) -> tuple[int, int]:
    """Rows and columns of an image's positions: its pixels, and zeros that neighbours share."""
    _, _, height, width = one.images
    top, left, bottom, right = one.padding
    _, _, out_height, out_width = one.result
    return max(height + max(top, bottom), out_height), max(width + max(left, right), out_width)


def origin(one: Convolution) -> int:
    """The number of positions before the first pixel that the first result reads."""
    top, left = one.padding[:2]
    return top * position_grid(one)[1] + left
