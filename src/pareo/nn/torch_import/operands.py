"""What operators are read from: images, weights and pairs of sizes, or a reason why not."""

import math
from typing import Any

from pareo.nn.activations import Affine
from pareo.nn.layers import Shape
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value, Weight


def images(x: Any) -> Value:
    """A value that is images with channels first; others are refused."""
    if not isinstance(x, Value) or len(x.shape) != 3 or x.last:
        raise Unsupported("its input is not images (N, C, H, W)")
    return x


def weight_of(given: Any) -> Weight:
    """A parameter or buffer of the module itself; others are refused."""
    if not isinstance(given, Weight):
        raise Unsupported("its weight is not a parameter of the module itself")
    return given


def square(sizes: Any) -> Any:
    """A pair of sizes, as one number if they are the same."""
    sizes = [sizes, sizes] if isinstance(sizes, int) else list(sizes)
    if len(sizes) == 1:
        sizes *= 2
    return sizes[0] if sizes[0] == sizes[1] else tuple(sizes)


def pair(sizes: Any) -> tuple[int, int]:
    """A number, or one or two in a list, as two."""
    height, width = [sizes] * 2 if isinstance(sizes, int) else list(sizes) * (3 - len(sizes))
    return height, width


def named(w: Weight, b: Any, how: str = "same") -> dict[str, tuple[Weight, str]]:
    found = {"w": (w, how)}
    return found if b is None else {**found, "b": (weight_of(b), "same")}


def stripped(shape: Shape) -> Shape:
    """A shape without the ones at its start, as broadcasting reads it."""
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def affine(reader: Reader, x: Value, factor: float, shift: float) -> Value:
    """x * factor + shift, with fixed numbers."""
    if (factor, shift) == (1, 0):
        return x
    if not math.isfinite(factor) or not math.isfinite(shift):
        raise Unsupported(f"with {factor} and {shift}")
    return reader.layer(Affine(float(factor), float(shift)), x)
