"""The instructions of a program that is computed image by image."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.images.source import Source
from pareo.backends.cuda.images.tiles import THREADS
from pareo.backends.cuda.runtime import source as files
from pareo.backends.cuda.runtime.launch import struct
from pareo.program.kernel import Fusion, Kernel
from pareo.spec import Spec

LANES, HIGH = 32, 16  # as in sum_rows.cu


def image_passes(source: Source) -> Fusion:
    """The instruction that computes the forward and backward pass of each image.

    Its operands are the source's arguments. Its results are the parts of all totals, and the rows
    that are saved.
    """
    text, shared, batch = source.text, source.shared_bytes, source.split.batch
    spilled = Spec((batch * source.spilled_floats,))
    function = partial(_image_passes, text, shared, batch)
    return Fusion(
        "image_passes", "", (), (),
        Kernel(function, strided=False, scratch=lambda *_, **__: [spilled]),
    )  # fmt: skip


def _image_passes(
    text: str, shared: int, batch: int, out: Any, *operands: Array, scratch: Sequence[Array]
) -> None:
    parts, *saved = out if isinstance(out, tuple) else (out,)
    arrays = (*operands, parts, *scratch, *saved)
    pointers = struct(*(array.data.ptr for array in arrays))
    _compiled(text, shared)((batch,), (THREADS,), (pointers,), shared_mem=shared)


@cache
def _compiled(text: str, shared: int) -> Any:
    return files.module(text).function("images", shared)


def _launch(name: str, columns: int, *arguments: Any) -> None:
    kernel = files.load("images/sum_rows.cu").function(name)
    kernel((-(-columns // LANES),), (LANES, HIGH), arguments)


def _sum_rows(out: Array, parts: Array) -> None:
    _launch("sum_rows", parts.shape[1], out, parts, *map(np.int32, parts.shape))


def _merge_moments(out: tuple[Array, Array], parts: Array, start: int, pixels: int) -> None:
    sizes = *parts.shape, start, len(out[0]), pixels
    _launch("merge_moments", len(out[0]), *out, parts, *map(np.int32, sizes))


merge_moments = Fusion("merge_moments", "", (), (), Kernel(_merge_moments, strided=False))
sum_rows = Fusion("sum_rows", "", (), (), Kernel(_sum_rows, strided=False))
