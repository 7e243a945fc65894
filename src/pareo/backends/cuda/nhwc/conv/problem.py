"""A convolution to compute, and the interface of the plans that compute it."""

from dataclasses import dataclass
from typing import Protocol

from pareo.array import Array

IMAGES, FILTERS, RESULT, BIAS = 1, 2, 3, 4  # the names of a graph's arrays
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """What a plan is made for. Shapes are (N, C, H, W); in memory the channels are last.

    `computes` is the array that is computed from the other two: 'result' (forward), 'images' or
    'filters' (gradients). A forward convolution may have the `epilogue` 'bias' or 'bias_relu'.
    """

    computes: str
    images: Shape
    filters: Shape
    result: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    precision: str
    epilogue: str = ""

    def __str__(self) -> str:
        parts = (self.images, self.filters, self.result, self.stride, self.padding, self.dilation)
        shapes = " ".join("x".join(map(str, part)) for part in parts)
        return f"{self.computes} {shapes} {self.precision} {self.epilogue}".rstrip()

    def size(self, name: int) -> int:
        """The number of elements of one of the arrays."""
        shape = self.shape(name)
        count = 1
        for side in shape:
            count *= side
        return count

    def shape(self, name: int) -> Shape:
        """The shape of one of the arrays."""
        bias = (1, self.result[1], 1, 1)
        return {IMAGES: self.images, FILTERS: self.filters, RESULT: self.result, BIAS: bias}[name]

    @property
    def arrays(self) -> tuple[int, ...]:
        """The names of the arrays that it reads and writes."""
        return (IMAGES, FILTERS, RESULT, BIAS) if self.epilogue else (IMAGES, FILTERS, RESULT)


class Runs(Protocol):
    """Work on the arrays of a convolution, which can be timed."""

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Do it, on the current stream."""


class Plan(Runs, Protocol):
    """One way to compute one convolution."""

    @property
    def name(self) -> str:
        """The name by which it is remembered on disk."""

    @property
    def workspace(self) -> int:
        """The bytes of its workspace."""
