"""The update of many parameters in one launch (update.cu)."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc import launch
from pareo.backends.cuda.nhwc.instructions import NOTHING
from pareo.backends.cuda.runtime.launch import struct
from pareo.program.kernel import Fusion, Kernel

MOST, EACH = 40, 1024  # as in update.cu


def update_all(count: int, momentum: bool = True) -> Fusion:
    """The instruction that updates `count` parameters, each over itself.

    Its operands are rate, momentum and decay, then for every parameter the parameter, its gradient
    and its velocity; its results for each the new parameter and the new velocity. Without momentum
    there are neither velocities nor the numbers that go with them.
    """
    if momentum:
        over = tuple(place for i in range(count) for place in (3 + 3 * i, 5 + 3 * i))
        return Fusion("update_all", "", (), (), Kernel(_with_momentum, over, strided=False))
    over = tuple(1 + 2 * i for i in range(count))
    return Fusion("update_all", "", (), (), Kernel(_without, over, strided=False))


def _with_momentum(out: Any, *operands: Any, taps: tuple[int, ...]) -> None:
    arrays = operands[3:]
    pairs = zip(out[::2], out[1::2], strict=True)
    given = zip(arrays[::3], arrays[1::3], arrays[2::3], strict=True)
    _update_all(
        operands[:3], [(*pair, *three) for pair, three in zip(pairs, given, strict=True)], taps
    )


def _without(out: Any, rate: Any, *arrays: Any, taps: tuple[int, ...]) -> None:
    out = out if isinstance(out, tuple) else (out,)
    each = zip(out, arrays[::2], arrays[1::2], strict=True)
    rows = [(new, None, parameter, gradient, None) for new, parameter, gradient in each]
    _update_all((rate, NOTHING, NOTHING), rows, taps)


def _update_all(
    numbers: tuple[Any, ...], rows: list[tuple[Any, ...]], taps: tuple[int, ...]
) -> None:
    """Rows of new parameter, new velocity, parameter, gradient and velocity, MOST in a launch."""
    for first in range(0, len(rows), MOST):
        table: list[Any] = []
        blocks = 0
        for row, many in zip(rows[first : first + MOST], taps[first : first + MOST], strict=True):
            parameter, gradient = row[2:4]
            channels = parameter.shape[1] if many > 1 else 1
            narrow = gradient.dtype.itemsize == 2
            table += [0 if array is None else array.data.ptr for array in row]
            table += [parameter.size, channels, many, narrow, blocks]
            blocks += -(-parameter.size // EACH)
        number = len(table) // 10
        table += [0] * (10 * MOST - len(table))
        launch.kernel("update", "update_all")(
            (blocks,), (launch.THREADS,), (struct(*table), np.int32(number), *numbers)
        )
