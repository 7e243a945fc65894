"""Gradients of images as a forward convolution with flipped filters.

cuDNN's own kernels for these gradients take up to twice the time of the equivalent forward
convolution, in which the channels of the sum are contiguous in both factors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution, Plan
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.table import instruction

NAME = "pareo turned"  # on disk: see plans.py
ALIGNED = 512  # bytes, as CuPy aligns arrays


@dataclass(frozen=True)
class InputGradientAsForward:
    """A gradient of images, and the plan of the forward convolution that computes it."""

    convolution: Convolution
    forward: Plan

    @property
    def name(self) -> str:
        return NAME

    @property
    def _filters_bytes(self) -> int:
        width = 2 if self.convolution.precision == "bfloat16" else 4
        return -(-self.convolution.size(FILTERS) * width // ALIGNED) * ALIGNED

    @property
    def workspace(self) -> int:
        """Bytes: the flipped filters, then the workspace of the forward convolution."""
        return self._filters_bytes + self.forward.workspace

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        flipped, rest = workspace[: self._filters_bytes], workspace[self._filters_bytes :]
        filters, images, *window = self.convolution.filters
        width = 2 if self.convolution.precision == "bfloat16" else 4
        flip(flipped, arrays[FILTERS], width, (filters, *window, images))
        self.forward.run({IMAGES: arrays[RESULT], FILTERS: flipped, RESULT: arrays[IMAGES]}, rest)


def flip(flipped: Array, filters: Array, width: int, shape: tuple[int, ...]) -> None:
    """Flip filters of this channels-last shape, whose elements have `width` bytes."""
    count, height, along, channels = shape
    function = launch.kernel("layout", f"flip_filters<{launch.TYPES[width]}>")
    sizes = map(np.int32, (count, height * along, channels))
    function(*launch.element_grid(count * height * along * channels), (flipped, filters, *sizes))


@instruction()
def flipped_filters(out: Array, w: Array) -> None:
    """As a separate instruction: the filters are known long before the gradient is."""
    flip(out, w, w.dtype.itemsize, w.shape)


def forward_of(one: Convolution) -> Convolution | None:
    """The forward convolution that computes a gradient of images, or None where none does.

    >>> gradient = Convolution("images", (8, 16, 9, 9), (24, 16, 3, 3), (8, 24, 7, 7),
    ...                        (1, 1), (0, 0, 0, 0), (1, 1), "tf32")
    >>> str(forward_of(gradient))
    'result 8x24x7x7 16x24x3x3 8x16x9x9 1x1 2x2x2x2 1x1 tf32'
    """
    filters, channels, *window = one.filters
    if one.computes != "images" or one.stride != (1, 1) or one.images[1] != channels:
        return None
    reach = [step * (side - 1) for step, side in zip(one.dilation * 2, window * 2, strict=True)]
    padding = tuple(far - pad for far, pad in zip(reach, one.padding, strict=True))
    if min(padding) < 0:
        return None
    flipped = (channels, filters, *window)
    return Convolution(
        "result", one.result, flipped, one.images, (1, 1), padding, one.dilation, one.precision
    )


def plan(
    one: Convolution, best: Callable[[Convolution], Plan | None]
) -> InputGradientAsForward | None:
    """The plan of a gradient of images; `best` finds that of the forward convolution."""
    forward = forward_of(one)
    forward_plan = None if forward is None else best(forward)
    return None if forward_plan is None else InputGradientAsForward(one, forward_plan)
