"""The update of many parameters, or of many running averages, in one launch (update.cu)."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.runtime.launch import struct
from pareo.program.ir import Instruction
from pareo.program.kernel import Fusion, Kernel

MOST, EACH, MOST_AVERAGES = 40, 1024, 80  # as in update.cu
# The rules of update.cu: how many arrays each keeps for a parameter, such as its velocity.
SLOTS = {"DESCEND": 0, "MOMENTUM": 1, "NESTEROV": 1, "LION": 1, "ADAM": 2, "ADAMW": 2}
NUMBERS = {"DESCEND": 1, "MOMENTUM": 3, "NESTEROV": 3, "LION": 4, "ADAM": 7, "ADAMW": 7}
MOST_NUMBERS = max(NUMBERS.values())
FIELDS = 12  # of a row of the table


def rule_of(last: Instruction) -> str:
    """The kernels' name of the rule that an instruction follows."""
    if last.name == "sgd":
        return "NESTEROV" if last.attributes["nesterov"] else "MOMENTUM"
    if last.name == "adam":
        return "ADAMW" if last.attributes["decoupled"] else "ADAM"
    return {"lion": "LION", "sub": "DESCEND"}[last.name]


def update_all(kind: str, count: int) -> Fusion:
    """The instruction that updates `count` parameters in place.

    Its operands are the rule's numbers, such as the rate, then for each parameter its value, its
    gradient and its slots; its results are the new value and slots of each.
    """
    first, slots = NUMBERS[kind], SLOTS[kind]
    each = 2 + slots
    over = tuple(
        first + each * i + place for i in range(count) for place in (0, *range(2, each))
    )  # fmt: skip
    return Fusion("update_all", "", (), (), Kernel(partial(_update_all, kind), over, strided=False))


def _update_all(kind: str, out: Array, *operands: Array, taps: tuple[int, ...]) -> None:
    slots, first = SLOTS[kind], NUMBERS[kind]
    results = out if isinstance(out, tuple) else (out,)
    numbers, arrays = operands[:first], operands[first:]
    new = [results[i : i + 1 + slots] for i in range(0, len(results), 1 + slots)]
    given = [arrays[i : i + 2 + slots] for i in range(0, len(arrays), 2 + slots)]
    rows = list(zip(new, given, taps, strict=True))
    for start in range(0, len(rows), MOST):
        table: list[int] = []
        blocks = 0
        for (moved, *kept), (parameter, gradient, *old), count in rows[start : start + MOST]:
            channels = parameter.shape[1] if count > 1 else 1
            narrow = gradient.dtype.itemsize == 2
            table += [moved.data.ptr, *_two(kept), parameter.data.ptr, gradient.data.ptr]
            table += [*_two(old), parameter.size, channels, count, narrow, blocks]
            blocks += -(-parameter.size // EACH)
        number = len(table) // FIELDS
        table += [0] * (FIELDS * MOST - len(table))
        pointers = struct(*[array.data.ptr for array in numbers], *[0] * (MOST_NUMBERS - first))
        launch.kernel("update", f"update_all<{kind}>")(
            (blocks,), (launch.THREADS,), (struct(*table), np.int32(number), pointers)
        )


def _two(arrays: Sequence[Array]) -> list[int]:
    """The addresses of up to two arrays."""
    return [*(array.data.ptr for array in arrays), 0, 0][:2]


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
