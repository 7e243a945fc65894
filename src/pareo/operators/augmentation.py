"""Random changes to training images, decided by a seed alone and equal on every device."""

import numpy as np
from numpy.typing import NDArray

from pareo.errors import ShapeError
from pareo.operators.attributes import Flag, Size
from pareo.operators.core import Array, Seed, operator
from pareo.operators.normalisation import FIRST_MIX, GOLDEN, SECOND_MIX
from pareo.spec import Spec


@operator
def augment(x: Array, seed: Seed, flip: Flag = False, crop: Size = 0, cutout: Size = 0) -> Spec:
    """Images (N, C, H, W), each changed in its own way.

    flip:   half of the images are mirrored, left to right
    crop:   each is moved by up to so many pixels up or down, and left or right; zeros come in
    cutout: a square of so many pixels, centred anywhere in the image, is set to zero

    The seed and the position of an image in the batch decide. Cropping comes first (of the mirrored
    image), then cutout.

    >>> op.augment(np.arange(4.0).reshape(1, 1, 2, 2), seed=1, flip=True)
    array([[[[1., 0.],
             [3., 2.]]]])
    """
    if x.ndim != 4:
        raise ShapeError(f"augment expects x of shape (N, C, H, W); got {x.shape}")
    if seed.shape != ():
        raise ShapeError(f"augment expects seed to be one whole number; got {seed.shape}")
    return x


FLIP, DOWN, RIGHT, ROW, COLUMN = range(5)  # the columns of `draws`


def draws(count: int, seed: int, height: int, width: int, crop: int) -> NDArray[np.int64]:
    """What `augment` draws for each image: (count, 5).

    Whether to mirror it (0 or 1); how far down and how far right of a pixel its new value lies; the
    row and the column of the centre of the square.

    Column j of image n takes the 24 random bits that `dropout` draws for the element 8 n + j.

    >>> draws(2, seed=3, height=28, width=28, crop=4).shape
    (2, 5)
    """
    positions = np.arange(8 * count, dtype=np.uint64).reshape(count, 8)[:, :5]
    z = positions + np.uint64(seed * GOLDEN % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(FIRST_MIX)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND_MIX)
    drawn = ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.int64)
    choices = np.array([2, 2 * crop + 1, 2 * crop + 1, height, width])
    found = (drawn * choices) >> 24
    found[:, [DOWN, RIGHT]] -= crop
    return found
