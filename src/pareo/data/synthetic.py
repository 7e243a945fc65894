"""Synthetic images of any shape, from which a network can learn."""

import re

import numpy as np

from pareo.data.dataset import TEST_SHARE, Dataset
from pareo.errors import DataError
from pareo.seeds import checked_seed

_FORM = re.compile(r"synthetic:(\d+(?:x\d+x\d+)?)(?::(\d+))?(?::(\d+))?", re.ASCII)
_GRID = 4  # the pattern of a class is so many squares high and wide, so that pooling preserves it
_NOISE = 0.25
_BLOCK = 64


def parse(text: str, seed: int = 0) -> Dataset:
    """Return the dataset of `synthetic:CxHxW[:CLASSES[:COUNT]]` or `synthetic:FEATURES[...]`.

    Example:
        >>> parse("synthetic:3x32x32:5:120")
        <Dataset synthetic:3x32x32:5:120: 100 images of 3x32x32 float32, 20 more for testing, \
5 classes>
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise DataError(
            "expected synthetic:CxHxW[:CLASSES[:COUNT]], such as synthetic:3x32x32:10:600; "
            f"got '{text}'"
        )
    shape = tuple(int(size) for size in found[1].split("x"))
    return make(shape, int(found[2] or 10), int(found[3] or 600), seed, name=text)


def make(
    shape: tuple[int, ...],
    classes: int = 10,
    count: int = 600,
    seed: int = 0,
    name: str = "synthetic",
) -> Dataset:
    """Return `count` images, the last sixth for testing; the same seed gives the same images.

    A class has a coarse pattern of values from 0 to 1, and an image is the pattern of its class
    with normal noise of deviation 0.25 on every value; float32. Classes are of equal size, give
    or take one image.

    Args:
        shape: of one image, (C, H, W) or (features,).
        classes: at least 2.
        count: at least 2.
        seed: of the patterns and the noise, a whole number.

    Raises:
        DtypeError: the seed is not a whole number.
        DataError: a size is too small, or the images do not fit in memory.

    Example:
        >>> data = make((1, 8, 8), classes=2, count=60)
        >>> data.images.shape, data.test_images.shape
        ((50, 1, 8, 8), (10, 1, 8, 8))
    """
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise DataError(
            f"{name}: expected a shape (C, H, W) or (features,) of sizes from 1; got {shape}"
        )
    for what, size in (("classes", classes), ("images", count)):
        if size < 2:
            raise DataError(f"{name}: expected at least 2 {what}; got {size}")
    seed = checked_seed(f"{name}:", seed)
    try:
        images = np.empty((count, *shape), np.float32)
        rng = np.random.default_rng(seed)
        labels = rng.permutation(np.arange(count) % classes)
        coarse = tuple(min(size, _GRID) for size in shape[-2:]) if len(shape) == 3 else shape
        patterns = rng.random((classes, *shape[:-2], *coarse), np.float32)
    except (MemoryError, ValueError) as error:
        raise DataError(
            f"{name}: expected images that fit in memory; got {count:,} of shape {shape}"
        ) from error
    stretch = [np.arange(size) * few // size for size, few in zip(shape[-2:], coarse, strict=True)]
    # In blocks, so that no second array of the size of the images is needed.
    for start in range(0, count, _BLOCK):
        block = images[start : start + _BLOCK]
        rng.standard_normal(dtype=np.float32, out=block)
        block *= _NOISE
        pattern = patterns[labels[start : start + _BLOCK]]
        block += pattern[(..., *np.ix_(*stretch))]
    train = count - max(1, count // TEST_SHARE)
    return Dataset(name, images[:train], labels[:train], images[train:], labels[train:], classes)
