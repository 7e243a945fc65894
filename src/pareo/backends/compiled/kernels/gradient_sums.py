"""Loops that add up gradients and update parameters, for generated modules to call."""

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit

GROUP = 128  # images whose gradients are added in float32, before they are added to the total


@jit
def add_rows(out: Array, a: Array, b: Array) -> None:
    """out[i] = a[i] + b for every row i."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + b[j]


@jit
def add_planes(out: Array, a: Array) -> None:
    """out[k] += the sum of a's plane k."""
    for k in range(a.shape[0]):
        total = a.dtype.type(0)
        for i in range(a.shape[1]):
            total += a[k, i]
        out[k] += total


@jit
def add_to(out: Array, a: Array) -> None:
    """out += a, both flat."""
    for i in range(a.size):
        out[i] += a[i]


@jit
def clear(a: Array) -> None:
    """Set a flat array to 0."""
    for i in range(a.size):
        a[i] = 0


@jit
def add_workers(sums: Array) -> None:
    """Add all workers' sums to those of the first, in the order of workers."""
    for worker in range(1, sums.shape[0]):
        for i in range(sums.shape[1]):
            sums[0, i] += sums[worker, i]


@jit
def flush(target: Array, source: Array) -> None:
    """Add the sums in `source` to those in `target`, and set `source` to 0."""
    for i in range(source.size):
        target[i] += source[i]
        source[i] = 0


@jit
def update(
    parameter: Array,
    velocity: Array,
    total: Array,
    share: float,
    rate: float,
    momentum: float,
    decay: float,
) -> None:
    """Update a flat parameter by `share` times the sum of the batch's gradients.

    `velocity` is empty without momentum.
    """
    if velocity.size:
        for i in range(parameter.size):
            velocity[i] = momentum * velocity[i] + total[i] * share + decay * parameter[i]
        for i in range(parameter.size):
            parameter[i] -= rate * velocity[i]
    else:
        for i in range(parameter.size):
            parameter[i] -= rate * (total[i] * share + decay * parameter[i])
