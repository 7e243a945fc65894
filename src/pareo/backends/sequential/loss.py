"""Softmax and the losses that training minimises."""

from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import backend, beats, divide, exp, log
from pareo.backends.sequential.reduction import folds
from pareo.operators.loss import check_labels


def shifted(row: list[float]) -> list[float]:
    """The row minus its largest element: softmax is the same, and exp cannot overflow."""
    top = row[0]
    for value in row:
        if beats(value, top):
            top = value
    return [value - top for value in row]


def exp_and_total(row: list[float]) -> tuple[list[float], float]:
    """exp of each element, and their sum."""
    powers = [exp(value) for value in row]
    total = 0.0
    for value in powers:
        total += value
    return powers, total


@backend.kernel(in_place=True)
def softmax(out: Any, a: Any, *, axis: int) -> None:
    for indices in folds(a.shape, [axis]):
        powers, total = exp_and_total(shifted([float(a[i]) for i in indices]))
        for i, value in zip(indices, powers, strict=True):
            out[i] = value / total


@backend.kernel(in_place=True)
def log_softmax(out: Any, a: Any, *, axis: int) -> None:
    for indices in folds(a.shape, [axis]):
        row = shifted([float(a[i]) for i in indices])
        _, total = exp_and_total(row)
        log_total = log(total)
        for i, value in zip(indices, row, strict=True):
            out[i] = value - log_total


@backend.kernel()
def cross_entropy(out: Any, logits: Any, labels: Any) -> None:
    *stacks, rows, classes = logits.shape
    check_labels(labels, classes)
    for stack in np.ndindex(*stacks):
        loss = 0.0
        for n in range(rows):
            row = shifted([float(logits[(*stack, n, c)]) for c in range(classes)])
            _, total = exp_and_total(row)
            loss += log(total) - row[int(labels[(*stack, n)])]
        out[stack] = loss / rows


@backend.kernel()
def cross_entropy_gradient(out: Any, g: Any, logits: Any, labels: Any) -> None:
    *stacks, rows, classes = logits.shape
    check_labels(labels, classes)
    for stack in np.ndindex(*stacks):
        share = float(g[stack]) / rows
        for n in range(rows):
            row = [float(logits[(*stack, n, c)]) for c in range(classes)]
            powers, total = exp_and_total(shifted(row))
            chances = [value / total for value in powers]
            chances[int(labels[(*stack, n)])] -= 1
            for c in range(classes):
                out[(*stack, n, c)] = share * chances[c]


@backend.kernel()
def squared_error(out: Any, a: Any, b: Any) -> None:
    total = 0.0
    for i in np.ndindex(a.shape):
        error = float(a[i]) - float(b[i])
        total += error * error
    out[()] = divide(total, a.size)
