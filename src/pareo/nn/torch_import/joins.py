"""Values joined with each other: sums, products and concatenations, in any order of axes."""

from typing import Any

from pareo.nn.containers import joined_shape
from pareo.nn.layers import Layer
from pareo.nn.torch_import.arranged import arranged, origin_of, plain, with_origin
from pareo.nn.torch_import.operands import affine
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value, Weight
from pareo.nn.torch_import.views import value


def applied(reader: Reader, layer: Layer, x: Any) -> Any:
    """A layer that changes each element by itself, of values in any order."""
    return with_origin(x, reader.layer(layer, value(origin_of(x))))


def scaled(reader: Reader, x: Any, factor: float, shift: float) -> Any:
    """factor * x + shift, of values in any order."""
    return with_origin(x, affine(reader, value(origin_of(x)), factor, shift))


def joined_in_order(reader: Reader, how: str, one: Any, two: Any) -> Any:
    """A join of values whose batch is not the first axis, but at the same place in both."""
    first, second = arranged(reader, one), arranged(reader, two)
    if not first.alike(second):
        raise Unsupported("of values whose batch is not at the same place")
    return first.moved(reader, joined(reader, how, [first.value, second.value]))


def joined(reader: Reader, how: str, parts: list[Any]) -> Value:
    if not all(isinstance(part, Value) for part in parts):
        other = next(part for part in parts if not isinstance(part, Value))
        what = f"a weight of shape {other.shape}" if isinstance(other, Weight) else f"{other!r}"
        raise Unsupported(f"with {what}")
    if how != "concat" and len({part.last for part in parts}) > 1:
        parts = [plain(reader, part) for part in parts]
    if len({(part.last, len(part.shape)) for part in parts}) > 1:
        raise Unsupported("of values whose axes do not correspond")
    if how == "concat" and any(part.wide for part in parts):
        raise Unsupported("of values that are repeated by expand")
    return reader.join(how, parts, joined_shape(how, how, [part.shape for part in parts]))
