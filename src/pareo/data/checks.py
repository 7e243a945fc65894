"""What a `Dataset` demands of its images, its labels and its targets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.errors import DataError


def check_images(place: str, part: str, images: NDArray[Any]) -> None:
    """Raise `DataError` if these are not images: finite numbers, one or three dimensions each."""
    if not isinstance(images, np.ndarray) or images.dtype.kind not in "uif":
        kind = images.dtype.name if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{place}expected {part} to be an array of numbers; got {kind}")
    if images.ndim not in (2, 4) or 0 in images.shape[1:]:
        raise DataError(
            f"{place}expected {part} of shape (N, C, H, W) or (N, features); got {images.shape}"
        )
    _check_finite(place, part, images)


def check_labels(
    place: str, part: str, labels: NDArray[Any], classes: int, images: str, count: int
) -> NDArray[np.int64]:
    """Return labels as int64; `DataError` if they are not one class for each image."""
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or not is_whole(labels):
        raise DataError(
            f"{place}expected {part} to be whole numbers of shape (N,); got {_given(labels)}"
        )
    _check_count(place, part, labels, images, count)
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        where = int(wrong.argmax())
        raise DataError(
            f"{place}expected {part} from 0 to {classes - 1}; got {labels[where]} at index {where}"
        )
    return labels.astype(np.int64, copy=False)


def check_targets(place: str, part: str, targets: NDArray[Any], images: str, count: int) -> None:
    """Raise `DataError` if these are not one target, or one row of targets, for each image."""
    if (
        not isinstance(targets, np.ndarray)
        or targets.dtype.kind != "f"
        or targets.ndim not in (1, 2)
        or 0 in targets.shape[1:]
    ):
        raise DataError(
            f"{place}expected {part} to be floats of shape (N,) or (N, targets); "
            f"got {_given(targets)}"
        )
    _check_count(place, part, targets, images, count)
    _check_finite(place, part, targets)


def is_whole(labels: Any) -> bool:
    """Whether this is an array of whole numbers."""
    return isinstance(labels, np.ndarray) and labels.dtype.kind in "ui"


def each(array: NDArray[Any]) -> str:
    """The shape and dtype of one image, in words.

    >>> each(np.zeros((5, 3, 8, 8), np.uint8))
    '3x8x8 uint8'
    """
    sizes = "x".join(map(str, array.shape[1:]))
    return f"{sizes} {array.dtype.name}".strip()


def _given(labels: Any) -> str:
    if isinstance(labels, np.ndarray):
        return f"{labels.dtype.name} of shape {labels.shape}"
    return type(labels).__name__


def _check_count(place: str, part: str, labels: NDArray[Any], images: str, count: int) -> None:
    if len(labels) != count:
        raise DataError(
            f"{place}expected as many {images} as {part}; got {count:,} {images} "
            f"and {len(labels):,} {part}"
        )


def _check_finite(place: str, part: str, array: NDArray[Any]) -> None:
    # The extremes are NaN if any number is, and need no array of booleans as large as the data.
    if (
        array.dtype.kind == "f"
        and len(array)
        and not (np.isfinite(array.min()) and np.isfinite(array.max()))
    ):
        raise DataError(f"{place}expected finite numbers in {part}; got NaN or infinity")
