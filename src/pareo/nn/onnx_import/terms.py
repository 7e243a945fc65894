"""Expressions that are one layer as a whole: GELU, layer normalisation and attention, written out.

Each function takes the next step of such an expression. A term that is none is refused.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.nn.activations import GELU, Power
from pareo.nn.layers import Shape
from pareo.nn.normalisation import Normalise
from pareo.nn.onnx_import.reader import OnnxReader, Step
from pareo.nn.onnx_import.values import Constant, Term
from pareo.nn.torch_import.arranged import plain
from pareo.nn.torch_import.moved import Moved, numbers
from pareo.nn.torch_import.products import attention
from pareo.nn.torch_import.values import Unsupported, Value

CLOSE = 1e-6  # relative: numbers such as the root of 2 are written in float32


def close(found: float, wanted: float) -> bool:
    """Whether a number of a file is this one."""
    return math.isclose(found, wanted, rel_tol=CLOSE)


def number_of(x: Any) -> float | None:
    """A constant that is one number; None for others."""
    if isinstance(x, Constant) and x.array.size == 1 and x.array.dtype.kind in "fiu":
        return float(x.array.reshape(()))
    return None


def scaled_from(reader: OnnxReader, x: Any) -> tuple[Any, float]:
    """The value of which another is a multiple, and the factor."""
    made = reader.nodes.get(x.node) if isinstance(x, Value) else None
    if made is None or not isinstance(made.what, Normalise):
        return x, 1.0
    deviations = set(made.what.deviation)
    if any(made.what.mean) or len(deviations) != 1:
        return x, 1.0
    return replace(x, node=made.reads[0]), 1 / deviations.pop()


def erf(reader: OnnxReader, step: Step) -> Term:
    """erf(x / root of 2), of which GELU is made."""
    x, factor = scaled_from(reader, step.inputs[0])
    if not isinstance(x, Value) or not close(factor, math.sqrt(0.5)):
        raise Unsupported("outside of GELU")
    return Term("erf", x)


def sqrt(reader: OnnxReader, step: Step) -> Any:
    """The deviation in a layer normalisation, or the root of values."""
    x = step.inputs[0]
    if isinstance(x, Value):
        return reader.layer(Power(0.5), x)
    if not isinstance(x, Term) or x.kind != "variance" or not x.more:
        raise Unsupported("outside of layer normalisation")
    return replace(x, kind="deviation")


def mean(x: Term, axes: list[int] | None, keep: bool) -> Term:
    """The variance in a layer normalisation."""
    last = len(x.x.seen) if isinstance(x.x, Value) else 0
    if x.kind != "squares" or not keep or axes not in ([-1], [last]):
        raise refused(x)
    return replace(x, kind="variance")


def less(x: Any, other: Any) -> Term | None:
    """x - mean(x)."""
    if isinstance(other, Term) and other.kind == "mean" and other.x == x:
        return Term("centred", x)
    return None


def square(x: Term) -> Term:
    """The squares in a layer normalisation."""
    if x.kind != "centred":
        raise refused(x)
    return replace(x, kind="squares")


def divided(x: Any, other: Any) -> Term | None:
    """What is left of a layer normalisation after its division; attention's scores, scaled."""
    if isinstance(x, Term) and isinstance(other, Term):
        if (x.kind, other.kind) == ("centred", "deviation") and x.x == other.x:
            return Term("normalised", x.x, other.more)
        raise refused(other)
    found = number_of(other)
    return scaled(x, 1 / found) if found else None


def scaled(x: Any, factor: float) -> Any:
    """A factor of attention's queries, keys or scores, or the half in GELU; None for values."""
    if isinstance(x, Moved):
        return Term("scaled", x, (factor,))
    if not isinstance(x, Term):
        return None
    if x.kind in ("scaled", "scores"):
        return replace(x, more=(x.more[0] * factor, *x.more[1:]))
    if x.kind == "erf + 1" and close(factor, 0.5):
        return replace(x, kind="(erf + 1) / 2")
    raise refused(x)


def multiplied(reader: OnnxReader, x: Term, other: Any) -> Any:
    """The next step of GELU or of a layer normalisation."""
    if x is other:
        return square(x)
    if x.kind == "normalised" and isinstance(other, Constant):
        return replace(x, kind="normalised and scaled", more=(*x.more, other))
    if x.kind in ("erf + 1", "(erf + 1) / 2") and isinstance(other, Value):
        origin, factor = (other, 1.0) if other == x.x else scaled_from(reader, other)
        if origin == x.x:
            whole = factor * (0.5 if x.kind.endswith("2") else 1.0)
            if close(whole, 0.5):
                return reader.layer(GELU(), x.x)
            if close(whole, 1.0):
                return replace(x, kind="x (erf + 1)")
    factor_ = number_of(other)
    if factor_ is not None:
        if x.kind == "x (erf + 1)" and close(factor_, 0.5):
            return reader.layer(GELU(), x.x)
        return scaled(x, factor_)
    raise refused(x)


def added(x: Term, other: Any) -> Any:
    """The next step, which adds a number; a layer normalisation is complete with its shift."""
    found = number_of(other)
    if x.kind == "erf" and found == 1.0:
        return replace(x, kind="erf + 1")
    if x.kind == "variance" and found is not None and not x.more:
        return replace(x, more=(found,))
    if x.kind == "scores" and isinstance(other, Constant) and not x.more[2]:
        return replace(x, more=(*x.more[:2], _is_causal(other, x)))
    raise refused(x)


def _is_causal(mask: Constant, scores: Term) -> bool:
    """Whether a mask forbids the keys after each query, and nothing else."""
    count = scores.x.index.shape[-2]
    shape = mask.array.shape
    after = np.triu(np.ones((count, count), bool), 1)
    if shape[-2:] != (count, count) or math.prod(shape[:-2]) != 1:
        raise Unsupported(f"with a mask of shape {shape}")
    array = mask.array.reshape(count, count)
    if (array[~after] != 0).any() or (array[after] > -1e30).any():
        raise Unsupported("with a mask that is not causal")
    return True


def _factor(x: Any) -> tuple[Any, float]:
    if isinstance(x, Term) and x.kind == "scaled":
        return x.x, x.more[0]
    return x, 1.0


def transposed(reader: OnnxReader, x: Term, axes: Any) -> Term:
    """Keys with their last axes exchanged, after their factor."""
    if x.kind != "scaled" or axes is None:
        raise refused(x)
    return replace(x, x=replace(x.x, index=x.x.index.transpose(axes)))


def product(reader: OnnxReader, x: Any, y: Any) -> Any:
    """Queries times keys, or the shares of values times the values."""
    x, y = _as_moved(reader, x), _as_moved(reader, y)
    if isinstance(x, Term) and x.kind == "shares" and isinstance(y, Moved):
        factor, keys, causal = x.more
        usual = close(factor, x.x.index.shape[-1] ** -0.5)
        scale = None if usual else factor
        return attention(reader, x.x, keys, y, is_causal=causal, scale=scale)
    (queries, one), (keys, two) = _factor(x), _factor(y)
    if not isinstance(queries, Moved) or not isinstance(keys, Moved) or keys.index.ndim < 3:
        raise Unsupported("of two values that both depend on the input, outside of attention")
    turned = replace(keys, index=keys.index.swapaxes(-1, -2))
    return Term("scores", queries, (one * two, turned, False))


def _as_moved(reader: OnnxReader, x: Any) -> Any:
    if not isinstance(x, Value):
        return x
    x = plain(reader, x)
    return Moved(x, numbers(reader.batch, x))


def softmax(x: Term, axis: int) -> Term:
    """The shares of each key in a query."""
    if x.kind != "scores" or axis not in (-1, x.x.index.ndim - 1):
        raise refused(x)
    return replace(x, kind="shares")


def shape_of(x: Term) -> Shape:
    """The shape of a factored value of attention."""
    if x.kind != "scaled":
        raise refused(x)
    return tuple(x.x.index.shape)


def refused(x: Term) -> Unsupported:
    """The error for a term that is followed by something else than its layer has."""
    return Unsupported(x.reason)
