"""Batch normalisation with its statistics in one kernel (normalise_at_once.cu).

A cluster of blocks holds some channels of all images in its registers. For small images this saves
a launch and a second pass over memory, forward and backward. For larger ones there would be too few
blocks to read memory at its full speed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels.launch import kernel, pitch, pixels
from pareo.backends.cuda.nhwc.kernels.normalise import (
    instance,
    limits_of,
    sizes,
    vector_of,
    vectors_of,
)
from pareo.backends.cuda.nhwc.kernels.table import NO_OPERAND, instruction
from pareo.backends.cuda.runtime.launch import NULL
from pareo.spec import Spec

THREADS, HELD, WIDEST, BLOCKS = 512, 4, 4, 8  # as in normalise_at_once.cu
LARGEST = 1 << 20  # elements; ResNet-50's batches of 32 were slower beyond
PIXELS = 2  # of a thread, unless there are more than all threads have with so few
ENOUGH = 264  # blocks that fill the GPU: two on each multiprocessor of an H200


def holds(images: Spec) -> bool:
    """Whether a cluster can hold some channels of these images, and is worth it.

    >>> holds(Spec((1, 56, 56, 256))), holds(Spec((32, 14, 14, 256)))
    (True, False)
    """
    return pixels(images) <= BLOCKS * THREADS * HELD and images.size <= LARGEST


def cluster_grid(images: Array | Spec) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid (blocks of a cluster, channels) and block (channels, pixels).

    >>> cluster_grid(Spec((1, 7, 7, 512))), cluster_grid(Spec((1, 56, 56, 64)))
    (((8, 32), (4, 8)), ((8, 16), (1, 256)))
    """
    groups = images.shape[-1] // vector_of(images)
    each = -(-pixels(images) // (BLOCKS * PIXELS))
    high = min(THREADS, max(32 // WIDEST, 1 << (each - 1).bit_length()))
    wide = max(1, 32 // high)
    while wide < WIDEST and 2 * wide * high <= THREADS and groups // wide * BLOCKS > ENOUGH:
        wide *= 2
    return (BLOCKS, -(-groups // wide)), (wide, high)


def _launch(name: str, activation: str, images: Array, arguments: Sequence[Any]) -> None:
    grid, block = cluster_grid(images)
    kernel("normalise_at_once", instance(name, images, activation))(grid, block, arguments)


@instruction(in_place=(0, NO_OPERAND, NO_OPERAND, NO_OPERAND))
def normalise_at_once(
    out: Sequence[Array],
    x: Array,
    scale: Array,
    shift: Array,
    *others: Array,
    activation: str,
    limits: tuple[float, float],
    epsilons: tuple[float, float],
) -> None:
    """The activation of normalised images, plus a residual; mean and variance of each channel.

    A fourth result gets a bit for each positive element. After the shift come the residual and, if
    it is normalised as well, its four vectors.
    """
    y, mean, variance, positive = (*out, NULL)[:4]
    residual, vectors = (others[0], others[1:]) if others else (NULL, ())
    arguments = (
        y, mean, variance, positive, x, scale, shift, np.float32(epsilons[0]), residual,
        vectors_of(vectors, epsilons[1]), *limits_of(*limits), *sizes(x),
    )  # fmt: skip
    _launch("normalise_at_once", activation, x, arguments)


@instruction(in_place=(1, NO_OPERAND, NO_OPERAND, NO_OPERAND), strided=True)
def normalise_back_at_once(
    out: Sequence[Array],
    x: Array,
    g: Array,
    *others: Array,
    activation: str,
    limits: tuple[float, float],
    epsilon: float,
    more: tuple[str, ...],
) -> None:
    """The gradients of x, scale and shift and, as a fourth result, that before the activation.

    After g come the four vectors, and the operands that `more` names: 'other', a gradient to add to
    g; 'signs', the bits of the forward pass; 'addend', which is added to the gradient of x, and may
    be some channels of larger images.
    """
    vectors, named = others[:4], dict(zip(more, others[4:], strict=True))
    result, to_scale, to_shift, masked = (*out, NULL)[:4]
    addend = named.get("addend")
    arguments = (
        result, to_scale, to_shift, masked, x, g, named.get("other", NULL),
        named.get("signs", NULL), NULL if addend is None else addend,
        np.int32(0 if addend is None else pitch(addend)), vectors_of(vectors, epsilon),
        *limits_of(*limits), *sizes(x),
    )  # fmt: skip
    _launch("normalise_back_at_once", activation, x, arguments)
