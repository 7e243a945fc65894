"""The mean and the deviation of images, channel by channel."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20  # numbers that are converted to float64 at a time


class ChannelStatistics(NamedTuple):
    """One number for each channel, or for each feature of data without channels."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def of_channels(images: NDArray[Any]) -> ChannelStatistics:
    """Return the statistics of images (N, C, H, W) or (N, features), as they are, not scaled.

    The deviation is that of the images themselves, divided by their number, not by one less.

    >>> of_channels(np.array([[1.0, 5.0], [3.0, 5.0]]))
    ChannelStatistics(mean=(2.0, 5.0), deviation=(1.0, 0.0))
    """
    # Both passes subtract an origin first: a difference of sums of squares would lose a small
    # deviation beside a large mean. The first origin is a pixel of each channel, so that a channel
    # with one value has exactly the deviation 0.
    with np.errstate(over="ignore", invalid="ignore"):
        pixel = images[0].reshape(images.shape[1], -1)[:, 0].astype(np.float64)
        mean = pixel + _means(images, pixel, power=1)
        variance = _means(images, mean, power=2)
    return ChannelStatistics(tuple(mean.tolist()), tuple(np.sqrt(variance).tolist()))


def _means(images: NDArray[Any], origin: NDArray[np.float64], power: int) -> NDArray[np.float64]:
    """The mean of the powers of the distance from the origin, for each channel."""
    axes = tuple(axis for axis in range(images.ndim) if axis != 1)
    origin = origin.reshape(1, -1, *[1] * (images.ndim - 2))
    per_channel = images.size // images.shape[1]
    rows = max(1, _BLOCK * len(images) // images.size)
    total = np.zeros(images.shape[1])
    for start in range(0, len(images), rows):
        block = images[start : start + rows].astype(np.float64)
        block -= origin
        total += (block if power == 1 else block * block).sum(axis=axes)
    return np.asarray(total / per_channel)
