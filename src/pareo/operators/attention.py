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


def _scores(q: Spec, k: Spec) -> int:
    return math.prod(q.shape[:-1]) * k.shape[-2]


@attention_with_sums.flops
def _(out: Any, q: Spec, k: Spec, v: Spec, mask: Spec, causal: bool) -> int:
    return _scores(q, k) * (2 * q.shape[-1] + 2 * v.shape[-1] + 5)


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
    chances = op.exp(op.sub(scores, op.reshape(sums, (*sums.shape, 1))))
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
    >>> [part.tolist() for part in op.attention_gradient(g, q, k, v, v, np.array([2.0]))][2]
    [[1.8..., 1.8...]]
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
def _(out: Any, g: Spec, q: Spec, k: Spec, v: Spec, *_: Spec, causal: bool) -> int:
    each = 6 * q.shape[-1] + 4 * v.shape[-1] + 6
    return _scores(q, k) * each + 2 * g.size
