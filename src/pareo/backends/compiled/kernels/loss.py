"""Softmax and the losses; a loss and its gradient in one pass if both are wanted."""

import math

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels.elementwise_loops import exp_in_place
from pareo.backends.compiled.runtime.jit import holds, jit, jit_strict
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.backends.compiled.runtime.vector_math import exponential
from pareo.operators.loss import check_labels

kernel = backend.kernel

BLOCK = 2048  # numbers of some rows, which stay in the fastest cache


# A separate function, because sums may be reassociated in the loops below: log(total) + top - logit
# would lose the accuracy for which the largest logit is subtracted.
@jit_strict
def _shifted(logit: float, top: float) -> float:
    """A logit minus the largest."""
    return logit - top


@jit
def _softmax(out: Array, a: Array, logarithm: bool) -> None:
    """Softmax, or its logarithm, along the middle axis."""
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            top = a[i, 0, k]
            for j in range(a.shape[1]):
                # The second comparison is true only for NaN, which must be kept.
                if a[i, j, k] > top or a[i, j, k] != a[i, j, k]:
                    top = a[i, j, k]
            total = 0.0
            for j in range(a.shape[1]):
                shifted = _shifted(a[i, j, k], top)
                power = exponential(shifted)
                total += power
                out[i, j, k] = shifted if logarithm else power
            if logarithm:
                shift = math.log(total)
                for j in range(a.shape[1]):
                    out[i, j, k] = _shifted(out[i, j, k], shift)
            else:
                for j in range(a.shape[1]):
                    out[i, j, k] /= total


def _along(out: Array, a: Array, axis: int, logarithm: bool) -> None:
    shape = (math.prod(a.shape[:axis]), a.shape[axis], math.prod(a.shape[axis + 1 :]))
    flat, target = a.reshape(shape), out.reshape(shape)
    least = max(1, GRAIN // max(1, 8 * shape[1] * shape[2]))
    split(lambda lo, hi: _softmax(target[lo:hi], flat[lo:hi], logarithm), shape[0], least)


@kernel(strided=False, replayable=True)
def softmax(out: Array, a: Array, axis: int) -> None:
    _along(out, a, axis, False)


@kernel(strided=False, replayable=True)
def log_softmax(out: Array, a: Array, axis: int) -> None:
    _along(out, a, axis, True)


@jit
def _largest(a: Array, n: int) -> float:
    """The largest number of a row; where some are NaN, any."""
    size = a.shape[1]
    whole, top = size - size % 4, a[n, 0]
    if whole:
        first, second, third, fourth = a[n, 0], a[n, 1], a[n, 2], a[n, 3]
        for j in range(4, whole, 4):
            first = a[n, j] if a[n, j] > first else first
            second = a[n, j + 1] if a[n, j + 1] > second else second
            third = a[n, j + 2] if a[n, j + 2] > third else third
            fourth = a[n, j + 3] if a[n, j + 3] > fourth else fourth
        first = first if first > second else second
        third = third if third > fourth else fourth
        top = first if first > third else third
    for j in range(whole, size):
        top = a[n, j] if a[n, j] > top else top
    return top


@jit
def cross_entropy_rows(
    d: Array, logits: Array, labels: Array, scale: float, backward: bool
) -> float:
    """The sum of the rows' losses; with `backward`, d = scale * (softmax - one-hot label).

    d is contiguous, and may be the logits. A loss is log(total) - shifted logit. The first is never
    negative and the second never positive, so terms of all rows may be added up in any order.
    """
    loss = 0.0
    rows, classes = logits.shape
    few = max(1, min(rows, BLOCK // max(1, classes)))
    buffer = np.empty((0 if backward else few, classes), logits.dtype)
    for start in range(0, rows, few):
        count = min(few, rows - start)
        powers = d[start : start + count] if backward else buffer[:count]
        for i in range(count):
            top = _largest(logits, start + i)
            for j in range(classes):
                powers[i, j] = _shifted(logits[start + i, j], top)
            loss -= powers[i, labels[start + i]]
        exp_in_place(powers.reshape(-1))  # of all rows together: a row may be short
        for i in range(count):
            total = 0.0
            for j in range(classes):
                total += powers[i, j]
            loss += math.log(total)
            if backward:
                factor = logits.dtype.type(scale / total)
                for j in range(classes):
                    powers[i, j] *= factor
                powers[i, labels[start + i]] -= scale
    return loss


@jit
def _are_classes(labels: Array, classes: int) -> bool:
    """Whether all labels name a class."""
    good = True
    for i in range(labels.size):
        good &= 0 <= labels[i] < classes
    return good


@jit
def _cross_entropies(losses: Array, d: Array, g: Array, logits: Array, labels: Array) -> None:
    """The mean loss of each matrix of logits, and d = its gradient times g; either may be empty."""
    rows, backward = logits.shape[1], d.size > 0
    for k in range(logits.shape[0]):
        scale = np.float64(g[k]) / rows if backward else 0.0
        loss = cross_entropy_rows(d[k if backward else 0], logits[k], labels[k], scale, backward)
        if losses.size:
            losses[k] = loss / rows


def _losses(
    losses: Array | None, d: Array | None, g: Array | None, logits: Array, labels: Array
) -> None:
    *stacks, rows, classes = logits.shape
    if not holds(_are_classes, labels.reshape(-1), classes):
        check_labels(labels, classes)
    count, kind = math.prod(stacks), logits.dtype
    _cross_entropies(
        np.empty(0, kind) if losses is None else losses.reshape(count),
        np.empty((1, 0, 0), kind) if d is None else d.reshape(count, rows, classes),
        np.empty(0, kind) if g is None else g.reshape(count),
        logits.reshape(count, rows, classes),
        labels.reshape(count, rows),
    )


@kernel(strided=False, replayable=True)
def cross_entropy(out: Array, logits: Array, labels: Array) -> None:
    _losses(out, None, None, logits, labels)


@kernel(strided=False, replayable=True)
def cross_entropy_gradient(out: Array, g: Array, logits: Array, labels: Array) -> None:
    _losses(None, out, g, logits, labels)


@backend.fusion(
    "loss = cross_entropy(logits, labels)\nd = cross_entropy_gradient(g, logits, labels)",
    "loss d",
    replayable=True,
)
def cross_entropy_with_gradient(
    out: tuple[Array, Array], g: Array, logits: Array, labels: Array
) -> None:
    _losses(*out, g, logits, labels)


@jit
def _squared_error(a: Array, b: Array) -> float:
    total = 0.0
    for start in range(0, a.size, 1024):
        part = a.dtype.type(0)
        for i in range(start, min(start + 1024, a.size)):
            part += (a[i] - b[i]) * (a[i] - b[i])
        total += part
    return total


@kernel(strided=False)
def squared_error(out: Array, a: Array, b: Array) -> None:
    out[...] = _squared_error(np.ravel(a), np.ravel(b)) / a.size
