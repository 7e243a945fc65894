"""Gradients of images as a forward convolution with the filters turned round.

cuDNN's own kernels for these gradients take up to twice the time of the same sum as a forward
convolution: there the channels that are summed up lie side by side in both factors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.conv.cudnn import FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.table import offer

NAME = "pareo turned"
ALIGNED = 512  # bytes, as CuPy's own arrays are


@dataclass(frozen=True)
class Turned:
    """The turned filters' convolution, and the plan that runs it."""

    convolution: Convolution
    forward: Any

    @property
    def name(self) -> str:
        return NAME

    @property
    def _filters_bytes(self) -> int:
        width = 2 if self.convolution.precision == "bfloat16" else 4
        return -(-self.convolution.size(FILTERS) * width // ALIGNED) * ALIGNED

    @property
    def workspace(self) -> int:
        """Bytes: the turned filters, then what the forward convolution needs."""
        return self._filters_bytes + int(self.forward.workspace)

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        """Compute it, on the stream in use."""
        turned, rest = workspace[: self._filters_bytes], workspace[self._filters_bytes :]
        filters, images, *window = self.convolution.filters
        width = 2 if self.convolution.precision == "bfloat16" else 4
        turn(turned, arrays[FILTERS], width, (filters, *window, images))
        self.forward.run({IMAGES: arrays[RESULT], FILTERS: turned, RESULT: arrays[IMAGES]}, rest)


def turn(turned: Any, filters: Any, width: int, shape: tuple[int, ...]) -> None:
    """Filters of this shape, channels last and `width` bytes each element, turned round."""
    count, height, along, channels = shape
    function = launch.kernel("layout", f"turn_filters<{launch.TYPES[width]}>")
    sizes = map(np.int32, (count, height * along, channels))
    function(*launch.flat(count * height * along * channels), (turned, filters, *sizes))


@offer()
def turned_filters(out: Any, w: Any) -> None:
    """As an instruction: what it needs is known long before the gradient is."""
    turn(out, w, w.dtype.itemsize, w.shape)


def forward_of(one: Convolution) -> Convolution | None:
    """The forward convolution that gives the gradient of images, or None where none does.

    >>> gradient = Convolution("images", (8, 16, 9, 9), (24, 16, 3, 3), (8, 24, 7, 7),
    ...                        (1, 1), (0, 0, 0, 0), (1, 1), "tf32")
    >>> str(forward_of(gradient))
    'result 8x24x7x7 16x24x3x3 8x16x9x9 1x1 2x2x2x2 1x1 tf32'
    """
    filters, channels, *window = one.filters
    if one.way != "images" or one.stride != (1, 1) or one.images[1] != channels:
        return None
    reach = [step * (side - 1) for step, side in zip(one.dilation * 2, window * 2, strict=True)]
    padding = tuple(far - pad for far, pad in zip(reach, one.padding, strict=True))
    if min(padding) < 0:
        return None
    turned = (channels, filters, *window)
    return Convolution(
        "result", one.result, turned, one.images, (1, 1), padding, one.dilation, one.precision
    )


def turned(one: Convolution, best: Callable[[Convolution], Any]) -> Turned | None:
    """The gradient of images by turned filters; `best` finds the forward convolution's plan."""
    forward = forward_of(one)
    plan = None if forward is None else best(forward)
    return None if plan is None else Turned(one, plan)
