"""A dense layer's weights: gradient and update in one launch (dense.cu)."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.table import NOTHING, offer

TILE, CHUNK, STAGES, PITCH = 128, 32, 2, 136  # as in dense.cu
TOGETHER = 8  # elements that a thread copies at once, in bfloat16


def fits(rows: int, columns: int) -> bool:
    """Whether the kernel can take weights of this shape.

    >>> fits(9216, 4096), fits(784, 10)
    (True, False)
    """
    return rows % TOGETHER == columns % TOGETHER == 0


def _update(out: tuple[Any, Any], x: Any, g: Any, given: tuple[Any, Any], *numbers: Any) -> None:
    """New parameter and velocity, `out`, from the `given` ones; a velocity may be no array."""
    (batch, rows), columns = x.shape, g.shape[1]
    shared = max(2 * STAGES * CHUNK * x.dtype.itemsize, TILE * 4) * PITCH
    function = launch.kernel("dense", f"dense_update<{launch.kind(x)}>", shared)
    grid = -(-columns // TILE), -(-rows // TILE)
    sizes = map(np.int32, (batch, rows, columns))
    function(grid, (256,), (*out, x, g, *given, *numbers, *sizes), shared_mem=shared)


@offer(in_place=(2, 3))
def dense_momentum(
    out: Any, x: Any, g: Any, parameter: Any, velocity: Any, rate: Any, momentum: Any, decay: Any
) -> None:
    _update(out, x, g, (parameter, velocity), rate, momentum, decay)


@offer(in_place=(2,))
def dense_descend(out: Any, x: Any, g: Any, parameter: Any, rate: Any) -> None:
    _update((out, NOTHING), x, g, (parameter, NOTHING), rate, NOTHING, NOTHING)
