"""`Dataset`: images and labels for training and testing, checked when it is created."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pareo.errors import DataError

TEST_SHARE = 6  # one image in six is for testing, if the source does not define a test set


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their labels for training, and others for testing.

    Args:
        name: of the source; errors start with it.
        images: (N, C, H, W), or (N, features); numbers of any type, not converted.
        labels: (N,), whole numbers from 0 to `classes` - 1; kept as int64.
        test_images: of the same shape and type; there may be none (`images[:0]`).
        test_labels: one for each of them.
        classes: their number, including those without an image.
        class_names: one for each class, or none at all.

    Raises:
        DataError: the arrays do not match.

    Example:
        >>> pixels = np.zeros((3, 1, 28, 28), np.uint8)
        >>> data = Dataset("zeros", pixels, np.array([0, 1, 1]), pixels[:1], np.array([1]), 2)
        >>> data
        <Dataset zeros: 3 images of 1x28x28 uint8, 1 more for testing, 2 classes>
        >>> data.shape
        (1, 28, 28)
    """

    name: str
    images: NDArray[Any]
    labels: NDArray[np.int64]
    test_images: NDArray[Any]
    test_labels: NDArray[np.int64]
    classes: int
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise DataError(f"{self.name}: expected at least 1 class; got {self.classes}")
        for part in ("images", "test_images"):
            _check_images(f"{self.name}: ", part, getattr(self, part))
        if not len(self.images):
            raise DataError(f"{self.name}: expected at least one image; got none")
        one, other = _one(self.images), _one(self.test_images)
        if one != other:
            raise DataError(
                f"{self.name}: expected test_images like images, each {one}; got each {other}"
            )
        for images, labels in (("images", "labels"), ("test_images", "test_labels")):
            checked = _check_labels(
                f"{self.name}: ", labels, getattr(self, labels), self.classes, images,
                len(getattr(self, images)),
            )  # fmt: skip
            object.__setattr__(self, labels, checked)
        object.__setattr__(self, "class_names", tuple(self.class_names))
        if self.class_names and len(self.class_names) != self.classes:
            raise DataError(
                f"{self.name}: expected {self.classes} class names, one for each class; "
                f"got {len(self.class_names)}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, which is the input shape of a network for this data."""
        return self.images.shape[1:]

    def as_float(self, dtype: DTypeLike = np.float32) -> "Dataset":
        """Return the same data with images of a float dtype: uint8 is scaled from 0..255 to 0..1.

        Other types are converted, not scaled. Data that has this dtype is returned unchanged;
        otherwise the images are new arrays, which this object does not keep.

        Example:
            >>> pixels = np.array([[0, 51, 255]], np.uint8)
            >>> data = Dataset("one", pixels, np.array([0]), pixels[:0], np.array([], int), 1)
            >>> data.as_float("float32").images
            array([[0. , 0.2, 1. ]], dtype=float32)
        """
        dtype = np.dtype(dtype)
        if dtype.kind != "f":
            raise DataError(f"{self.name}: as_float expects a float dtype; got {dtype.name}")
        if self.images.dtype == dtype:
            return self
        return Dataset(
            self.name,
            _floats(self.images, dtype),
            self.labels,
            _floats(self.test_images, dtype),
            self.test_labels,
            self.classes,
            self.class_names,
        )

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.name}: {len(self.images):,} images of {_one(self.images)}, "
            f"{len(self.test_images):,} more for testing, {self.classes:,} classes>"
        )


def divide(
    name: str, images: NDArray[Any], labels: NDArray[Any], class_names: tuple[str, ...] = ()
) -> Dataset:
    """Return a dataset of which a sixth of each class is for testing.

    These are the last images of each class, at least one if it has two; the order is kept.

    Example:
        >>> labels = np.array([0, 0, 1, 1, 1, 0])
        >>> data = divide("six", np.arange(6.0)[:, None], labels)
        >>> data.images[:, 0], data.test_images[:, 0]
        (array([0., 1., 2., 3.]), array([4., 5.]))
    """
    _check_images(f"{name}: ", "images", images)
    classes = len(class_names) or count_classes(labels)
    labels = _check_labels(f"{name}: ", "labels", labels, classes, "images", len(images))
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=classes)
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken = np.where(sizes > 1, np.maximum(sizes // TEST_SHARE, 1), 0)
    test = rank >= (sizes - taken)[labels]
    return Dataset(
        name, images[~test], labels[~test], images[test], labels[test], classes, class_names
    )


def count_classes(*labels: NDArray[Any]) -> int:
    """Return the number of classes of labels that count from 0; at least 1.

    Example:
        >>> count_classes(np.array([0, 3]), np.array([4]))
        5
    """
    return max([1, *(int(part.max()) + 1 for part in labels if part.size and _whole(part))])


def _whole(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "ui"


def _one(images: NDArray[Any]) -> str:
    sizes = "x".join(map(str, images.shape[1:]))
    return f"{sizes} {images.dtype.name}"


def _check_images(place: str, part: str, images: NDArray[Any]) -> None:
    if not isinstance(images, np.ndarray) or images.dtype.kind not in "uif":
        kind = images.dtype.name if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{place}expected {part} to be an array of numbers; got {kind}")
    if images.ndim not in (2, 4) or 0 in images.shape[1:]:
        raise DataError(
            f"{place}expected {part} of shape (N, C, H, W) or (N, features); got {images.shape}"
        )
    # The extremes are NaN if any number is, and need no array of booleans as large as the data.
    if (
        images.dtype.kind == "f"
        and len(images)
        and not (np.isfinite(images.min()) and np.isfinite(images.max()))
    ):
        raise DataError(f"{place}expected finite numbers in {part}; got NaN or infinity")


def _check_labels(
    place: str, part: str, labels: NDArray[Any], classes: int, images: str, count: int
) -> NDArray[np.int64]:
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or not _whole(labels):
        given = (
            f"{labels.dtype.name} of shape {labels.shape}"
            if isinstance(labels, np.ndarray)
            else type(labels).__name__
        )
        raise DataError(f"{place}expected {part} to be whole numbers of shape (N,); got {given}")
    if len(labels) != count:
        raise DataError(
            f"{place}expected as many {images} as {part}; got {count:,} {images} "
            f"and {len(labels):,} {part}"
        )
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        where = int(wrong.argmax())
        raise DataError(
            f"{place}expected {part} from 0 to {classes - 1}; got {labels[where]} at index {where}"
        )
    return labels.astype(np.int64, copy=False)


def _floats(images: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if images.dtype == np.uint8:
        return np.divide(images, 255, dtype=dtype)
    with np.errstate(over="ignore"):  # too large a number becomes infinity, which the check reports
        return images.astype(dtype)
