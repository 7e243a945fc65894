"""Random changes to images, one image after the other."""

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.operators.augmentation import COLUMN, DOWN, FLIP, RIGHT, ROW, draws


@jit
def _augment(out: Array, x: Array, drawn: Array, flip: bool, cutout: int) -> None:
    height, width = x.shape[2:]
    for n in range(x.shape[0]):
        mirrored = flip and drawn[n, FLIP] == 1
        top, left = drawn[n, ROW] - cutout // 2, drawn[n, COLUMN] - cutout // 2
        for c in range(x.shape[1]):
            for i in range(height):
                row = i + drawn[n, DOWN]
                cut = top <= i < top + cutout
                for j in range(width):
                    column = j + drawn[n, RIGHT]
                    inside = 0 <= row < height and 0 <= column < width
                    if not inside or (cut and left <= j < left + cutout):
                        out[n, c, i, j] = 0
                    else:
                        out[n, c, i, j] = x[n, c, row, width - 1 - column if mirrored else column]


@backend.kernel(strided=False)
def augment(out: Array, x: Array, seed: Array, flip: bool, crop: int, cutout: int) -> None:
    height, width = x.shape[2:]
    drawn = draws(len(x), int(seed), height, width, crop)
    least = max(1, GRAIN * len(x) // max(1, x.size))
    split(lambda lo, hi: _augment(out[lo:hi], x[lo:hi], drawn[lo:hi], flip, cutout), len(x), least)
