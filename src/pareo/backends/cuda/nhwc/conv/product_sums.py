"""Convolutions of single pixels with the sums of batch normalisation (product_sums.cu).

The kernels that only sum read the result of the convolution again. Here it is summed before it is
written, which saves a pass over memory. All images are in bfloat16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.filter_gradient import ARCH
from pareo.backends.cuda.nhwc.conv.problem import Convolution
from pareo.backends.cuda.nhwc.kernels.launch import NORMALISED, pixels
from pareo.backends.cuda.nhwc.kernels.normalise import limits_of, take_slots, vectors_of
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.backends.cuda.runtime import source
from pareo.backends.cuda.runtime.launch import NULL
from pareo.backends.cuda.runtime.tensor_map import bfloat16_matrix
from pareo.spec import Spec

ROWS, DEPTH, THREADS, VECTOR = 128, 64, 384, 8  # as in product_sums.cu
BOXES = 4  # of other images, there
MULTIPROCESSORS = 132  # of an H200
# The channels of a tile and the chunks in shared memory, by what is summed.
TILINGS = {"statistics": {64: 6, 128: 4}, "back": {64: 4}}
INSTANCES = [
    *(f"product_statistics<{wide}, {count}>" for wide, count in TILINGS["statistics"].items()),
    *(f"product_back_sums<{TILINGS['back'][64]}, {kind}>" for kind in NORMALISED),
]


@dataclass(frozen=True)
class SummedProduct:
    """A convolution of single pixels, and what is summed over its result.

    sums:       'statistics', or 'back' for those of the backward pass.
    activation: the one that follows the normalisation; IDENTITY where its signs are known.
    more:       the operands besides the vectors, as in `product_back_sums`.
    masks:      whether the gradient before the activation is a result.
    """

    convolution: Convolution
    sums: str
    activation: str = "IDENTITY"
    more: tuple[str, ...] = ()
    masks: bool = False

    def __str__(self) -> str:
        parts = self.convolution, "summed", self.sums, self.activation, *self.more
        return " ".join(map(str, (*parts, *(["masked"] if self.masks else []))))


def is_product(one: Convolution) -> bool:
    """Whether the kernels compute a convolution: of single pixels, in vectors of channels."""
    _, channels, *window = one.filters
    single = window == [1, 1] and not any(one.padding) and one.stride == (1, 1)
    plain = one.images[1] == channels and one.precision == "bfloat16" and not one.epilogue
    aligned = one.images[1] % VECTOR == one.filters[0] % VECTOR == 0
    pixels = one.images[0] * one.images[2] * one.images[3]
    return single and plain and aligned and 0 < pixels < 1 << 30


def grid(images: Array | Spec, wide: int) -> tuple[int, int]:
    """Blocks along the pixels, of which each computes many tiles, and along the channels.

    >>> grid(Spec((128, 56, 56, 256)), 64), grid(Spec((1, 7, 7, 2048)), 128)
    ((33, 4), (1, 16))
    """
    across = -(-images.shape[-1] // wide)
    return min(-(-pixels(images) // ROWS), max(1, MULTIPROCESSORS // across)), across


def shared(sums: str, wide: int) -> int:
    """Bytes of shared memory: chunks, two tiles that are written, boxes, and room to align them."""
    chunks = TILINGS[sums][wide] * (ROWS + wide) * DEPTH * 2
    boxes = BOXES * ROWS * DEPTH * 2 if sums == "back" else 0
    return chunks + 2 * ROWS * (wide * 2 + 16) + boxes + 1024


@cache
def kernel(name: str, shared: int) -> Any:
    """A kernel of product_sums.cu, compiled for the architecture with warpgroup products."""
    text = source.read("nhwc/conv/product_sums.cu")
    return source.module(text, [name], arch=ARCH).function(name, shared)


def _launch(
    name: str, sums: str, wide: int, out: Array, factors: tuple[Array, Array],
    first: Sequence[Any], then: Sequence[Any] = (),
) -> None:  # fmt: skip
    """Launch a kernel; its results come first, then the product's factors, then the rest."""
    blocks, (a, b), room = grid(out, wide), factors, shared(sums, wide)
    sizes = map(np.int32, (pixels(a), a.shape[-1], out.shape[-1]))
    maps = _boxes(a), _boxes(b, wide)
    slot = np.int32(take_slots(blocks[1]))
    kernel(name, room)(
        blocks, (wide // VECTOR, THREADS * VECTOR // wide), (*first, slot, *maps, *then, *sizes),
        shared_mem=room,
    )  # fmt: skip


def _boxes(images: Array, rows: int = ROWS) -> np.ndarray:
    """Images or filters as a matrix that is copied in boxes of some rows."""
    return bfloat16_matrix(images, pixels(images), images.shape[-1], (rows, DEPTH))


def partial_sums(images: Array | Spec, wide: int) -> Spec:
    """The work array: two numbers of each block and channel, and counts."""
    rows, _ = grid(images, wide)
    return Spec((2 * rows * images.shape[-1] + rows,))


def _statistics_scratch(out: Sequence[Spec], x: Spec, w: Spec, wide: int) -> list[Spec]:
    return [partial_sums(out[0], wide)]


@instruction(_statistics_scratch)
def product_statistics(
    out: Sequence[Array], x: Array, w: Array, wide: int, scratch: Sequence[Array]
) -> None:
    """A convolution, and the mean and variance of each channel of its result."""
    name = f"product_statistics<{wide}, {TILINGS['statistics'][wide]}>"
    _launch(name, "statistics", wide, out[0], (x, w), (*out, scratch[0]))


def _back_scratch(out: Sequence[Spec], *_: Spec, wide: int, **__: Any) -> list[Spec]:
    return [partial_sums(out[2], wide)]


@instruction(_back_scratch)
def product_back_sums(
    out: Sequence[Array],
    g: Array,
    w: Array,
    x: Array,
    *others: Array,
    activation: str,
    limits: tuple[float, float],
    epsilon: float,
    more: tuple[str, ...],
    masks: bool,
    wide: int,
    scratch: Sequence[Array],
) -> None:
    """Gradients of scale and shift, and the gradient that they follow from.

    That gradient is the convolution of g with the filters w, which are flipped already. After x
    come its four vectors, and the operands that `more` names: 'signs', the bits of the forward
    pass, and 'other', a gradient to add. With `masks`, the third result is the gradient before the
    activation.
    """
    to_scale, to_shift, result = out
    vectors, named = others[:4], dict(zip(more, others[4:], strict=True))
    other = named.get("other")
    then = (
        _boxes(x), _boxes(x if other is None else other), np.int32(other is not None),
        named.get("signs", NULL), vectors_of(vectors, epsilon), *limits_of(*limits),
        np.int32(masks),
    )  # fmt: skip
    name = f"product_back_sums<{TILINGS['back'][wide]}, {activation}>"
    first = result, to_scale, to_shift, scratch[0]
    _launch(name, "back", wide, result, (g, w), first, then)
