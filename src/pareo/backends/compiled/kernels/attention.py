"""Attention in blocks of queries: the scores of one block of one head exist at a time.

The products are BLAS's. The backward pass computes the scores again, and their softmax from the
sums that the forward pass kept.
"""

import math
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.backend import backend
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.backends.compiled.runtime.vector_math import BLOCK, exp_block, exponential
from pareo.spec import Spec

kernel = backend.kernel
QUERIES = 128  # of a block
MIN_PRODUCTS = 1 << 18  # multiplications that are worth a thread


@jit_strict
def _shift(scores: Array, by: float) -> None:
    """Subtract a number in place; with each step rounded, so that infinities stay what they are."""
    for j in range(scores.size):
        scores[j] = scores[j] - by


@jit_strict
def _powers(scores: Array) -> None:
    """The exponentials, in place."""
    lanes = BLOCK // scores.itemsize
    whole = scores.size - scores.size % lanes
    for j in range(0, whole, lanes):
        exp_block(scores, scores, j)
    for j in range(whole, scores.size):
        scores[j] = exponential(scores[j])


@jit
def _largest(scores: Array) -> float:
    """The largest score; NaN if there is one."""
    top, total = scores[0], scores.dtype.type(0)
    for j in range(scores.size):
        top = scores[j] if scores[j] > top else top
        total += scores.dtype.type(0) * scores[j]  # NaN, if a score is NaN or infinite
    if total != total:
        for j in range(scores.size):
            if scores[j] != scores[j]:
                return scores[j]
    return top


@jit
def _softmax(scores: Array, sums: Array, totals: Array, first: int, causal: bool) -> None:
    """exp(scores - the largest of the row), what they add up to, and the logarithm of the sums.

    Row i belongs to query first + i.
    """
    for i in range(scores.shape[0]):
        seen = min(first + i + 1, scores.shape[1]) if causal else scores.shape[1]
        row = scores[i, :seen]
        top = _largest(row)
        if top == -np.inf:
            top = scores.dtype.type(0)
        _shift(row, top)
        _powers(row)
        total = 0.0
        for j in range(seen):
            total += row[j]
        scores[i, seen:] = 0
        totals[i] = total
        sums[i] = math.log(total) + top if total > 0 else (-np.inf if total == 0 else np.nan)


@jit
def _divide(y: Array, totals: Array) -> None:
    for i in range(y.shape[0]):
        # Without a key, all powers are 0, and so is the result.
        factor = 1 / totals[i] if totals[i] != 0 else 1.0
        for j in range(y.shape[1]):
            y[i, j] *= factor


@jit
def _chances(scores: Array, sums: Array, first: int, causal: bool) -> None:
    """The softmax of the scores, from their sums, in place."""
    for i in range(scores.shape[0]):
        seen = min(first + i + 1, scores.shape[1]) if causal else scores.shape[1]
        row = scores[i, :seen]
        _shift(row, sums[i] if sums[i] != -np.inf else scores.dtype.type(0))
        _powers(row)
        scores[i, seen:] = 0


@jit
def _score_gradient(d: Array, chances: Array, g: Array, y: Array, factor: float) -> None:
    """d = chances * (d - the row's sum of g * y) * factor, in place."""
    for i in range(d.shape[0]):
        inner = d.dtype.type(0)
        for j in range(g.shape[1]):
            inner += g[i, j] * y[i, j]
        for j in range(d.shape[1]):
            d[i, j] = chances[i, j] * (d[i, j] - inner) * factor


def _heads(a: Array) -> Array:
    """(..., rows, columns) as (heads, rows, columns)."""
    return a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


class _Mask:
    """The mask of each head; nothing is read where it is the number 0."""

    def __init__(self, mask: Array, q: Array, k: Array) -> None:
        self.whole = None if mask.size == 1 and mask.item() == 0 else mask
        if self.whole is not None:
            self.whole = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
        self.lead = q.shape[:-2]

    def add(self, scores: Array, head: int, lo: int, hi: int) -> None:
        if self.whole is not None:
            at: Any = np.unravel_index(head, self.lead) if self.lead else ()
            np.add(scores, self.whole[at][lo:hi], out=scores)


def _scaled(q: Array, k: Array, out: Array) -> None:
    """out = q @ k.T / sqrt(d)."""
    blas.add_product(out, q, k.T, alpha=q.shape[1] ** -0.5, keep=False)


def _block(q: Spec | Array) -> int:
    return max(1, min(QUERIES, q.shape[-2]))


def _forward_scratch(
    out: tuple[Spec, Spec], q: Spec, k: Spec, v: Spec, mask: Spec, causal: bool
) -> list[Spec]:
    """For every worker the scores of a block, and their sums in double precision."""
    block = _block(q)
    return [q.like((workers(), block * k.shape[-2])), Spec((workers(), block), np.float64)]


@kernel(strided=False, scratch=_forward_scratch)
def attention_with_sums(
    out: tuple[Array, Array], q: Array, k: Array, v: Array, mask: Array, causal: bool,
    scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    queries, keys = q.shape[-2], k.shape[-2]
    results, sums = _heads(out[0]), out[1].reshape(-1, queries) if queries else out[1]
    of, by, values = _heads(q), _heads(k), _heads(v)
    block = _block(q)
    blocks = -(-queries // block)
    masks = _Mask(mask, q, k)
    blas.threads(1)

    def work(part: int, first: int, last: int) -> None:
        for number in range(first, last):
            head, lo = number // blocks, number % blocks * block
            hi = min(lo + block, queries)
            scores = scratch[0][part][: (hi - lo) * keys].reshape(hi - lo, keys)
            totals, target = scratch[1][part], results[head, lo:hi]
            _scaled(of[head, lo:hi], by[head], scores)
            masks.add(scores, head, lo, hi)
            _softmax(scores, sums[head, lo:hi], totals, lo, causal)
            np.matmul(scores, values[head], out=target)
            _divide(target, totals)

    each = block * keys * (q.shape[-1] + v.shape[-1] + 16)
    split_numbered(work, len(of) * blocks, max(1, MIN_PRODUCTS // each))


def _backward_scratch(
    out: tuple[Spec, ...], g: Spec, q: Spec, k: Spec, *rest: Spec, causal: bool
) -> list[Spec]:
    """For every worker two arrays of scores of a block."""
    return [q.like((workers(), _block(q) * k.shape[-2]))] * 2


@kernel(strided=False, scratch=_backward_scratch)
def attention_gradient(
    out: tuple[Array, Array, Array], g: Array, q: Array, k: Array, v: Array, y: Array,
    sums: Array, mask: Array, causal: bool, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    queries, keys = q.shape[-2], k.shape[-2]
    gq, gk, gv = (_heads(a) for a in out)
    errors, of, by, values, results = (_heads(a) for a in (g, q, k, v, y))
    logarithms = sums.reshape(-1, queries) if queries else sums
    block, factor = _block(q), q.dtype.type(q.shape[-1] ** -0.5)
    masks = _Mask(mask, q, k)
    blas.threads(1)
    if not queries:
        gk[...] = gv[...] = 0

    def work(part: int, first: int, last: int) -> None:
        for head in range(first, last):
            for lo in range(0, queries, block):
                hi = min(lo + block, queries)
                chances, d = (a[part][: (hi - lo) * keys].reshape(hi - lo, keys) for a in scratch)
                some, error = of[head, lo:hi], errors[head, lo:hi]
                _scaled(some, by[head], chances)
                masks.add(chances, head, lo, hi)
                _chances(chances, logarithms[head, lo:hi], lo, causal)
                blas.add_product(gv[head], chances.T, error, keep=lo > 0)
                np.matmul(error, values[head].T, out=d)
                _score_gradient(d, chances, error, results[head, lo:hi], factor)
                np.matmul(d, by[head], out=gq[head, lo:hi])
                blas.add_product(gk[head], d.T, some, keep=lo > 0)

    each = queries * keys * (3 * q.shape[-1] + 2 * v.shape[-1] + 16)
    split_numbered(work, len(of), max(1, MIN_PRODUCTS // max(1, each)))
