"""Dataset.split: a validation part of every class, drawn from the seed alone."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pareo.data import Dataset, load
from pareo.errors import DataError, DtypeError

SHARES = [0.05, 0.1, 0.25, 1 / 3, 0.5, 0.9]
DRAWN = [3, 5, 6, 7, 8, 10]


def numbered(labels: np.ndarray, classes: int, **more: Any) -> Dataset:
    """Images that hold their own number."""
    images = np.arange(len(labels))[:, None]
    return Dataset("numbered", images, labels, images[:1] + 1000, labels[:1], classes, **more)


@given(
    labels=hnp.arrays(np.int64, st.integers(1, 80), elements=st.integers(0, 5)),
    share=st.sampled_from(SHARES),
    seed=st.integers(0, 2**64),
)
def test_each_class_gives_its_share(labels: np.ndarray, share: float, seed: int) -> None:
    data = numbered(labels, 7)
    sizes = np.bincount(labels, minlength=7)
    try:
        training, validation = data.split(share, seed)
    except DataError:
        # Nothing to take: each class has one image, or the share is less than half an image.
        assert sizes.max() == 1 or len(labels) * share <= 0.5
        return
    kept, taken = training.images[:, 0], validation.images[:, 0]
    assert sorted([*kept, *taken]) == list(range(len(labels)))
    for part, found in ((kept, training), (taken, validation)):
        assert (np.diff(part) > 0).all()
        np.testing.assert_array_equal(labels[part], found.labels)
        assert found.classes == 7
    for one, size in enumerate(sizes):
        # In exact arithmetic, because a product such as 3 * (1 / 3) is rounded.
        exact, given = size * Fraction(share), (labels[taken] == one).sum()
        assert abs(given - exact) <= 1
        assert given <= max(0, size - 1)
    if sizes[sizes > 0].min() >= 20:
        assert len(taken) == round(len(labels) * share)


def test_the_total_is_the_share_although_classes_are_rounded() -> None:
    """Each of 100 classes has 5 images, a tenth of which is half an image."""
    training, validation = numbered(np.arange(500) % 100, 100).split(0.1)
    assert (len(training.images), len(validation.images)) == (450, 50)
    assert np.bincount(validation.labels).max() == 1


@pytest.mark.parametrize(
    ("sizes", "share", "taken"),
    [
        ((3, 9), 0.1, (0, 1)),  # 0.3 and 0.9 images: the larger remainder is rounded up
        ((1, 3), 0.5, (0, 2)),  # the only image of a class stays, and another class gives one more
        ((3,), np.nextafter(1, 0), (2,)),  # the largest share below 1
    ],
)
def test_what_is_rounded_up(sizes: tuple[int, ...], share: float, taken: tuple[int, ...]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    validation = numbered(labels, len(sizes)).split(share)[1]
    assert tuple(np.bincount(validation.labels, minlength=len(sizes))) == taken


def test_the_seed_alone_decides() -> None:
    data = numbered(np.arange(600) % 3, 3)
    drawn = [data.split(0.2, seed)[1].images[:, 0].tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    # By chance, not the first or the last: about as many from each half.
    assert 40 < sum(number < 300 for number in drawn[0]) < 80
    # Drawn once: another version of the code must draw the same, or resumed runs would differ.
    assert numbered(np.arange(12) % 3, 3).split(0.5, 7)[1].images[:, 0].tolist() == DRAWN


def test_the_draw_is_not_that_of_the_first_epoch() -> None:
    data = numbered(np.zeros(100, int), 1)
    for order in (np.random.default_rng(5), np.random.default_rng([5, 0])):
        first = sorted(order.permutation(100)[:50].tolist())
        assert data.split(0.5, 5)[1].images[:, 0].tolist() != first


def test_the_test_part_and_the_names_stay() -> None:
    data = numbered(np.arange(10) % 2, 2, class_names=("even", "odd"))
    training, validation = data.split(0.4)
    assert training.test_images.tolist() == [[1000]]
    assert len(validation.test_images) == len(validation.test_labels) == 0
    assert training.class_names == validation.class_names == ("even", "odd")
    assert training.name == validation.name == "numbered"


@pytest.mark.parametrize("shape", [(50,), (50, 3)])
def test_targets_are_drawn_from_all(shape: tuple[int, ...]) -> None:
    targets = np.arange(float(np.prod(shape))).reshape(shape)
    training, validation = numbered(targets, 0).split(0.2, 3)
    assert (len(training.images), len(validation.images)) == (40, 10)
    for part in (training, validation):
        np.testing.assert_array_equal(part.labels, targets[part.images[:, 0]])


def test_mnist_keeps_its_proportions() -> None:
    data = load("mnist")
    training, validation = data.split(1 / 6, 0)
    assert (len(training.images), len(validation.images)) == (50_000, 10_000)
    sizes, taken = np.bincount(data.labels), np.bincount(validation.labels)
    assert (np.abs(taken - sizes / 6) < 1).all()


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_a_share_out_of_range(share: float) -> None:
    with pytest.raises(DataError, match=r"numbered: expected a share of more than 0 and less than"):
        numbered(np.zeros(9, int), 1).split(share)


def test_nothing_to_take() -> None:
    message = r"numbered: expected a share that takes at least one image .*; got 0.1 of 4 images"
    with pytest.raises(DataError, match=message):
        numbered(np.zeros(4, int), 1).split(0.1)
    with pytest.raises(DataError, match=r"leaves one of each class; got 0.9 of 3 images"):
        numbered(np.arange(3), 3).split(0.9)
    with pytest.raises(DtypeError, match=r"numbered: split expects a seed .*; got 0.5"):
        numbered(np.zeros(9, int), 1).split(0.5, 0.5)  # type: ignore[arg-type]
