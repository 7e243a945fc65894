"""Convolutions from few channels, with the columns of a window counted as channels.

The pixels of a row lie side by side, so kw neighbours of C channels are one pixel of kw * C
channels. Such pixels overlap in memory, which only the strides say: nothing is copied. cuDNN is up
to three times as fast with 64 channels in windows of 4 x 1 as with 16 in windows of 4 x 4.
"""

from dataclasses import dataclass, replace

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.problem import Convolution, Plan

NAME = "pareo folded"  # on disk: see plans.py
MOST_CHANNELS = 64  # before folding; with more, cuDNN needs no help


@dataclass(frozen=True)
class Folded:
    """cuDNN's plan of the folded convolution."""

    plan: Plan

    @property
    def name(self) -> str:
        return NAME

    @property
    def workspace(self) -> int:
        return self.plan.workspace

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        self.plan.run(arrays, workspace)


def folded(one: Convolution) -> tuple[Convolution, list[int]] | None:
    """The folded convolution and the strides of its images; None where it cannot be folded.

    >>> one = Convolution("result", (8, 16, 11, 11), (64, 16, 4, 4), (8, 64, 8, 8), (1, 1),
    ...                   (0, 0, 0, 0), (1, 1), "bfloat16")
    >>> other, strides = folded(one)
    >>> str(other), strides
    ('result 8x64x11x8 64x64x4x1 8x64x8x8 1x1 0x0x0x0 1x1 bfloat16', [1936, 1, 176, 16])
    """
    images, channels, height, width = one.images
    filters, each, kh, kw = one.filters
    plain = one.stride == one.dilation == (1, 1) and not any(one.padding) and each == channels
    vector = 8 if one.precision == "bfloat16" else 4
    narrow = channels % vector == 0 and channels * kw <= 4 * MOST_CHANNELS and kw > 1
    if one.computes == "images" or not plain or not narrow or channels > MOST_CHANNELS:
        return None
    columns = one.result[3]
    other = replace(
        one,
        images=(images, channels * kw, height, columns),
        filters=(filters, channels * kw, kh, 1),
    )
    return other, [height * width * channels, 1, width * channels, channels]
