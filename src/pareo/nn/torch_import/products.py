"""ATen's products of two values, and attention that is made of them."""

import math
from typing import Any

from pareo.nn import layers
from pareo.nn.activations import Affine, Softmax
from pareo.nn.containers import joined_shape
from pareo.nn.shapes import Permute, Reshape
from pareo.nn.tokens import Attention
from pareo.nn.torch_import.arranged import Arranged, arranged, plain
from pareo.nn.torch_import.convolutions import dense
from pareo.nn.torch_import.moved import Moved, numbers
from pareo.nn.torch_import.moved import attention as packed_attention
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value, Weight
from pareo.nn.torch_import.views import movedim


def matmul(reader: Reader, self: Any, other: Any) -> Any:
    """The product of two values as matrices, or that of a value and a weight."""
    if isinstance(other, Weight):
        found = arranged(reader, self)
        if len(other.seen) != 2:
            raise Unsupported(f"with a weight of shape {other.seen}")
        found.axis(-1)  # refused if it is the batch
        units = other.seen[1]
        y = dense(reader, found.value, units, {"w": (other, "same")})
        return found.moved(reader, y)
    one, two = arranged(reader, self), arranged(reader, other)
    return one.moved(reader, _product(reader, one, two))


def _product(reader: Reader, one: Arranged, two: Arranged) -> Value:
    same = len(one.value.shape) == len(two.value.shape)
    if not one.alike(two) or not same or one.place >= one.axes - 2:
        raise Unsupported("of values whose axes do not correspond")
    parts = [one.value, two.value]
    shape = joined_shape("matmul", "matmul", [part.shape for part in parts])
    return reader.join("matmul", parts, shape)


def einsum(reader: Reader, equation: str, tensors: Any, path: Any = None) -> Any:
    """A sum of products of two values over one index, as a product of matrices."""
    left, _, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if len(tensors) != 2 or len(names) != 2 or "." in equation or not out:
        raise Unsupported(f"of {equation}")
    one, two = names
    over = [c for c in one if c in two and c not in out]
    rows = [c for c in one if c not in two]
    columns = [c for c in two if c not in one]
    shared = [c for c in one if c in two and c in out]
    lengths = len(over), len(rows), len(columns)
    sorted_out = sorted(out) == sorted([*shared, *rows, *columns])
    if lengths != (1, 1, 1) or not sorted_out or len(set(one)) < len(one):
        raise Unsupported(f"of {equation}")
    first = _ordered(reader, tensors[0], one, [*shared, *rows, *over])
    second = _ordered(reader, tensors[1], two, [*shared, *over, *columns])
    y = _product(reader, first, second)
    found = first.moved(reader, y)
    order = [[*shared, *rows, *columns].index(c) for c in out]
    if order == sorted(order):
        return found
    return movedim(reader, found, order, list(range(len(order))))


def _ordered(reader: Reader, x: Any, names: str, wanted: list[str]) -> Arranged:
    """A value with its axes, which have these names, in another order."""
    order = [names.index(c) for c in wanted]
    index = numbers(reader.batch, plain(reader, x)) if isinstance(x, Value) else x.index
    origin = plain(reader, x) if isinstance(x, Value) else x.origin
    return arranged(reader, Moved(origin, index.transpose(order)))


def softmax(reader: Reader, self: Any, dim: int, dtype: Any = None) -> Any:
    """Softmax along any axis."""
    return along(reader, self, dim, dtype, Softmax)


def along(reader: Reader, x: Any, dim: int, dtype: Any, make: Any) -> Any:
    """A layer that has the number of an axis."""
    if dtype is not None:
        raise Unsupported("with a dtype")
    found = arranged(reader, x)
    return found.moved(reader, reader.layer(make(found.axis(dim)), found.value))


def attention(
    reader: Reader, query: Any, key: Any, value: Any, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention: one layer where queries, keys and values are one dense layer's, or several."""
    if attn_mask is not None or enable_gqa:
        raise Unsupported("with a mask" if attn_mask is not None else "with enable_gqa")
    try:
        return packed_attention(
            reader, query, key, value, None, dropout_p, is_causal, scale, enable_gqa
        )
    except Unsupported:
        queries, keys, values = (arranged(reader, one) for one in (query, key, value))
    if not queries.alike(keys) or not keys.alike(values) or len(queries.value.shape) < 2:
        raise Unsupported("of queries, keys and values whose axes do not correspond")
    size = queries.value.shape[-1]
    factor = size**-0.5 if scale is None else float(scale)
    shapes = {one.value.shape for one in (queries, keys, values)}
    usual = math.isclose(factor, size**-0.5) and len(shapes) == 1 and len(queries.value.shape) == 3
    if usual and not dropout_p:
        y = _together(reader, [queries.value, keys.value, values.value], is_causal)
        return queries.moved(reader, y)
    if is_causal:
        raise Unsupported("that is causal, with dropout, another scale or keys of other tokens")
    last = len(keys.value.shape)
    order = (*range(last - 1), last, last - 1)
    turned = reader.layer(Permute(order), keys.value)
    scaled = reader.layer(Affine(factor), queries.value)
    scores = _product(reader, queries.like(scaled), keys.like(turned))
    shares = reader.layer(Softmax(last), scores)
    if dropout_p:
        shares = reader.layer(layers.Dropout(dropout_p), shares)
    return queries.moved(reader, _product(reader, queries.like(shares), values))


def _together(reader: Reader, parts: list[Value], causal: bool) -> Value:
    """Queries, keys and values (heads, tokens, size) side by side, as `Attention` reads them."""
    heads, count, size = parts[0].shape
    features = []
    for part in parts:
        turned = reader.layer(Permute((0, 1, 3, 2)), part)
        features.append(reader.layer(Reshape((heads * size, count)), turned))
    whole = reader.join("concat", features, (3 * heads * size, count))
    y = reader.layer(Attention(heads, causal), reader.layer(Permute((0, 2, 1)), whole))
    parted = reader.layer(Reshape((count, heads, size)), y)
    return reader.layer(Permute((0, 2, 1, 3)), parted)
