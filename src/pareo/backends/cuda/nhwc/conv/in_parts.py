"""Convolutions of a large batch as two of half the batch, one after the other.

cuDNN's fastest plans in float32 transform all images first. Their workspace grows with the batch,
and cuDNN does not offer all of them for many images. Two halves are still computed by such a plan.
A gradient of filters is then the sum of two, which is also more exact than one long sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.input_gradient_as_forward import ALIGNED
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution, Plan

NAME = "pareo in parts"  # on disk: see plans.py
FEWEST = 32  # images of a part: fewer do not fill a GPU
WIDTH = 4  # bytes of an element: tensor cores compute images as they are, all at once
TOGETHER = 4  # elements that a kernel may load at once, so arrays begin at a multiple of them


@dataclass(frozen=True)
class InParts:
    """A convolution, and the plan of the same one with half of the images."""

    convolution: Convolution
    half: Plan

    @property
    def name(self) -> str:
        return NAME

    @property
    def _filters_bytes(self) -> int:
        """Of the second half's filters, where filters are computed."""
        if self.convolution.computes != "filters":
            return 0
        return -(-self.convolution.size(FILTERS) * WIDTH // ALIGNED) * ALIGNED

    @property
    def workspace(self) -> int:
        """Bytes: the second gradient of filters, then the workspace of a half."""
        return self._filters_bytes + self.half.workspace

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        second, rest = workspace[: self._filters_bytes], workspace[self._filters_bytes :]
        for number in range(2):
            part = {**arrays, **{name: self._half_of(arrays[name], name, number)
                                 for name in (IMAGES, RESULT)}}  # fmt: skip
            if number and self._filters_bytes:
                part[FILTERS] = second
            self.half.run(part, rest)
        if self._filters_bytes:
            size = self.convolution.size(FILTERS)
            _add()(_floats(second, 0, size), _floats(arrays[FILTERS], 0, size))

    def _half_of(self, array: Array, name: int, number: int) -> Array:
        size = self.convolution.size(name) // 2
        return _floats(array, number * size, size)


@cache
def _add() -> Callable[..., Array]:
    import cupy

    return cupy.ElementwiseKernel("float32 more", "float32 sum", "sum += more", "pareo_add_part")


def _floats(array: Array, first: int, size: int) -> Array:
    """Some elements of an array, which may be bytes."""
    import cupy

    return cupy.ndarray((size,), cupy.float32, array.data + first * WIDTH)


def half_of(one: Convolution) -> Convolution | None:
    """The same convolution of half the images, or None where they cannot be divided.

    >>> whole = Convolution("result", (128, 16, 9, 9), (24, 16, 3, 3), (128, 24, 7, 7),
    ...                     (1, 1), (0, 0, 0, 0), (1, 1), "float32")
    >>> str(half_of(whole))
    'result 64x16x9x9 24x16x3x3 64x24x7x7 1x1 0x0x0x0 1x1 float32'
    """
    half, odd = divmod(one.images[0], 2)
    if odd or half < FEWEST or one.precision != "float32":
        return None
    if any(half * prod(shape[1:]) % TOGETHER for shape in (one.images, one.result)):
        return None
    return replace(one, images=(half, *one.images[1:]), result=(half, *one.result[1:]))


def plan(one: Convolution, best: Callable[[Convolution], Plan | None]) -> InParts | None:
    """The plan of a convolution; `best` finds that of its half."""
    half = half_of(one)
    half_plan = None if half is None else best(half)
    return None if half_plan is None else InParts(one, half_plan)
