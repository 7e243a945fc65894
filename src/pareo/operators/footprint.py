"""How many pixels the windows of convolution and pooling meet: what their costs are counted by.

Windows may leave pixels out (a stride wider than the window, a rest at the edge) and may reach into
the padding. What is never met need not be read, and padding costs a pooling nothing.
"""

from collections.abc import Sequence
from functools import cache

from pareo.spec import Spec


@cache
def _met(
    outputs: int, window: int, stride: int, padding: int, dilation: int, length: int
) -> tuple[int, int]:
    """Along one axis: places of windows inside the image, and how many different pixels."""
    places = [
        place
        for output in range(outputs)
        for tap in range(window)
        if 0 <= (place := output * stride + tap * dilation - padding) < length
    ]
    return len(places), len(set(places))


def places_and_pixels(
    image: Spec,
    outputs: Spec,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
) -> tuple[int, int]:
    """Places of all windows inside images (N, C, H, W), and how many different pixels they are.

    Windows of 2 x 2 at stride 1 on 3 x 3 pixels are four, with four places each; at stride 3 it is
    one of them, and five pixels are never met.

    >>> image = Spec((1, 1, 3, 3))
    >>> places_and_pixels(image, Spec((1, 1, 2, 2)), window=(2, 2), stride=(1, 1))
    (16, 9)
    >>> places_and_pixels(image, Spec((1, 1, 1, 1)), window=(2, 2), stride=(3, 3))
    (4, 4)
    """
    places = pixels = image.shape[0] * image.shape[1]
    for axis in (0, 1):
        found = _met(
            outputs.shape[axis + 2], window[axis], stride[axis], padding[axis], dilation[axis],
            image.shape[axis + 2],
        )  # fmt: skip
        places, pixels = places * found[0], pixels * found[1]
    return places, pixels
