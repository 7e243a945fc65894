"""A dense layer's weights: gradient and update in one kernel (dense.cu)."""

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.backends.cuda.runtime.launch import NULL

TILE, CHUNK, STAGES, PITCH = 128, 32, 2, 136  # as in dense.cu
VECTOR = 8  # bfloat16 elements that a thread copies at once


def fits(rows: int, columns: int) -> bool:
    """Whether the kernel supports weights of this shape.

    >>> fits(9216, 4096), fits(784, 10)
    (True, False)
    """
    return rows % VECTOR == columns % VECTOR == 0


def _update(
    out: tuple[Array, Array], x: Array, g: Array, given: tuple[Array, Array], *numbers: Array
) -> None:
    """New parameter and velocity, `out`, from the `given` ones; velocities may be NULL."""
    (batch, rows), columns = x.shape, g.shape[1]
    shared = max(2 * STAGES * CHUNK * x.dtype.itemsize, TILE * 4) * PITCH
    function = launch.kernel("dense", f"dense_update<{launch.c_type(x)}>", shared)
    grid = -(-columns // TILE), -(-rows // TILE)
    sizes = map(np.int32, (batch, rows, columns))
    function(grid, (256,), (*out, x, g, *given, *numbers, *sizes), shared_mem=shared)


@instruction(in_place=(2, 3))
def dense_momentum(
    out: Array,
    x: Array,
    g: Array,
    parameter: Array,
    velocity: Array,
    rate: Array,
    momentum: Array,
    decay: Array,
) -> None:
    _update(out, x, g, (parameter, velocity), rate, momentum, decay)


@instruction(in_place=(2,))
def dense_descend(out: Array, x: Array, g: Array, parameter: Array, rate: Array) -> None:
    _update((out, NULL), x, g, (parameter, NULL), rate, NULL, NULL)
