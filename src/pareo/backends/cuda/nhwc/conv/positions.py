"""Positions that kernels on strips of pixels count by (strips.cu, narrow.cu)."""

from pareo.backends.cuda.nhwc.conv.cudnn import Convolution


def grid(one: Convolution) -> tuple[int, int]:
    """Rows and columns of an image's positions: its pixels, and zeros that two neighbours share."""
    _, _, height, width = one.images
    top, left, bottom, right = one.padding
    _, _, out_height, out_width = one.result
    return max(height + max(top, bottom), out_height), max(width + max(left, right), out_width)


def origin(one: Convolution) -> int:
    """Positions before the first pixel that the first result sees."""
    top, left = one.padding[:2]
    return top * grid(one)[1] + left
