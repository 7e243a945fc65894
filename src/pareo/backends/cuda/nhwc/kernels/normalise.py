"""Batch normalisation with residual and activation, forward and backward (normalise.cu).

A channel is normalised by four vectors in float32: mean, variance, scale and shift.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.launch import WIDEST, c_type, kernel, pitch, pixels
from pareo.backends.cuda.nhwc.kernels.table import NO_OPERAND, instruction
from pareo.backends.cuda.runtime.launch import NULL, struct
from pareo.spec import Spec

THREADS = 512  # of a block that sums, as in normalise.cu
CHANNELS = 64  # of a block that sums: few, as its last block adds what all others left
BLOCKS = 264  # that sum at the same time: two on each multiprocessor of an H200
SUM_VECTOR = 4  # channels of a thread that sums, at most: more need too many registers
EACH_BLOCKS = 396  # of the forward kernel: three on each multiprocessor
PIXELS = 2  # that a thread has at least
SLOTS = 1 << 18  # as in normalise.cu

_lock = threading.Lock()
_next_slot = 0


def fits(images: Spec) -> bool:
    """Whether the kernels can normalise these channels-last images: 16 bytes of channels each.

    >>> fits(Spec((2, 4, 4, 12))), fits(Spec((2, 4, 4, 3)))
    (True, False)
    """
    some = images.size > 0 and pixels(images) < 1 << 30
    return some and images.shape[-1] * images.dtype.itemsize % WIDEST == 0


def vector_of(images: Array | Spec) -> int:
    """The channels of a thread: 16 bytes."""
    return WIDEST // images.dtype.itemsize


def sum_vector(images: Array | Spec) -> int:
    """The channels of a thread that sums."""
    return min(SUM_VECTOR, vector_of(images))


def sum_grid(images: Array | Spec) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid (pixels, channels) and block of a kernel that sums over pixels.

    >>> sum_grid(Spec((256, 56, 56, 256)))
    ((66, 4), (16, 32))
    """
    vector = sum_vector(images)
    groups = images.shape[-1] // vector
    wide = min(groups, CHANNELS // vector)
    high = 1 << (THREADS // wide).bit_length() - 1
    columns = -(-groups // wide)
    rows = min(-(-pixels(images) // (high * PIXELS)), max(1, BLOCKS // columns))
    return (rows, columns), (wide, high)


def partial_sums(images: Array | Spec) -> Spec:
    """The work array of such a kernel: two numbers of each block and channel, and counts."""
    (rows, _), _ = sum_grid(images)
    return Spec((2 * rows * images.shape[-1] + rows,))


def _sum(file_name: str, images: Array, arguments: Sequence[Any], results: int = 0) -> None:
    grid, block = sum_grid(images)
    shared = 2 * block[0] * block[1] * sum_vector(images) * 4
    both = *arguments[:results], np.int32(take_slots(grid[1])), *arguments[results:]
    kernel("normalise", file_name, shared)(grid, block, both, shared_mem=shared)


def take_slots(count: int) -> int:
    """The first of `count` slots for the counters of a launch.

    No two launches that run at the same time may share one. Slots are used again after tens of
    thousands of other launches, or captures of them.
    """
    global _next_slot
    with _lock:
        first = _next_slot
        _next_slot = (first + count) % SLOTS
    return first


def _each(
    file: str, name: str, images: Array, arguments: Sequence[Any], most: int = launch.BLOCKS
) -> None:
    """Launch a kernel whose threads hold channels and iterate over pixels."""
    (blocks, across), block = launch.pixel_grid(pixels(images), images.shape[-1], vector_of(images))
    grid = min(blocks, max(1, most // across)), across
    kernel(file, name)(grid, block, arguments)


def sizes(images: Array) -> tuple[Any, Any]:
    """Pixels and channels, as a kernel's arguments."""
    return np.uint32(pixels(images)), np.int32(images.shape[-1])


def vectors_of(vectors: Sequence[Array], epsilon: float) -> Any:
    """Mean, variance, scale and shift as the struct `Vectors`; all null where there are none."""
    pointers = [array.data.ptr for array in vectors] or [0] * 4
    return struct(*pointers, int(np.float32(epsilon).view(np.uint32)))


def limits_of(low: float, high: float) -> tuple[Any, Any]:
    """The limits of an activation, as a kernel's arguments."""
    return np.float32(low), np.float32(high)


def instance(name: str, images: Array, activation: str = "", vector: int = 0) -> str:
    """The name of a template instance for these images."""
    wide = str(vector or vector_of(images))
    parts = [c_type(images), wide, *([activation] if activation else [])]
    return f"{name}<{', '.join(parts)}>"


@instruction(scratch=lambda out, x: [partial_sums(x)])
def channel_statistics(out: tuple[Array, Array], x: Array, scratch: Sequence[Array]) -> None:
    """Mean and variance of each channel."""
    _sum(
        instance("channel_statistics", x, "", sum_vector(x)),
        x,
        (*out, scratch[0], x, *sizes(x)),
        3,
    )


def _normalise(
    out: Array,
    positive: Array,
    x: Array,
    others: Sequence[Array],
    activation: str,
    limits: tuple[float, float],
    epsilons: tuple[float, float],
) -> None:
    vectors, residual, more = others[:4], others[4:5], others[5:]
    residuals = 2 if more else len(residual)
    arguments = (
        out, positive, x, vectors_of(vectors, epsilons[0]), *(residual or (NULL,)),
        vectors_of(more, epsilons[1]), *limits_of(*limits), *sizes(x),
    )  # fmt: skip
    name = instance("normalise", x, f"{activation}, {residuals}")
    _each("normalise", name, x, arguments, EACH_BLOCKS)


@instruction(in_place=(0,))
def normalise_forward(out: Array, x: Array, *others: Array, **how: Any) -> None:
    """The activation of normalised images, plus a residual that may be normalised as well.

    After x come its four vectors, then the residual, then the residual's four vectors.
    """
    _normalise(out, NULL, x, others, **how)


@instruction(in_place=(0, NO_OPERAND))
def normalise_with_signs(out: tuple[Array, Array], x: Array, *others: Array, **how: Any) -> None:
    """The same, and a bit for each element that is positive, for the backward pass."""
    _normalise(*out, x, others, **how)


def signs(images: Spec) -> Spec:
    """The array of these bits: a byte for each group of channels."""
    *leading, channels = images.shape
    return Spec((*leading, channels // vector_of(images)), "uint8")


def _back_scratch(out: Any, x: Spec, *_: Spec, **__: Any) -> list[Spec]:
    return [partial_sums(x)]


def _back_sums(
    out: Sequence[Array],
    x: Array,
    vectors: Sequence[Array],
    gradients: Sequence[Array],
    positive: Array,
    scratch: Sequence[Array],
    how: tuple[str, tuple[float, float], float],
) -> None:
    activation, limits, epsilon = how
    to_scale, to_shift, masked = (*out, NULL)[:3]
    arguments = (
        to_scale, to_shift, masked, scratch[0], x, *(*gradients, NULL)[:2], positive,
        vectors_of(vectors, epsilon), *limits_of(*limits), *sizes(x),
    )  # fmt: skip
    _sum(instance("normalise_back_sums", x, activation, sum_vector(x)), x, arguments, 4)


@instruction(scratch=_back_scratch)
def normalise_back_sums(
    out: Sequence[Array],
    x: Array,
    *others: Array,
    activation: str,
    limits: tuple[float, float],
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    """Gradients of scale and shift and, as a third result, that before the activation.

    After x come its four vectors and one or two gradients, which are added.
    """
    how = activation, limits, epsilon
    _back_sums(out, x, others[:4], others[4:], NULL, scratch, how)


@instruction(scratch=_back_scratch)
def normalise_back_sums_by_signs(
    out: Sequence[Array], x: Array, *others: Array, epsilon: float, scratch: Sequence[Array]
) -> None:
    """The same with the relu's bits, which come after the vectors."""
    how = "IDENTITY", (0.0, 0.0), epsilon
    _back_sums(out, x, others[:4], others[5:], others[4], scratch, how)


def _back(
    out: Array,
    x: Array,
    g: Array,
    sums: Sequence[Array],
    other: Array | None,
    vectors: Sequence[Array],
    how: tuple[str, tuple[float, float], float],
) -> None:
    activation, limits, epsilon = how
    by = vectors_of(vectors, epsilon)
    more = (NULL, np.int32(0)) if other is None else (other, np.int32(pitch(other)))
    arguments = (out, x, g, *sums, *more, by, *limits_of(*limits), *sizes(x))
    plus = str(other is not None).lower()
    _each("normalise", instance("normalise_back", x, f"{activation}, {plus}"), x, arguments)


@instruction(in_place=(1,))
def normalise_back(
    out: Array,
    x: Array,
    g: Array,
    *others: Array,
    activation: str,
    limits: tuple[float, float],
    epsilon: float,
) -> None:
    """The gradient of x, from that of the activation.

    After g come the gradients of scale and shift, and the four vectors.
    """
    how = activation, limits, epsilon
    _back(out, x, g, others[:2], None, others[2:], how)


@instruction(in_place=(1,), strided=True)
def normalise_back_plus(
    out: Array,
    x: Array,
    g: Array,
    *others: Array,
    activation: str,
    limits: tuple[float, float],
    epsilon: float,
) -> None:
    """The same, plus the last operand, which may be some channels of larger images."""
    *most, more = others
    how = activation, limits, epsilon
    _back(out, x, g, most[:2], more, most[2:], how)


def _window(images: Array, pooled: Array, padding: tuple[int, ...]) -> Any:
    return struct(*images.shape[1:3], *pooled.shape[1:3], *padding[:2], of=np.int32)


@instruction()
def normalise_pool(
    out: tuple[Array, Array, Array], x: Array, *vectors: Array, epsilon: float,
    padding: tuple[int, ...],
) -> None:  # fmt: skip
    """The largest relu of normalised images in each window; the x that it comes from; its index."""
    y = out[0]
    by = vectors_of(vectors, epsilon)
    arguments = (*out, x, by, _window(x, y, padding), *sizes(y))
    _each("normalise_pool", instance("normalise_pool", x), y, arguments)


@instruction()
def normalise_pool_back(
    out: Array, x: Array, g: Array, indices: Array, to_scale: Array, to_shift: Array,
    *vectors: Array, epsilon: float, padding: tuple[int, ...],
) -> None:  # fmt: skip
    """The gradient of x, from that of the pooled images and those of scale and shift."""
    by = vectors_of(vectors, epsilon)
    window = _window(x, g, padding)
    arguments = (out, x, g, indices, to_scale, to_shift, by, window, *sizes(x))
    _each("normalise_pool", instance("normalise_pool_back", x), x, arguments)
