"""Attention: for each query, a softmax over its keys, and the mean of the values by it."""

import math
from collections import defaultdict
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, at, backend, beats, divide, exp, log, store


def visible(query: int, keys: int, causal: bool) -> range:
    """The keys that a query sees."""
    return range(min(query + 1, keys) if causal else keys)


def score(q: Any, k: Any, mask: Any, row: Index, j: int) -> float:
    """The product of a query and of key j, over the root of their length, plus the mask."""
    total = 0.0
    for c in range(q.shape[-1]):
        total += float(q[(*row, c)]) * float(k[(*row[:-1], j, c)])
    return total * q.shape[-1] ** -0.5 + at(mask, (*row, j))


def is_forbidden(largest: float) -> bool:
    """Whether the largest score of a row, or its sum, says that no key may be seen."""
    return math.isinf(largest) and math.copysign(1.0, largest) < 0


@backend.kernel()
def attention_with_sums(out: Any, q: Any, k: Any, v: Any, mask: Any, *, causal: bool) -> None:
    result, sums = out
    for row in np.ndindex(*q.shape[:-1]):
        keys = visible(row[-1], k.shape[-2], causal)
        scores = [score(q, k, mask, row, j) for j in keys]
        top = scores[0]
        for value in scores:
            if beats(value, top):
                top = value
        nothing = is_forbidden(top)
        peak = 0.0 if nothing else top
        powers = [exp(value - peak) for value in scores]
        total = 0.0
        for value in powers:
            total += value
        sums[row] = log(total) + peak
        for c in range(v.shape[-1]):
            weighted = 0.0
            for j in keys:
                weighted += powers[j] * float(v[(*row[:-1], j, c)])
            mean = divide(weighted, total)
            result[(*row, c)] = 0.0 if nothing else mean


@backend.kernel()
def attention_gradient(
    out: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    y: Any,
    sums: Any,
    mask: Any,
    *,
    causal: bool,
) -> None:
    to_queries, to_keys, to_values = (defaultdict[Index, float](float) for _ in range(3))
    for row in np.ndindex(*q.shape[:-1]):
        shift = 0.0 if is_forbidden(float(sums[row])) else float(sums[row])
        inner = 0.0
        for c in range(v.shape[-1]):
            inner += float(g[(*row, c)]) * float(y[(*row, c)])
        for j in visible(row[-1], k.shape[-2], causal):
            key = (*row[:-1], j)
            chance = exp(score(q, k, mask, row, j) - shift)
            pull = 0.0
            for c in range(v.shape[-1]):
                pull += float(g[(*row, c)]) * float(v[(*key, c)])
                to_values[(*key, c)] += chance * float(g[(*row, c)])
            error = chance * (pull - inner) * q.shape[-1] ** -0.5
            for c in range(q.shape[-1]):
                to_queries[(*row, c)] += error * float(k[(*key, c)])
                to_keys[(*key, c)] += error * float(q[(*row, c)])
    for result, total in zip(out, (to_queries, to_keys, to_values), strict=True):
        store(result, total)
