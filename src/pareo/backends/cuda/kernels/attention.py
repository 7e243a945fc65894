"""Attention: in tiles of shared memory, or by cuBLAS with some of the scores in memory."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels import strides
from pareo.backends.cuda.kernels.elementwise import WIDEST
from pareo.backends.cuda.runtime import cublas, launch, source
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

WIDEST_TILE = 64  # the most columns of q, k and v in a tile of attention.cu
SIDE = {"f": 64, "d": 32}  # as in attention.cuh
TILE_THREADS = 256
OPERANDS = ("q", "k", "v", "mask", "g", "y", "sums")  # as in attention.cuh
LIMIT = 64 << 20  # bytes of scores at a time


def in_tiles(q: Array | Spec, v: Array | Spec) -> bool:
    """Whether the kernel with tiles serves these operands.

    On an H200 it takes 330 us for 384 heads of 197 tokens and 64 columns in float32, and cuBLAS
    455 us. Kernels with tiles for 128 columns and for gradients were slower than cuBLAS: 1045 us
    for 32 heads of 1024 tokens instead of 659 us, and 1275 us instead of 660 us for the gradient.
    """
    return max(q.shape[-1], v.shape[-1]) <= WIDEST_TILE


@cache
def _tiled(kind: str) -> Any:
    """The kernel of attention.cu, and the shared memory that its launches need."""
    side, size = SIDE[kind], np.dtype(kind).itemsize
    pad = WIDEST // size
    shared = (2 * side * (WIDEST_TILE + pad) + side * (side + pad)) * size
    module = source.load("kernels/attention.cu", Real=launch.REALS[kind])
    return module.function("attention", shared), shared


def _struct(arrays: Mapping[str, Array], causal: bool) -> np.ndarray:
    """The struct Attention of attention.cuh."""
    q, k, v = (arrays[name] for name in "qkv")
    leading, scores = q.shape[:-2], (*q.shape[:-1], k.shape[-2])
    heads, rows, columns = [], [], []
    for name in OPERANDS:
        array = arrays.get(name)
        steps = [0] * len(scores)
        if name == "sums" and array is not None:
            steps = [*strides.element_strides(array, array.shape), 0]
        elif array is not None:
            steps = strides.element_strides(array, scores if name == "mask" else array.shape)
        heads.append(steps[:-2])
        rows.append(steps[-2])
        columns.append(steps[-1])
    return launch.struct(
        q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], causal, rows, columns,
        strides.walk(leading, heads),
    )  # fmt: skip


def _scale(q: Array) -> np.floating[Any]:
    found: np.floating[Any] = q.dtype.type(q.shape[-1] ** -0.5)
    return found


def _chunk(q: Array | Spec, k: Array | Spec) -> int:
    """How many queries have their scores in memory at a time."""
    each = math.prod(q.shape[:-2]) * k.shape[-2] * q.dtype.itemsize
    return max(1, min(LIMIT // max(1, each), q.shape[-2]))


def _scores(q: Spec, k: Spec) -> Spec:
    return q.like((math.prod(q.shape[:-2]) * _chunk(q, k) * k.shape[-2],))


def _stack(array: Array) -> Array:
    """An array of heads as one contiguous stack of matrices."""
    heads = math.prod(array.shape[:-2])
    return backend.contiguous(array).reshape(heads, *array.shape[-2:])


@backend.kernel(
    scratch=lambda out, q, k, v, mask, causal: [] if in_tiles(q, v) else [_scores(q, k)]
)
def attention_with_sums(
    out: Array, q: Array, k: Array, v: Array, mask: Array, causal: bool, scratch: Sequence[Array]
) -> None:
    y, sums = out
    if sums.size == 0:
        return
    heads, how = math.prod(q.shape[:-2]), _struct({"q": q, "k": k, "v": v, "mask": mask}, causal)
    if in_tiles(q, v):
        kernel, shared = _tiled(q.dtype.char)
        blocks = -(-q.shape[-2] // SIDE[q.dtype.char]) * heads
        operands = (y, sums, q, k, v, mask, _scale(q), how)
        kernel((blocks,), (TILE_THREADS,), operands, shared_mem=shared)
        return
    q, k, v, y = (_stack(array) for array in (q, k, v, y))
    chunk, keys = _chunk(q, k), k.shape[-2]
    for first in range(0, q.shape[-2], chunk):
        some = slice(first, first + chunk)
        rows = q[:, some].shape[1]
        scores = scratch[0][: heads * rows * keys].reshape(heads, rows, keys)
        cublas.multiply(scores, q[:, some], k.transpose(0, 2, 1))
        _rows("softmax", scores, (scores, sums, mask, _scale(q), rows, first, how))
        cublas.multiply(y[:, some], scores, v)


def _rows(name: str, scores: Array, arguments: Sequence[Any]) -> None:
    """Launch a kernel of attention_scores.cu with a block for each row."""
    heads, rows, keys = scores.shape
    threads = launch.threads_for(keys, launch.THREADS)
    kind = scores.dtype.char
    launch.blocks(heads * rows, threads, "attention_scores", name, kind, *arguments)


def _for_gradient(
    out: Any, g: Spec, q: Spec, k: Spec, v: Spec, y: Spec, sums: Spec, mask: Spec, causal: bool
) -> list[Spec]:
    """For the inner products of g and y, the scores, and what the loss changes with them."""
    return [sums, _scores(q, k), _scores(q, k)]


@backend.kernel(scratch=_for_gradient)
def attention_gradient(
    out: Array,
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    sums: Array,
    mask: Array,
    causal: bool,
    scratch: Sequence[Array],
) -> None:
    to_q, to_k, to_v = out
    if sums.size == 0:  # no heads or no queries
        to_k.fill(0)
        to_v.fill(0)
        return
    arrays = {"q": q, "k": k, "v": v, "mask": mask, "g": g, "y": y, "sums": sums}
    how, kind, inner = _struct(arrays, causal), q.dtype.char, scratch[0]
    blocks = -(-sums.size * 32 // launch.THREADS)
    arguments = (inner, g, y, sums.size, how)
    launch.blocks(blocks, launch.THREADS, "attention_scores", "inner_products", kind, *arguments)
    heads = math.prod(q.shape[:-2])
    g, q, k, v, to_q, to_k, to_v = (_stack(array) for array in (g, q, k, v, to_q, to_k, to_v))
    chunk, keys = _chunk(q, k), k.shape[-2]
    for first in range(0, q.shape[-2], chunk):
        some = slice(first, first + chunk)
        rows = q[:, some].shape[1]
        scores, pulls = (
            work[: heads * rows * keys].reshape(heads, rows, keys) for work in scratch[1:]
        )
        cublas.multiply(scores, q[:, some], k.transpose(0, 2, 1))
        cublas.multiply(pulls, g[:, some], v.transpose(0, 2, 1))
        _rows("slopes", scores, (scores, pulls, mask, sums, inner, _scale(q), rows, first, how))
        cublas.multiply(to_v, scores.transpose(0, 2, 1), g[:, some], add=first > 0)
        cublas.multiply(to_q[:, some], pulls, k)
        cublas.multiply(to_k, pulls.transpose(0, 2, 1), q[:, some], add=first > 0)
