"""How many pixels the windows of convolution and pooling cover, for counting their costs.

Windows may skip pixels (a stride wider than the window, a remainder at the edge) and may extend
into the padding. Pixels that no window covers are not read, and padding costs a pooling nothing.
"""

from collections.abc import Sequence
from functools import cache

from pareo.spec import Spec


@cache
def _covered(
    outputs: int, window: int, stride: int, padding: int, dilation: int, length: int
) -> tuple[int, int]:
    """Along one axis: window positions inside the image, and how many different pixels."""
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
    """Positions of all windows inside images (N, C, H, W), and how many different pixels these are.

    There are four windows of 2 x 2 at stride 1 on 3 x 3 pixels, of four positions each; at stride 3
    there is one window, and five pixels are not covered.

    >>> image = Spec((1, 1, 3, 3))
    >>> places_and_pixels(image, Spec((1, 1, 2, 2)), window=(2, 2), stride=(1, 1))
    (16, 9)
    >>> places_and_pixels(image, Spec((1, 1, 1, 1)), window=(2, 2), stride=(3, 3))
    (4, 4)
    """
    places = pixels = image.shape[0] * image.shape[1]
    for axis in (0, 1):
        found = _covered(
            outputs.shape[axis + 2], window[axis], stride[axis], padding[axis], dilation[axis],
            image.shape[axis + 2],
        )  # fmt: skip
        places, pixels = places * found[0], pixels * found[1]
    return places, pixels
