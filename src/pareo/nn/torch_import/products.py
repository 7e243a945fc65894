"""ATen's products of two values, and attention that is made of them."""

import math
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from pareo.nn import layers
from pareo.nn.activations import Softmax
from pareo.nn.containers import joined_shape
from pareo.nn.shapes import Permute, Reshape
from pareo.nn.tokens import Attention
from pareo.nn.torch_import.arithmetic import add, masked_fill
from pareo.nn.torch_import.arranged import Arranged, arranged, plain
from pareo.nn.torch_import.convolutions import dense
from pareo.nn.torch_import.folded import Known, known_buffer
from pareo.nn.torch_import.joins import applied, scaled
from pareo.nn.torch_import.moved import Moved, numbers
from pareo.nn.torch_import.moved import attention as packed_attention
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.resampled import repeat_interleave
from pareo.nn.torch_import.values import Unsupported, Value, Weight
from pareo.nn.torch_import.views import movedim, shape_of


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
    outer = np.broadcast_shapes(one.value.shape[:-2], two.value.shape[:-2])
    parts = [
        reader.widened(replace(part, wide=(*outer, *part.shape[-2:])))
        for part in (one.value, two.value)
    ]
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
    if dtype is not None and not str(dtype).endswith(("float32", "float64")):
        raise Unsupported(f"with the dtype {dtype}")
    found = arranged(reader, x)
    return found.moved(reader, reader.layer(make(found.axis(dim)), found.value))


def attention(
    reader: Reader, query: Any, key: Any, value: Any, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention: one layer where queries, keys and values are one dense layer's, or several."""
    sizes = [shape_of(reader, one) for one in (query, key, value)]
    if enable_gqa:
        key, value = (
            repeat_interleave(reader, one, sizes[0][-3] // shape_of(reader, one)[-3], -3)
            for one in (key, value)
        )
    if attn_mask is None:
        try:
            return packed_attention(
                reader, query, key, value, None, dropout_p, is_causal, scale, enable_gqa
            )
        except Unsupported:
            pass
    usual = scale is None or math.isclose(scale, sizes[0][-1] ** -0.5)
    if usual and attn_mask is None and not dropout_p and sizes[0] == sizes[1] == sizes[2]:
        parts = [arranged(reader, one) for one in (query, key, value)]
        if all(len(one.value.shape) == 3 and one.alike(parts[0]) for one in parts):
            y = _together(reader, [one.value for one in parts], is_causal)
            return parts[0].moved(reader, y)
    if is_causal:
        torch = import_module("torch")
        wide = torch.full((sizes[0][-2], sizes[1][-2]), -math.inf, dtype=torch.float64)
        attn_mask = Known(wide.triu(1))
    return _written_out(reader, query, key, value, attn_mask, dropout_p, scale)


def _written_out(
    reader: Reader, query: Any, key: Any, value: Any, mask: Any, dropped: float, scale: Any
) -> Any:
    """Attention as products of matrices, with a mask of any kind."""
    factor = shape_of(reader, query)[-1] ** -0.5 if scale is None else float(scale)
    turned = movedim(reader, key, -1, -2)
    scores = matmul(reader, scaled(reader, query, factor, 0.0), turned)
    mask = known_buffer(reader, mask)
    if isinstance(mask, Known) and mask.array.dtype.kind == "b":
        scores = masked_fill(reader, scores, Known(~mask.tensor), -math.inf)
    elif mask is not None:
        scores = add(reader, scores, mask)
    shares = softmax(reader, scores, -1)
    if dropped:
        shares = applied(reader, layers.Dropout(dropped), shares)
    return matmul(reader, shares, value)


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
