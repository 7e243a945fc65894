"""Which images belong to which part: the last of each class, or a share of each class by chance."""

import numpy as np
from numpy.typing import NDArray

_KEY = 1  # keeps the draws of `by_chance` apart from those of an epoch's order with the same seed


def last_of_each_class(labels: NDArray[np.int64], classes: int, nth: int) -> NDArray[np.bool_]:
    """Mark the last nth of each class, at least one image of a class that has two.

    >>> last_of_each_class(np.array([0, 0, 1, 1, 1, 0]), 2, 3)
    array([False, False, False, False,  True,  True])
    """
    sizes = np.bincount(labels, minlength=classes)
    taken = np.where(sizes > 1, np.maximum(sizes // nth, 1), 0)
    return _ranks(labels, sizes) >= (sizes - taken)[labels]


def by_chance(
    labels: NDArray[np.int64], classes: int, share: float, seed: int
) -> NDArray[np.bool_]:
    """Mark this share of all images, spread over the classes by their sizes.

    A class gives its share, rounded down or up. It always keeps one image.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> np.bincount(labels[by_chance(labels, 2, 0.5, seed=0)])
    array([2, 1])
    """
    sizes = np.bincount(labels, minlength=classes)
    chance = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_KEY,)))
    order = chance.permutation(len(labels))
    marked = np.empty(len(labels), np.bool_)
    marked[order] = _ranks(labels[order], sizes) < _quotas(sizes, share)[labels[order]]
    return marked


def _quotas(sizes: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """How many images each class gives: the largest remainders are rounded up."""
    exact = sizes * share
    quotas = np.floor(exact).astype(np.int64)  # less than the size, as the share is less than 1
    room = sizes - 1 - quotas > 0
    missing = round(float(sizes.sum()) * share) - int(quotas.sum())
    # Stable: of equal remainders, that of the lower class is rounded up.
    largest_first = np.argsort(quotas - exact, kind="stable")
    chosen = largest_first[room[largest_first] & (exact > quotas)[largest_first]]
    quotas[chosen[: max(0, missing)]] += 1
    return quotas


def _ranks(labels: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of each image among those of its class."""
    ranks = np.empty(len(labels), np.int64)
    first = np.cumsum(sizes) - sizes
    ranks[np.argsort(labels, kind="stable")] = np.arange(len(labels)) - np.repeat(first, sizes)
    return ranks
