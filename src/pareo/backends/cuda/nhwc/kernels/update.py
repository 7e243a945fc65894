"""The update of many parameters, or of many running averages, in one launch (update.cu)."""

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.runtime.launch import NULL, struct
from pareo.program.kernel import Fusion, Kernel

MOST, EACH, MOST_AVERAGES = 40, 1024, 80  # as in update.cu


def update_all(count: int, momentum: bool = True) -> Fusion:
    """The instruction that updates `count` parameters in place.

    Its operands are rate, momentum and decay, then for each parameter its value, gradient and
    velocity; its results are the new value and velocity of each. Without momentum there are no
    velocities, momentum or decay.
    """
    if momentum:
        over = tuple(place for i in range(count) for place in (3 + 3 * i, 5 + 3 * i))
        return Fusion("update_all", "", (), (), Kernel(_with_momentum, over, strided=False))
    over = tuple(1 + 2 * i for i in range(count))
    return Fusion("update_all", "", (), (), Kernel(_without, over, strided=False))


def _with_momentum(out: Array, *operands: Array, taps: tuple[int, ...]) -> None:
    arrays = operands[3:]
    pairs = zip(out[::2], out[1::2], strict=True)
    given = zip(arrays[::3], arrays[1::3], arrays[2::3], strict=True)
    _update_all(
        operands[:3], [(*pair, *three) for pair, three in zip(pairs, given, strict=True)], taps
    )


def _without(out: Array, rate: Array, *arrays: Array, taps: tuple[int, ...]) -> None:
    out = out if isinstance(out, tuple) else (out,)
    each = zip(out, arrays[::2], arrays[1::2], strict=True)
    rows = [(new, None, parameter, gradient, None) for new, parameter, gradient in each]
    _update_all((rate, NULL, NULL), rows, taps)


def _update_all(
    numbers: tuple[Array, ...], rows: list[tuple[Array, ...]], taps: tuple[int, ...]
) -> None:
    """Launch updates of rows (new parameter, new velocity, parameter, gradient, velocity)."""
    for first in range(0, len(rows), MOST):
        table: list[int] = []
        blocks = 0
        part = slice(first, first + MOST)
        for row, count in zip(rows[part], taps[part], strict=True):
            parameter, gradient = row[2:4]
            channels = parameter.shape[1] if count > 1 else 1
            narrow = gradient.dtype.itemsize == 2
            table += [0 if array is None else array.data.ptr for array in row]
            table += [parameter.size, channels, count, narrow, blocks]
            blocks += -(-parameter.size // EACH)
        number = len(table) // 10
        table += [0] * (10 * MOST - len(table))
        launch.kernel("update", "update_all")(
            (blocks,), (launch.THREADS,), (struct(*table), np.int32(number), *numbers)
        )


def average_all(count: int) -> Fusion:
    """The instruction that moves `count` running averages in place.

    Its operands are, for each of them, the old vector and the one that was found.
    """
    over = tuple(2 * i for i in range(count))
    return Fusion("average_all", "", (), (), Kernel(_averages, over, strided=False))


def _averages(out: Array, *arrays: Array, shares: tuple[tuple[float, float], ...]) -> None:
    results = out if isinstance(out, tuple) else (out,)
    rows = list(zip(results, arrays[::2], arrays[1::2], shares, strict=True))
    for first in range(0, len(rows), MOST_AVERAGES):
        table: list[int] = []
        some = rows[first : first + MOST_AVERAGES]
        for new, old, found, (kept, share) in some:
            numbers = np.array([kept, share], np.float32).view(np.int64)
            table += [new.data.ptr, old.data.ptr, found.data.ptr, new.size, int(numbers[0])]
        table += [0] * (5 * MOST_AVERAGES - len(table))
        launch.kernel("update", "average_all")((len(some),), (launch.THREADS,), (struct(*table),))
