"""Softmax and the losses; a loss and its gradient are one kernel where both are needed.

A label that names no class makes the loss NaN: a kernel cannot raise an error, and checking the
labels first would make the host wait.
"""

import math
from collections.abc import Sequence

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

PARTS = 1024  # the most blocks that share a sum over a whole array


def _rows(name: str, out: Array, a: Array, axis: int) -> None:
    length, inner = a.shape[axis], math.prod(a.shape[axis + 1 :])
    rows = a.size // length
    threads = launch.threads_for(length)
    launch.blocks(rows, threads, "loss", name, a.dtype.char, out, a, length, inner)


@backend.kernel(in_place=True, strided=False)
def softmax(out: Array, a: Array, axis: int) -> None:
    _rows("softmax", out, a, axis)


@backend.kernel(in_place=True, strided=False)
def log_softmax(out: Array, a: Array, axis: int) -> None:
    _rows("log_softmax", out, a, axis)


def _entropy(losses: Array, d: Array, g: Array, logits: Array, labels: Array) -> None:
    rows, classes = logits.shape[-2:]
    signed = -1 if labels.dtype.kind == "i" else 1
    threads = launch.threads_for(classes, 256)
    launch.blocks(
        labels.size, threads, "loss", "cross_entropy_rows", logits.dtype.char,
        losses, d, g, logits, labels, np.int32(labels.itemsize * signed), rows, classes,
    )  # fmt: skip


def _gathered(out: Array, parts: Array, divisor: int) -> None:
    """Each element of `out` is the sum of its share of `parts`, divided by `divisor`."""
    count = parts.size // out.size
    threads = launch.threads_for(count)
    arguments = (out, parts, count, divisor)
    launch.blocks(out.size, threads, "loss", "gathered", out.dtype.char, *arguments)


@backend.kernel(strided=False, scratch=lambda out, logits, labels: [logits.like(labels.shape)])
def cross_entropy(out: Array, logits: Array, labels: Array, scratch: Sequence[Array]) -> None:
    _entropy(scratch[0], None, None, logits, labels)
    _gathered(out, scratch[0], logits.shape[-2])


@backend.kernel(in_place=(1,), strided=False)
def cross_entropy_gradient(out: Array, g: Array, logits: Array, labels: Array) -> None:
    _entropy(None, out, g, logits, labels)


@backend.fusion(
    "loss = cross_entropy(logits, labels)\nd = cross_entropy_gradient(g, logits, labels)",
    "loss d",
    scratch=lambda out, g, logits, labels: [logits.like(labels.shape)],
)
def cross_entropy_with_gradient(
    out: Array, g: Array, logits: Array, labels: Array, *, scratch: Sequence[Array]
) -> None:
    _entropy(scratch[0], out[1], g, logits, labels)
    _gathered(out[0], scratch[0], logits.shape[-2])


def _parts(out: Spec, a: Spec, b: Spec) -> list[Spec]:
    return [a.like((max(1, min(PARTS, a.size // 1024)),))]


@backend.kernel(strided=False, scratch=_parts)
def squared_error(out: Array, a: Array, b: Array, scratch: Sequence[Array]) -> None:
    (parts,) = scratch
    arguments = (parts, a, b, a.size)
    launch.blocks(parts.size, 256, "loss", "squared_error_parts", a.dtype.char, *arguments)
    _gathered(out, parts, a.size)
