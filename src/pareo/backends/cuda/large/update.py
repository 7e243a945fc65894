"""The update of many parameters in one launch (update.cu)."""

from typing import Any

import numpy as np

from pareo.backends.base import Fusion, Kernel
from pareo.backends.cuda.large import launch
from pareo.backends.cuda.launch import struct

MOST, EACH = 40, 1024  # as in update.cu


def update_all(count: int) -> Fusion:
    """The instruction that updates `count` parameters, each over itself.

    Its operands are rate, momentum and decay, then for every parameter the parameter, its gradient
    and its velocity; its results for each the new parameter and the new velocity.
    """
    over = tuple(place for i in range(count) for place in (3 + 3 * i, 5 + 3 * i))
    return Fusion("update_all", "", (), (), Kernel(_update_all, over, strided=False))


def _update_all(
    out: Any, rate: Any, momentum: Any, decay: Any, *arrays: Any, taps: tuple[int, ...]
) -> None:
    for first in range(0, len(taps), MOST):
        table: list[Any] = []
        blocks = 0
        for i in range(first, min(first + MOST, len(taps))):
            parameter, gradient, velocity = arrays[3 * i : 3 * i + 3]
            pointers = (*out[2 * i : 2 * i + 2], parameter, velocity, gradient)
            channels = parameter.shape[1] if taps[i] > 1 else 1
            narrow = gradient.dtype.itemsize == 2
            table += [array.data.ptr for array in pointers]
            table += [parameter.size, channels, taps[i], narrow, blocks]
            blocks += -(-parameter.size // EACH)
        number = len(table) // 10
        table += [0] * (10 * MOST - len(table))
        launch.kernel("update", "update_all")(
            (blocks,), (launch.THREADS,), (struct(*table), np.int32(number), rate, momentum, decay)
        )
