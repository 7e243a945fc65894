"""Scaled dot-product attention, computed without storing the matrix of scores where possible."""

import math
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import GradientError, ShapeError
from pareo.operators.attributes import Flag
from pareo.operators.core import Array, Number, operator
from pareo.operators.reduction import unbroadcast
from pareo.spec import Spec


def _check(name: str, q: Spec, k: Spec, v: Spec, mask: Spec) -> None:
    """q (..., Lq, d), k (..., Lk, d), v (..., Lk, e), the leading axes the same."""
    shapes = f"got q {q.shape}, k {k.shape} and v {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ShapeError(f"{name} expects q, k and v with the same leading axes; {shapes}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or not k.shape[-2] * q.shape[-1]:
        raise ShapeError(
            f"{name} expects q (..., Lq, d), k (..., Lk, d) and v (..., Lk, e), with at least one "
            f"key of at least one element; {shapes}"
        )
    scores = (*q.shape[:-1], k.shape[-2])
    try:
        fits = np.broadcast_shapes(mask.shape, scores) == scores
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name} expects a mask that broadcasts to the scores {scores}; got {mask.shape}"
        )


def attention(q: Any, k: Any, v: Any, mask: Any = 0.0, causal: bool = False) -> Any:
    """softmax(q k^T / sqrt(d) + mask) v, for each index of the leading axes (batch, heads).

    `mask` is added to the scores before the softmax: minus infinity forbids a position. With
    `causal`, query i sees the keys up to i only.

    >>> one = np.ones((1, 1, 2, 4))
    >>> op.attention(one, one, np.arange(8.0).reshape(1, 1, 2, 4), causal=True)
    array([[[[0., 1., 2., 3.],
             [2., 3., 4., 5.]]]])
    """
    return op.attention_with_sums(q, k, v, mask, causal)[0]


@operator
def attention_with_sums(
    q: Array, k: Array, v: Array, mask: Number = 0.0, causal: Flag = False
) -> tuple[Spec, Spec]:
    """The result of `attention`, and of each row of scores log(sum(exp(scores))).

    A row in which every key is forbidden is 0, and its sum minus infinity.

    >>> y, sums = op.attention_with_sums(*[np.zeros((1, 2))] * 3)
    >>> sums
    array([0.])
    """
    _check("attention", q, k, v, mask)
    return q.like((*q.shape[:-1], v.shape[-1])), q.like(q.shape[:-1])


def _pairs(q: Spec, k: Spec, causal: bool) -> int:
    """How many scores there are: pairs of a query and a key that it sees."""
    queries, keys = q.shape[-2], k.shape[-2]
    each = sum(min(i + 1, keys) for i in range(queries)) if causal else queries * keys
    return math.prod(q.shape[:-2]) * each


def _reads(q: Spec, k: Spec, v: Spec, mask: Spec, causal: bool) -> tuple[int, int, int]:
    """How many elements of k, of v and of the mask are needed: those that some query sees."""
    queries, keys = q.shape[-2], k.shape[-2]
    seen = min(queries, keys) if causal else keys if queries else 0
    rows, columns = (1, 1, *mask.shape)[-2:]
    heads = math.prod(mask.shape[:-2])
    if rows > 1 and columns > 1:
        needed = _pairs(q.like((queries, 1)), k.like((keys, 1)), causal)
    else:
        needed = min(rows, queries) * min(columns, seen)
    share = math.prod(q.shape[:-2])
    return share * seen * q.shape[-1], share * seen * v.shape[-1], heads * needed


@attention_with_sums.flops
def _(out: Any, q: Spec, k: Spec, v: Spec, mask: Spec, causal: bool) -> int:
    each = 2 * q.shape[-1] + 2 * v.shape[-1] + 6
    return _pairs(q, k, causal) * each + math.prod(q.shape[:-1]) * (v.shape[-1] + 2)


@attention_with_sums.reads
def _(out: Any, q: Spec, k: Spec, v: Spec, mask: Spec, causal: bool) -> list[int]:
    return [q.size, *_reads(q, k, v, mask, causal)]


@attention_with_sums.gradient
def _(g: Any, out: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    y, sums = out
    if g[1] is not None:
        raise GradientError("attention_with_sums has no gradient for its second result")
    parts = op.attention_gradient(g[0], q, k, v, y, sums, mask, causal)
    return *parts, _mask_gradient(g[0], q, k, v, y, sums, mask, causal) if mask.ndim else None


def _mask_gradient(
    g: Any, q: Any, k: Any, v: Any, y: Any, sums: Any, mask: Any, causal: bool
) -> Any:
    """The gradient of the mask; it stores all scores, and is dropped where nothing reads it."""
    scores = op.add(op.scale(1 / math.sqrt(q.shape[-1]), op.dot(q, _transposed(k))), mask)
    if causal:
        hidden = np.triu(np.full((q.shape[-2], k.shape[-2]), -np.inf, q.dtype), 1)
        scores = op.add(scores, hidden)
    limit = float(np.finfo(q.dtype).max)  # minus infinity minus itself would be NaN
    finite = op.clip(op.reshape(sums, (*sums.shape, 1)), -limit, limit)
    chances = op.exp(op.sub(scores, finite))
    inner = op.sum(op.hadamard(g, y), axis=-1, keepdims=True)
    return unbroadcast(op.hadamard(chances, op.sub(op.dot(g, _transposed(v)), inner)), mask)


def _transposed(a: Any) -> Any:
    return op.transpose(a, (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2))


@operator
def attention_gradient(
    g: Array, q: Array, k: Array, v: Array, y: Array, sums: Array, mask: Number = 0.0,
    causal: Flag = False,
) -> tuple[Spec, Spec, Spec]:  # fmt: skip
    """Gradient of `attention`: that of q, of k and of v; y and sums are its results.

    >>> q, k, v, g = np.ones((4, 1, 2))
    >>> op.attention_gradient(g, q, k, v, *op.attention_with_sums(q, k, v))[2].round(6)
    array([[1., 1.]])
    """
    _check("attention_gradient", q, k, v, mask)
    wanted = (*q.shape[:-1], v.shape[-1])
    if g.shape != wanted or y.shape != wanted or sums.shape != wanted[:-1]:
        raise ShapeError(
            f"attention_gradient expects g and y of shape {wanted} and sums of {wanted[:-1]}; "
            f"got {g.shape}, {y.shape} and {sums.shape}"
        )
    return q, k, v


@attention_gradient.flops
def _(out: Any, g: Spec, q: Spec, k: Spec, *_: Spec, causal: bool) -> int:
    each = 6 * q.shape[-1] + 4 * g.shape[-1] + 7
    return _pairs(q, k, causal) * each + 2 * g.size


@attention_gradient.reads
def _(
    out: Any, g: Spec, q: Spec, k: Spec, v: Spec, y: Spec, sums: Spec, mask: Spec, causal: bool
) -> list[int]:
    keys, values, needed = _reads(q, k, v, mask, causal)
    return [g.size, q.size, keys, values, y.size, sums.size, needed]
