"""Random changes to training images."""

import math

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend


@backend.kernel(strided=False)
def augment(out: Array, x: Array, seed: Array, flip: bool, crop: int, cutout: int) -> None:
    change = launch.struct(x.shape[1:], flip, crop, cutout, of=np.int32)
    arguments = (out, x, seed.astype(np.int64, copy=False), change)
    planes, pixels = math.prod(x.shape[:2]), math.prod(x.shape[2:])
    launch.planes(planes, pixels, "augment", "augment", x.dtype.char, *arguments)
