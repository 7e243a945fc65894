"""Softmax and the losses, with the largest logit subtracted first so that nothing overflows."""

import numpy as np

from pareo.backends import sums
from pareo.backends.vectorized.table import Array, backend, blocks, count_up, one_block
from pareo.operators.loss import check_labels
from pareo.spec import Spec


def _along(out: Spec, a: Spec, axis: int) -> list[Spec]:
    """Work arrays for one number for each line along the axis, and for their sum."""
    return [
        a.like((*a.shape[:axis], 1, *a.shape[axis + 1 :])),
        *sums.room(out, (axis,), contiguous=True),
    ]


def _below_peak(out: Array, a: Array, axis: int, peak: Array) -> None:
    np.maximum.reduce(a, axis=axis, keepdims=True, out=peak)
    np.subtract(a, peak, out=out)


@backend.kernel(in_place=True, scratch=_along)
def softmax(out: Array, a: Array, axis: int, scratch: tuple[Array, ...]) -> None:
    line, *room = scratch
    _below_peak(out, a, axis, line)
    np.exp(out, out=out)
    sums.add_up(line, out, (axis,), room)
    np.divide(out, line, out=out)


@backend.kernel(in_place=True, scratch=lambda out, a, axis: [out, *_along(out, a, axis)])
def log_softmax(out: Array, a: Array, axis: int, scratch: tuple[Array, ...]) -> None:
    powers, line, *room = scratch
    _below_peak(out, a, axis, line)
    np.exp(out, out=powers)
    sums.add_up(line, powers, (axis,), room)
    np.log(line, out=line)
    np.subtract(out, line, out=out)


def _at_labels(labels: Array, classes: int, index: Array) -> None:
    """The position of each row's label in the flat (N, classes) array."""
    check_labels(labels, classes)
    count_up(index, classes)
    np.add(index, labels.reshape(-1), out=index, casting="unsafe")


def _rows(out: Spec, logits: Spec, labels: Spec) -> list[Spec]:
    line, rows = (*labels.shape, 1), labels.size
    return [logits, logits.like(line), logits.like((rows,)), Spec((rows,), np.int64)]


@backend.kernel(scratch=_rows)
def cross_entropy(
    out: Array, logits: Array, labels: Array, scratch: tuple[Array, Array, Array, Array]
) -> None:
    work, line, right, index = scratch
    _at_labels(labels, logits.shape[-1], index)
    _below_peak(work, logits, -1, line)
    np.take(work.reshape(-1), index, out=right, mode="clip")
    np.exp(work, out=work)
    np.add.reduce(work, axis=-1, keepdims=True, out=line)
    np.log(line, out=line)
    np.subtract(line.reshape(-1), right, out=right)
    np.add.reduce(right.reshape(labels.shape), axis=-1, out=out)
    np.divide(out, labels.shape[-1], out=out)


@backend.kernel(
    in_place=True, scratch=lambda out, g, logits, labels: _rows(out, logits, labels)[1:]
)
def cross_entropy_gradient(
    out: Array, g: Array, logits: Array, labels: Array, scratch: tuple[Array, Array, Array]
) -> None:
    line, right, index = scratch
    _at_labels(labels, logits.shape[-1], index)
    softmax(out, logits, axis=-1, scratch=(line,))
    flat = out.reshape(-1)
    np.take(flat, index, out=right, mode="clip")
    np.subtract(right, 1, out=right)
    np.put(flat, index, right, mode="clip")
    np.multiply(out, (g / g.dtype.type(labels.shape[-1]))[..., None, None], out=out)


@backend.kernel(strided=False, scratch=lambda out, a, b: [one_block(a)])
def squared_error(out: Array, a: Array, b: Array, scratch: tuple[Array]) -> None:
    total = 0.0
    for x, y in blocks(a, b):
        error = scratch[0][: x.size]
        np.subtract(x, y, out=error)
        np.square(error, out=error)
        total += float(np.add.reduce(error))
    out[...] = total / a.size
