"""Whether a convolution is faster joined to the sums of a normalisation; timed once, as plans."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv import plans
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT
from pareo.backends.cuda.nhwc.conv.product_sums import (
    TILINGS,
    VECTOR,
    SummedProduct,
    partial_sums,
    product_back_sums,
    product_statistics,
)
from pareo.backends.cuda.nhwc.kernels import normalise
from pareo.backends.cuda.runtime import memory
from pareo.errors import OutOfMemory

APART, NAME = "apart", "pareo sums"  # on disk: see plans.py
LIMITS = (-1.0, 1.0)  # of any activation
GAIN = 0.97  # of the time apart: nothing else can run beside a kernel that fills the GPU


@dataclass(frozen=True)
class _Call:
    """Work to be timed as a plan."""

    call: Callable[[], object]

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        self.call()


def best(one: SummedProduct) -> int | None:
    """The channels of the fastest kernel's tiles; None where it is faster to sum apart."""
    import cupy

    gpu = cupy.cuda.Device()
    return _best(one, gpu.id) if gpu.compute_capability == "90" else None


@lru_cache(maxsize=4096)
def _best(one: SummedProduct, device: int) -> int | None:
    known = plans.remembered().get(str(one))
    if known is not None:
        return _wide(one.sums, known["plan"])
    try:
        seconds, name = min(_timed(one))
    except OutOfMemory:  # ask again when there is memory
        return None
    plans.remember(str(one), {"plan": name, "seconds": seconds})
    return _wide(one.sums, name)


def _wide(sums: str, name: str) -> int | None:
    """The channels of a tile, by the name of a plan.

    >>> _wide("back", "pareo sums 64"), _wide("back", "apart")
    (64, None)
    """
    return next((wide for wide in TILINGS[sums] if name == f"{NAME} {wide}"), None)


def _timed(one: SummedProduct) -> list[tuple[float, str]]:
    """The seconds of the kernels, and of both apart, by their names."""
    plan = plans.best(one.convolution)
    assert plan is not None, "only convolutions that have a plan are lowered"
    trial = _Trial(one)
    work = memory.empty((max(plan.workspace, 1),), "uint8")

    def apart() -> None:
        plan.run(trial.arrays, work)
        trial.sum_apart()

    tried: dict[str, Callable[[], None]] = {APART: apart}
    for wide in TILINGS[one.sums]:
        tried[f"{NAME} {wide}"] = partial(trial.sum_joined, wide)
    found = []
    for name, call in tried.items():
        seconds = plans.seconds_of(_Call(call), {}, work, inf)
        if seconds is not None:
            found.append((seconds if name == APART else seconds / GAIN, name))
    return found


class _Trial:
    """The arrays of a convolution and of the sums over its result."""

    def __init__(self, one: SummedProduct) -> None:
        import cupy

        self.one, conv = one, one.convolution
        self.arrays = {name: _numbers(conv.shape(name)) for name in (IMAGES, FILTERS, RESULT)}
        ends = (IMAGES, RESULT) if conv.computes == "result" else (RESULT, IMAGES)
        self.given, self.out = (self.arrays[name] for name in ends)
        depth, channels = self.given.shape[-1], self.out.shape[-1]
        self.filters = self.arrays[FILTERS].reshape(channels, 1, 1, depth)
        self.vectors = [cupy.ones(channels, np.float32) for _ in range(4)]
        self.sums = [cupy.empty(channels, np.float32) for _ in range(2)]
        self.x, self.other = self.out.copy(), self.out.copy()
        self.signs = cupy.full((*self.out.shape[:3], channels // VECTOR), 0x5A, np.uint8)
        self.room = memory.empty(normalise.partial_sums(self.out).shape, np.float32)
        self.rooms = {
            wide: memory.empty(partial_sums(self.out, wide).shape, np.float32)
            for wide in TILINGS[one.sums]
        }

    def sum_apart(self) -> None:
        """What the kernels that only sum compute."""
        if self.one.sums == "statistics":
            normalise.channel_statistics((*self.sums,), self.out, scratch=[self.room])
            return
        masked = [self.other] if self.one.masks else []
        others = [self.other] if "other" in self.one.more else []
        results, x, how = (*self.sums, *masked), self.x, {"epsilon": 1e-5, "scratch": [self.room]}
        if "signs" in self.one.more:
            operands = (*self.vectors, self.signs, self.out, *others)
            normalise.normalise_back_sums_by_signs(results, x, *operands, **how)
        else:
            how |= {"activation": self.one.activation, "limits": LIMITS}
            normalise.normalise_back_sums(results, x, *self.vectors, self.out, *others, **how)

    def sum_joined(self, wide: int) -> None:
        """The same, and the convolution."""
        factors, room = (self.given, self.filters), [self.rooms[wide]]
        if self.one.sums == "statistics":
            product_statistics((self.out, *self.sums), *factors, wide=wide, scratch=room)
            return
        named = {"signs": self.signs, "other": self.other}
        product_back_sums(
            (*self.sums, self.out), *factors, self.x, *self.vectors,
            *(named[name] for name in self.one.more), activation=self.one.activation,
            limits=LIMITS, epsilon=1e-5, more=self.one.more, masks=self.one.masks, wide=wide,
            scratch=room,
        )  # fmt: skip


def _numbers(shape: tuple[int, ...]) -> Array:
    """Images in bfloat16, as channels-last bits."""
    count, channels, height, width = shape
    size = count * channels * height * width
    bits = plans.some_numbers(2 * size).view(np.uint16)
    return bits[:size].reshape(count, height, width, channels)
