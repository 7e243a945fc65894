"""Random changes to training images."""

from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import backend
from pareo.operators.augmentation import draws


@backend.kernel()
def augment(out: Any, x: Any, seed: Any, *, flip: bool, crop: int, cutout: int) -> None:
    images, channels, height, width = x.shape
    if x.size == 0:
        return
    drawn = draws(images, int(seed[()]), height, width, crop)
    for n, c, i, j in np.ndindex(images, channels, height, width):
        mirrored, down, right, row, column = (int(number) for number in drawn[n])
        source = i + down, j + right
        value = 0.0
        if 0 <= source[0] < height and 0 <= source[1] < width:
            place = width - 1 - source[1] if flip and mirrored else source[1]
            value = x[n, c, source[0], place]
        top, left = row - cutout // 2, column - cutout // 2
        cut = top <= i < top + cutout and left <= j < left + cutout
        out[n, c, i, j] = 0.0 if cut else value
