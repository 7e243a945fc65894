"""Softmax and the losses; a loss and its gradient in one pass where both are wanted."""

import math
from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit, jit_as_written
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.backends.compiled.runtime.vector_math import exponential
from pareo.operators.loss import check_labels

kernel = backend.kernel


# Functions of their own, because sums may be reassociated in the loops below: log(total) + top
# - logit loses what subtracting the largest logit is for.
@jit_as_written
def _below(logit: Any, top: Any) -> Any:
    """How far a logit lies below the largest; minus that, to be exact."""
    return logit - top


@jit_as_written
def _surprise(total: float, logit: Any, top: Any) -> float:
    """The loss of a row, whose exponentials below `top` add up to `total`."""
    return math.log(total) - (logit - top)


@jit
def _softmax(out: Any, a: Any, logarithm: bool) -> None:
    """Softmax, or its logarithm, along the middle axis."""
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            top = a[i, 0, k]
            for j in range(a.shape[1]):
                # The second comparison is true for NaN alone, which must not be lost.
                if a[i, j, k] > top or a[i, j, k] != a[i, j, k]:
                    top = a[i, j, k]
            total = 0.0
            for j in range(a.shape[1]):
                shifted = _below(a[i, j, k], top)
                lifted = exponential(shifted)
                total += lifted
                out[i, j, k] = shifted if logarithm else lifted
            if logarithm:
                shift = math.log(total)
                for j in range(a.shape[1]):
                    out[i, j, k] = _below(out[i, j, k], shift)
            else:
                for j in range(a.shape[1]):
                    out[i, j, k] /= total


def _along(out: Any, a: Any, axis: int, logarithm: bool) -> None:
    shape = (math.prod(a.shape[:axis]), a.shape[axis], math.prod(a.shape[axis + 1 :]))
    flat, target = a.reshape(shape), out.reshape(shape)
    least = max(1, GRAIN // max(1, 8 * shape[1] * shape[2]))
    split(lambda lo, hi: _softmax(target[lo:hi], flat[lo:hi], logarithm), shape[0], least)


@kernel(strided=False)
def softmax(out: Any, a: Any, axis: int) -> None:
    _along(out, a, axis, False)


@kernel(strided=False)
def log_softmax(out: Any, a: Any, axis: int) -> None:
    _along(out, a, axis, True)


@jit
def cross_entropy_rows(d: Any, logits: Any, labels: Any, scale: float, back: bool) -> float:
    """The sum of the rows' losses; with `back`, d = scale * (softmax - one at the label)."""
    loss = 0.0
    for n in range(logits.shape[0]):
        top = logits[n, 0]
        for j in range(logits.shape[1]):
            if logits[n, j] > top or logits[n, j] != logits[n, j]:
                top = logits[n, j]
        total = 0.0
        for j in range(logits.shape[1]):
            lifted = exponential(_below(logits[n, j], top))
            total += lifted
            if back:
                d[n, j] = lifted
        label = labels[n]
        loss += _surprise(total, logits[n, label], top)
        if back:
            factor = scale / total
            for j in range(logits.shape[1]):
                d[n, j] *= factor
            d[n, label] -= scale
    return loss


@kernel(strided=False)
def cross_entropy(out: Any, logits: Any, labels: Any) -> None:
    *stacks, rows, classes = logits.shape
    check_labels(labels, classes)
    nowhere = np.empty((1, 1), out.dtype)  # nothing is written back
    for at in np.ndindex(*stacks):
        out[at] = cross_entropy_rows(nowhere, logits[at], labels[at], 0.0, False) / rows


@kernel(strided=False)
def cross_entropy_gradient(out: Any, g: Any, logits: Any, labels: Any) -> None:
    *stacks, rows, classes = logits.shape
    check_labels(labels, classes)
    for at in np.ndindex(*stacks):
        cross_entropy_rows(out[at], logits[at], labels[at], float(g[at]) / rows, True)


@backend.fusion(
    "loss = cross_entropy(logits, labels)\nd = cross_entropy_gradient(g, logits, labels)", "loss d"
)
def cross_entropy_with_gradient(out: Any, g: Any, logits: Any, labels: Any) -> None:
    losses, d = out
    *stacks, rows, classes = logits.shape
    check_labels(labels, classes)
    for at in np.ndindex(*stacks):
        share = float(g[at]) / rows
        losses[at] = cross_entropy_rows(d[at], logits[at], labels[at], share, True) / rows


@jit
def _squared_error(a: Any, b: Any) -> float:
    total = 0.0
    for start in range(0, a.size, 1024):
        part = a.dtype.type(0)
        for i in range(start, min(start + 1024, a.size)):
            part += (a[i] - b[i]) * (a[i] - b[i])
        total += part
    return total


@kernel(strided=False)
def squared_error(out: Any, a: Any, b: Any) -> None:
    out[...] = _squared_error(np.ravel(a), np.ravel(b)) / a.size
