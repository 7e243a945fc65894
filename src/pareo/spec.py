"""`Spec`: the shape and dtype of an array that need not exist yet."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pareo.errors import DtypeError, ShapeError

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class Spec:
    """The shape and dtype of an array, and which of its axes grows with the batch.

    >>> images = Spec((128, 1, 28, 28), "float32", batch=0)
    >>> images.nbytes
    401408
    >>> images.with_batch(1)
    Spec((1, 1, 28, 28), 'float32', batch=0)
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = field(default=FLOATS[0])
    batch: int | None = field(default=None, compare=False)

    def __init__(self, shape: Any, dtype: Any = "float32", batch: int | None = None) -> None:
        try:
            sizes = tuple(int(size) for size in shape)
        except (TypeError, ValueError):
            raise ShapeError(f"Spec expects a shape such as (128, 784); got {shape!r}") from None
        if any(size < 0 for size in sizes):
            raise ShapeError(f"Spec expects sizes of 0 or more; got {sizes}")
        if batch is not None and not -len(sizes) <= batch < len(sizes):
            raise ShapeError(f"Spec expects batch to be an axis of {sizes}; got {batch}")
        try:
            kind = np.dtype(dtype)
        except TypeError:
            raise DtypeError(f"Spec expects a dtype such as 'float32'; got {dtype!r}") from None
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", kind)
        object.__setattr__(self, "batch", batch)

    @classmethod
    def of(cls, array: Any) -> "Spec":
        """The spec of an array."""
        return _unchecked(array.shape, array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def like(self, shape: tuple[int, ...]) -> "Spec":
        """A spec of another shape with the same dtype."""
        return _unchecked(shape, self.dtype)

    def with_batch(self, size: int) -> "Spec":
        """The same spec for another batch size; unchanged where no axis is the batch."""
        if self.batch is None:
            return self
        shape = list(self.shape)
        shape[self.batch] = size
        return Spec(shape, self.dtype, self.batch)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def __repr__(self) -> str:
        batch = "" if self.batch is None else f", batch={self.batch}"
        return f"Spec({self.shape}, '{self.dtype}'{batch})"


def _unchecked(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spec:
    """A spec whose parts are known to be valid: this runs at every eager call."""
    spec = object.__new__(Spec)
    object.__setattr__(spec, "shape", shape)
    object.__setattr__(spec, "dtype", dtype)
    object.__setattr__(spec, "batch", None)
    return spec
