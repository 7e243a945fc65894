"""The tools that `cases.py` is written with: drawing arrays and attributes, entering a case."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np

LAYOUTS = ("C", "F", "sliced", "reversed", "read-only")


@dataclass(frozen=True)
class Call:
    """The operands of one call in order, and its attributes as a user would write them."""

    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    many: bool = False

    def of(self, operator: Callable[..., Any], *operands: Any, **more: Any) -> Any:
        """Call an operator this way; other operands may take the place of these."""
        given = operands or self.operands
        return operator(*([given] if self.many else given), **{**self.attributes, **more})


@dataclass(frozen=True)
class Case:
    """What the tests know about one operator."""

    make: Callable[["Draw"], Call]
    torch: Callable[..., Any] | None
    exact: bool

    def calls(self, dtype: str, layout: str | None = None) -> st.SearchStrategy[Call]:
        """Calls of the operator, with arrays of this dtype, in this or any memory layout."""
        return st.composite(lambda draw: self.make(Draw(draw, dtype, layout)))()


CASES: dict[str, Case] = {}


def case(
    torch: Callable[..., Any] | None, exact: bool = False
) -> Callable[[Callable[["Draw"], Call]], None]:
    """Enter a function that draws calls as the case of the operator that it is named after.

    exact: the operator moves elements, or rounds each result once and correctly, so that every
    device must give the same bits.
    """

    def enter(make: Callable[["Draw"], Call]) -> None:
        CASES[make.__name__.rstrip("_")] = Case(make, torch, exact)

    return enter


def laid_out(array: Any, layout: str) -> Any:
    """The same values in another memory layout; what lies between them is NaN, or -1."""
    if layout == "F":
        return array.copy(order="F")
    if layout == "sliced" and array.ndim:
        gap = np.nan if array.dtype.kind == "f" else -1
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), gap, array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "reversed" and array.ndim:
        return array[::-1].copy()[::-1]
    if layout == "read-only":
        array = array.copy()
        array.flags.writeable = False
    return array


class Draw:
    """Draws the parts of a call."""

    def __init__(self, draw: Callable[..., Any], dtype: str, layout: str | None) -> None:
        self._draw = draw
        self._layout = layout
        self.dtype = dtype
        self._random = np.random.default_rng(draw(st.integers(0, 999)))

    def whole(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def flag(self) -> bool:
        return self._draw(st.booleans())

    def one_of(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def size(self, least: int = 0, most: int = 3) -> int:
        """The length of a side; where it may be 0 it seldom is, for that makes all else empty."""
        return 0 if least == 0 and self.whole(0, 9) == 9 else self.whole(max(1, least), most)

    def shape(self, dims: tuple[int, int] = (0, 3), least: int = 0, most: int = 3) -> Any:
        return tuple(self.size(least, most) for _ in range(self.whole(*dims)))

    def shrunk(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        kept = shape[self.whole(0, len(shape)) :]
        return tuple(1 if self.flag() else size for size in kept)

    def _array(self, values: Any) -> Any:
        layout = self._layout or self.one_of(*LAYOUTS)
        return laid_out(np.asarray(values, self.dtype), layout)

    def array(self, shape: tuple[int, ...], low: float = -2, high: float = 2) -> Any:
        return self._array(self._random.uniform(low, high, shape))

    def away(self, shape: tuple[int, ...]) -> Any:
        """Of both signs, and never near 0."""
        return self._array(
            self._random.uniform(0.5, 2, shape) * self._random.choice([-1, 1], shape)
        )

    def distinct(self, shape: tuple[int, ...]) -> Any:
        """No two alike or nearly so."""
        size = int(np.prod(shape))
        return self._array(((self._random.permutation(size) - size // 2) / 8).reshape(shape))

    def tied(self, shape: tuple[int, ...]) -> Any:
        """Few different values, so that some are equally large."""
        return self._array(self._random.integers(-1, 2, shape))

    def number(self, shape: tuple[int, ...] = ()) -> Any:
        """A Python number or an array."""
        return self.array(shape) if self.flag() else self._random.uniform(-2, 2)

    def labels(self, rows: int, classes: int) -> Any:
        kind = self.one_of("int64", "int32", "uint8")
        return self._random.integers(0, classes, rows).astype(kind)

    def axis(self, ndim: int) -> int:
        return self.whole(-ndim, ndim - 1)

    def order(self, ndim: int) -> tuple[int, ...]:
        """All axes, in any order, some counted from the end."""
        axes = self._draw(st.permutations(range(ndim)))
        return tuple(axis - ndim if self.flag() else axis for axis in axes)

    def axes(self, ndim: int) -> Any:
        """None, one axis, or several in any order."""
        several = self.order(ndim)[: self.whole(0, ndim)]
        return self.one_of(None, several, *several[:1])

    def pair(self, low: int, high: int) -> Any:
        """One number, or two for height and width."""
        return self.one_of(self.whole(low, high), (self.whole(low, high), self.whole(low, high)))

    def padding(self, vertical: int, horizontal: int) -> Any:
        """One number, two or four, up to these."""
        high, wide = self.whole(0, vertical), self.whole(0, horizontal)
        more = self.whole(0, vertical), self.whole(0, horizontal)
        return self.one_of(min(high, wide), (high, wide), (high, wide, *more))
