"""Attention, some heads or some queries at a time: never the scores of all heads at once."""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.vectorized.table import BLOCK, Array, backend
from pareo.device import current
from pareo.spec import Spec

MOST = 4 * BLOCK  # scores at a time


def _at_once(q: Spec, k: Spec) -> tuple[int, int]:
    """How many heads and how many queries of each to take at a time."""
    heads, queries, keys = prod(q.shape[:-2]), q.shape[-2], k.shape[-2]
    if queries * keys > MOST:
        return 1, max(1, MOST // keys)
    return max(1, min(heads, MOST // max(queries * keys, 1))), max(queries, 1)


def _pieces(q: Any, k: Any, causal: bool) -> Iterator[tuple[slice, slice, slice]]:
    """The heads, the queries and the keys that they may see, piece by piece."""
    at_once, rows = _at_once(q, k)
    for head in range(0, prod(q.shape[:-2]), at_once):
        for row in range(0, q.shape[-2], rows):
            last = min(row + rows, q.shape[-2])
            seen = min(last, k.shape[-2]) if causal else k.shape[-2]
            yield slice(head, head + at_once), slice(row, last), slice(0, seen)


def _heads(array: Array) -> Array:
    return array.reshape(prod(array.shape[:-2]), *array.shape[-2:])


def _scores(
    work: Array, q: Array, k: Array, mask: Array, where: tuple[slice, slice, slice], causal: bool
) -> Array:
    """The scores of one piece, in `work`; minus infinity where a key is forbidden."""
    heads, rows, keys = where
    some, others = _heads(q)[heads, rows], _heads(k)[heads, keys]
    shape = (*some.shape[:2], others.shape[1])
    scores = work[: prod(shape)].reshape(shape)
    np.matmul(some, others.transpose(0, 2, 1), out=scores)
    np.multiply(scores, q.shape[-1] ** -0.5, out=scores)
    _add_mask(scores, q, k, mask, where)
    if causal:
        for row in range(rows.start, min(rows.stop, keys.stop)):
            scores[:, row - rows.start, row + 1 :] = -np.inf
    return scores


def _add_mask(
    scores: Array, q: Array, k: Array, mask: Array, where: tuple[slice, slice, slice]
) -> None:
    if mask.size == 1:
        np.add(scores, mask.reshape(()), out=scores)
        return
    heads, rows, keys = where
    wide = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))  # a view
    if prod(mask.shape[:-2]) == 1:
        np.add(scores, wide[(0,) * (wide.ndim - 2)][rows, keys], out=scores)
        return
    for number in range(len(scores)):
        own = wide[np.unravel_index(heads.start + number, wide.shape[:-2])]
        np.add(scores[number], own[rows, keys], out=scores[number])


def _room(out: Any, q: Spec, k: Spec, *_: Spec, causal: bool) -> list[Spec]:
    heads, rows = _at_once(q, k)
    return [
        q.like((heads * rows * k.shape[-2],)),
        q.like((heads * rows,)),
        q.like((heads * rows,)),
        Spec((heads * rows,), bool),
    ]


@backend.kernel(strided=False, scratch=_room)
def attention_with_sums(
    out: tuple[Array, Array],
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    causal: bool,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    work, peaks, totals, marks = scratch
    result, sums = _heads(out[0]), out[1].reshape(prod(q.shape[:-2]), q.shape[-2])
    for where in _pieces(q, k, causal):
        heads, rows, keys = where
        scores = _scores(work, q, k, mask, where, causal)
        lines = (*scores.shape[:2], 1)
        peak, total, nothing = (a[: prod(lines)].reshape(lines) for a in (peaks, totals, marks))
        np.maximum.reduce(scores, axis=2, keepdims=True, out=peak)
        np.equal(peak, -np.inf, out=nothing)  # every key is forbidden
        np.copyto(peak, 0, where=nothing)
        np.subtract(scores, peak, out=scores)
        np.exp(scores, out=scores)
        np.add.reduce(scores, axis=2, keepdims=True, out=total)
        np.matmul(scores, _heads(v)[heads, keys], out=result[heads, rows])
        np.log(total, out=scores[:, :, :1])
        np.add(scores[:, :, 0], peak[:, :, 0], out=sums[heads, rows])
        np.copyto(total, 1, where=nothing)
        np.divide(result[heads, rows], total, out=result[heads, rows])
        np.copyto(result[heads, rows], 0, where=nothing)


def _gradient_room(
    out: Any, g: Spec, q: Spec, k: Spec, v: Spec, *_: Spec, causal: bool
) -> list[Spec]:
    heads, rows = _at_once(q, k)
    keys = k.shape[-2]
    return [
        *[q.like((heads * rows * keys,))] * 2,
        *[q.like((heads * rows,))] * 2,
        q.like((max(heads * rows * v.shape[-1], heads * keys * max(v.shape[-1], q.shape[-1])),)),
    ]


@backend.kernel(strided=False, scratch=_gradient_room)
def attention_gradient(
    out: tuple[Array, Array, Array],
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    sums: Array,
    mask: Array,
    causal: bool,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    first, second, inners, shifts, room = scratch
    to_q, to_k, to_v = (_heads(a) for a in out)
    to_k[...] = 0
    to_v[...] = 0
    for where in _pieces(q, k, causal):
        heads, rows, keys = where
        errors, queries = _heads(g)[heads, rows], _heads(q)[heads, rows]
        chances = _scores(first, q, k, mask, where, causal)
        lines = (*chances.shape[:2], 1)
        inner, shift = (a[: prod(lines)].reshape(lines) for a in (inners, shifts))
        np.copyto(shift[:, :, 0], sums.reshape(prod(q.shape[:-2]), q.shape[-2])[heads, rows])
        np.maximum(shift, np.finfo(q.dtype).min, out=shift)  # -inf - -inf would be NaN
        np.subtract(chances, shift, out=chances)
        np.exp(chances, out=chances)
        product = room[: errors.size].reshape(errors.shape)
        np.multiply(errors, _heads(y)[heads, rows], out=product)
        np.add.reduce(product, axis=2, keepdims=True, out=inner)
        pulls = second[: chances.size].reshape(chances.shape)
        np.matmul(errors, _heads(v)[heads, keys].transpose(0, 2, 1), out=pulls)
        np.subtract(pulls, inner, out=pulls)
        np.multiply(pulls, chances, out=pulls)
        np.multiply(pulls, q.shape[-1] ** -0.5, out=pulls)
        np.matmul(pulls, _heads(k)[heads, keys], out=to_q[heads, rows])
        for target, weights, rest in ((to_k, pulls, queries), (to_v, chances, errors)):
            shape = (len(rest), keys.stop, rest.shape[2])
            part = room[: prod(shape)].reshape(shape)
            np.matmul(weights.transpose(0, 2, 1), rest, out=part)
            np.add(target[heads, keys], part, out=target[heads, keys])
