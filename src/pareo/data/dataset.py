"""`Dataset`: images and labels for training and testing, checked when it is created."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pareo.data import parts, statistics
from pareo.data.checks import check_images, check_labels, check_targets, each, is_whole
from pareo.data.statistics import ChannelStatistics
from pareo.errors import DataError
from pareo.seeds import checked_seed

LARGEST_CLASSES = 1 << 22  # a larger label is a mistake: counts of each class would fill the memory
TEST_SHARE = 6  # one image in six is for testing, if the source does not define a test set


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their labels for training, and others for testing.

    Args:
        name: of the source; errors start with it.
        images: (N, C, H, W), or (N, features); numbers of any type, not converted.
        labels: (N,), whole numbers from 0 to `classes` - 1; kept as int64. Or targets, for
            regression and for several labels of one image: floats (N,) or (N, targets), kept as
            they are, with 0 `classes`.
        test_images: of the same shape and type; there may be none (`images[:0]`).
        test_labels: one for each of them.
        classes: their number, including those without an image; 0 if the labels are targets.
        class_names: one for each class or each target, or none at all.
        notes: what was done to the images of the source, each in one sentence.

    Raises:
        DataError: the arrays do not match.

    Example:
        >>> pixels = np.zeros((3, 1, 28, 28), np.uint8)
        >>> data = Dataset("zeros", pixels, np.array([0, 1, 1]), pixels[:1], np.array([1]), 2)
        >>> data
        <Dataset zeros: 3 images of 1x28x28 uint8, 1 more for testing, 2 classes>
        >>> data.shape
        (1, 28, 28)
        >>> Dataset("heights", pixels, np.array([1.7, 1.8, 1.6]), pixels[:0], np.zeros(0), 0)
        <Dataset heights: 3 images of 1x28x28 uint8, 0 more for testing, 1 target>
    """

    name: str
    images: NDArray[Any]
    labels: NDArray[Any]
    test_images: NDArray[Any]
    test_labels: NDArray[Any]
    classes: int
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.classes < 1 and (self.classes < 0 or is_whole(self.labels)):
            raise DataError(f"{self.name}: expected at least 1 class; got {self.classes}")
        _check_classes(self.name, self.classes)
        for part in ("images", "test_images"):
            check_images(f"{self.name}: ", part, getattr(self, part))
        if not len(self.images):
            raise DataError(f"{self.name}: expected at least one image; got none")
        self._check_alike("images", "test_images")
        for images, labels in (("images", "labels"), ("test_images", "test_labels")):
            given, count = getattr(self, labels), len(getattr(self, images))
            if self.has_targets:
                check_targets(f"{self.name}: ", labels, given, images, count)
                continue
            checked = check_labels(f"{self.name}: ", labels, given, self.classes, images, count)
            object.__setattr__(self, labels, checked)
        self._check_alike("labels", "test_labels")
        object.__setattr__(self, "class_names", tuple(self.class_names))
        if self.class_names and len(self.class_names) != self.outputs:
            raise DataError(
                f"{self.name}: expected {self.outputs} class names, one for each "
                f"{'target' if self.has_targets else 'class'}; got {len(self.class_names)}"
            )

    def _check_alike(self, part: str, test_part: str) -> None:
        one, other = each(getattr(self, part)), each(getattr(self, test_part))
        if one != other:
            raise DataError(
                f"{self.name}: expected {test_part} like {part}, each {one}; got each {other}"
            )

    @classmethod
    def of(
        cls,
        images: Any,
        labels: Any,
        *,
        test: float | tuple[Any, Any] = 1 / TEST_SHARE,
        seed: int = 0,
        name: str = "arrays",
        class_names: Sequence[str] = (),
    ) -> "Dataset":
        """Return the dataset of your own arrays, of which a share is set aside for testing.

        Args:
            images: (N, C, H, W), (N, H, W) or (N, features); numbers of any type.
            labels: (N,): whole numbers from 0, or words, which become class names in alphabetical
                order; or targets, floats of shape (N,) or (N, targets).
            test: the share of the images that is drawn for testing, 0 for none; or images and
                labels to test with.
            seed: of the draw.
            name: errors start with it.
            class_names: one for each class, if the labels are numbers.

        Example:
            >>> images, labels = np.zeros((6, 8, 8)), ["cat", "dog", "cat", "dog", "cat", "dog"]
            >>> data = Dataset.of(images, labels, test=1 / 3)
            >>> data
            <Dataset arrays: 4 images of 1x8x8 float64, 2 more for testing, 2 classes>
            >>> data.class_names, data.labels
            (('cat', 'dog'), array([0, 1, 0, 1]))
        """
        pixels, (numbers, names) = _images(images), _labelled(labels, tuple(class_names), name)
        if isinstance(test, tuple):
            if len(test) != 2:
                raise DataError(f"{name}: expected test to be a share, or images and labels")
            unseen = _images(test[0]), _labelled(test[1], names, name)[0]
        else:
            unseen = pixels[:0], numbers[:0]
        classes = 0
        if is_whole(numbers):
            classes = len(names) or count_classes(numbers, np.asarray(unseen[1]))
        whole = cls(name, pixels, numbers, *unseen, classes, names)
        if isinstance(test, tuple) or not test:
            return whole
        training, held = whole.split(test, seed)
        return replace(training, test_images=held.images, test_labels=held.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, which is the input shape of a network for this data."""
        return self.images.shape[1:]

    @property
    def has_targets(self) -> bool:
        """Whether the labels are targets, numbers to be predicted, rather than classes."""
        return self.classes == 0

    @property
    def outputs(self) -> int:
        """The number of outputs of a network for this data: one for each class or target."""
        return self.classes or math.prod(self.labels.shape[1:])

    def as_float(self, dtype: DTypeLike = np.float32) -> "Dataset":
        """Return the same data with images of a float dtype: uint8 is scaled from 0..255 to 0..1.

        Other types are converted, not scaled. Targets are converted as well. Data that has this
        dtype is returned unchanged; otherwise the images are new arrays, which this object does not
        keep.

        Example:
            >>> pixels = np.array([[0, 51, 255]], np.uint8)
            >>> data = Dataset("one", pixels, np.array([0]), pixels[:0], np.array([], int), 1)
            >>> data.as_float("float32").images
            array([[0. , 0.2, 1. ]], dtype=float32)
        """
        dtype = np.dtype(dtype)
        if dtype.kind != "f":
            raise DataError(f"{self.name}: as_float expects a float dtype; got {dtype.name}")
        changed: dict[str, NDArray[Any]] = {}
        if self.images.dtype != dtype:
            changed |= {
                "images": _floats(self.images, dtype),
                "test_images": _floats(self.test_images, dtype),
            }
        if self.has_targets and self.labels.dtype != dtype:
            changed |= {
                "labels": _floats(self.labels, dtype),
                "test_labels": _floats(self.test_labels, dtype),
            }
        return replace(self, **changed) if changed else self  # type: ignore[arg-type]

    def split(self, share: float, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """Return the data without a share of its training images, and this share, for validation.

        Each class gives the same share, rounded down or up, and keeps at least one image. Targets
        have no classes; their images are drawn from all. The same seed draws the same images, and
        both parts keep the order of their images. The test part stays with the first.

        Args:
            share: of the training images, more than 0 and less than 1.
            seed: of the draw, a whole number.

        Raises:
            DtypeError: the seed is not a whole number.
            DataError: the share is outside its limits, or too small for a single image.

        Example:
            >>> from pareo.data import load
            >>> training, validation = load("synthetic:1x8x8:2:120").split(0.2)
            >>> training
            <Dataset synthetic:1x8x8:2:120: 80 images of 1x8x8 float32, 20 more for testing, \
2 classes>
            >>> len(validation.images), len(validation.test_images)
            (20, 0)
        """
        seed = checked_seed(f"{self.name}: split", seed)
        if not 0 < share < 1:
            raise DataError(
                f"{self.name}: expected a share of more than 0 and less than 1; got {share}"
            )
        strata = np.zeros(len(self.labels), np.int64) if self.has_targets else self.labels
        taken = parts.by_chance(strata, max(1, self.classes), share, seed)
        if not taken.any():
            raise DataError(
                f"{self.name}: expected a share that takes at least one image and leaves one of "
                f"each class; got {share} of {len(self.images):,} images"
            )
        training = replace(self, images=self.images[~taken], labels=self.labels[~taken])
        validation = replace(
            self,
            images=self.images[taken],
            labels=self.labels[taken],
            test_images=self.images[:0],
            test_labels=self.labels[:0],
        )
        return training, validation

    def channel_statistics(self) -> ChannelStatistics:
        """Return the mean and the deviation of each channel of the training images, as floats.

        They describe the images that a network is given, those of `as_float`: of uint8 they are
        between 0 and 1. Data without channels (N, features) has one number for each feature. A
        channel with one value only has the deviation 0.

        Raises:
            DataError: the numbers are so large that their squares are not finite.

        Example:
            >>> from pareo.data import load
            >>> mean, deviation = load("mnist").channel_statistics()
            >>> [round(number, 4) for number in (*mean, *deviation)]
            [0.1307, 0.3081]
        """
        scale = 255 if self.images.dtype == np.uint8 else 1
        found = statistics.of_channels(self.images)
        if not all(map(math.isfinite, (*found.mean, *found.deviation))):
            raise DataError(f"{self.name}: expected images with finite squares; got larger numbers")
        return ChannelStatistics(*(tuple(number / scale for number in part) for part in found))

    def __repr__(self) -> str:
        kind = ("target" if self.outputs == 1 else "targets") if self.has_targets else "classes"
        return (
            f"<Dataset {self.name}: {len(self.images):,} images of {each(self.images)}, "
            f"{len(self.test_images):,} more for testing, {self.outputs:,} {kind}>"
        )


def _images(given: Any) -> NDArray[Any]:
    images = np.asarray(given)
    return images[:, None] if images.ndim == 3 else images


def _labelled(
    given: Any, names: tuple[str, ...], where: str
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels as numbers, and the names of classes if they are words."""
    labels = np.asarray(given)
    if labels.dtype == np.bool_:
        return labels.astype(np.int64), names
    if labels.dtype.kind != "U":
        return labels, names
    known = names or tuple(sorted(set(labels.ravel().tolist())))
    places = {one: place for place, one in enumerate(known)}
    if unknown := sorted(set(labels.ravel().tolist()) - set(known)):
        raise DataError(f"{where}: expected labels of {', '.join(known)}; got {unknown[0]!r}")
    found = np.array([places[one] for one in labels.ravel()], np.int64)
    return found.reshape(labels.shape), known


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
    check_images(f"{name}: ", "images", images)
    classes = len(class_names) or count_classes(labels)
    _check_classes(name, classes)
    labels = check_labels(f"{name}: ", "labels", labels, classes, "images", len(images))
    test = parts.last_of_each_class(labels, classes, TEST_SHARE)
    return Dataset(
        name, images[~test], labels[~test], images[test], labels[test], classes, class_names
    )


def count_classes(*labels: NDArray[Any]) -> int:
    """Return the number of classes of labels that count from 0; at least 1.

    Example:
        >>> count_classes(np.array([0, 3]), np.array([4]))
        5
    """
    return max([1, *(int(part.max()) + 1 for part in labels if part.size and is_whole(part))])


def _check_classes(name: str, classes: int) -> None:
    if classes > LARGEST_CLASSES:
        raise DataError(
            f"{name}: expected at most {LARGEST_CLASSES:,} classes, with labels from 0; "
            f"got the label {classes - 1}"
        )


def _floats(images: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if images.dtype == np.uint8:
        return np.divide(images, 255, dtype=dtype)
    with np.errstate(over="ignore"):  # too large a number becomes infinity, which the check reports
        return images.astype(dtype)
