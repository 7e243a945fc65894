"""Forward convolutions as the gradient of images, with flipped filters.

cuDNN's kernels for these gradients take half the time of the equivalent forward convolution where
there are few channels: for 64 of them, as in ResNet-50's first blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.input_gradient_as_forward import ALIGNED, flip
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution, Plan

NAME = "pareo reversed"  # on disk: see plans.py


@dataclass(frozen=True)
class ForwardAsInputGradient:
    """A forward convolution, and the plan of the gradient that computes it."""

    convolution: Convolution
    gradient: Plan

    @property
    def name(self) -> str:
        return NAME

    @property
    def _filters_bytes(self) -> int:
        width = 2 if self.convolution.precision == "bfloat16" else 4
        return -(-self.convolution.size(FILTERS) * width // ALIGNED) * ALIGNED

    @property
    def workspace(self) -> int:
        """Bytes: the flipped filters, then the workspace of the gradient."""
        return self._filters_bytes + self.gradient.workspace

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        flipped, rest = workspace[: self._filters_bytes], workspace[self._filters_bytes :]
        filters, images, *window = self.convolution.filters
        width = 2 if self.convolution.precision == "bfloat16" else 4
        flip(flipped, arrays[FILTERS], width, (filters, *window, images))
        self.gradient.run({RESULT: arrays[IMAGES], FILTERS: flipped, IMAGES: arrays[RESULT]}, rest)


def gradient_of(one: Convolution) -> Convolution | None:
    """The gradient of images that computes a forward convolution, or None where none does.

    >>> forward = Convolution("result", (8, 16, 9, 9), (24, 16, 3, 3), (8, 24, 7, 7),
    ...                       (1, 1), (0, 0, 0, 0), (1, 1), "tf32")
    >>> str(gradient_of(forward))
    'images 8x24x7x7 16x24x3x3 8x16x9x9 1x1 2x2x2x2 1x1 tf32'
    """
    filters, channels, *window = one.filters
    plain = one.computes == "result" and one.stride == (1, 1) and not one.epilogue
    if not plain or one.images[1] != channels or window == [1, 1]:
        return None
    reach = [step * (side - 1) for step, side in zip(one.dilation * 2, window * 2, strict=True)]
    padding = tuple(far - pad for far, pad in zip(reach, one.padding, strict=True))
    if min(padding) < 0:
        return None
    flipped = (channels, filters, *window)
    return Convolution(
        "images", one.result, flipped, one.images, (1, 1), padding, one.dilation, one.precision
    )


def plan(
    one: Convolution, best: Callable[[Convolution], Plan | None]
) -> ForwardAsInputGradient | None:
    """The plan of a forward convolution; `best` finds cuDNN's own plan of the gradient."""
    gradient = gradient_of(one)
    gradient_plan = None if gradient is None else best(gradient)
    return None if gradient_plan is None else ForwardAsInputGradient(one, gradient_plan)
