"""A batch that is not gathered: its images are read where the data lies, as an order tells."""

from functools import cache
from typing import Any

import numpy as np

from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.program.ir import Program

READERS = ("image_blocks",)  # instructions that can
NOWHERE = np.uint64(0)


def picked(images: Any, batch: int, order: Any, step: Any) -> Any:
    """The images that row `step`, on the card, of an order names, in the shape of a batch.

    To all but READERS it is the first images of the data.
    """
    found = _kind()((batch, *images.shape[1:]), images.dtype, images.data)
    found.order, found.step = order, step
    return found


def picks(images: Any) -> tuple[Any, Any]:
    """The order and the step of a batch that is picked, for a kernel; of any other, nothing."""
    if isinstance(images, _kind()):
        return images.order, images.step
    return NOWHERE, NOWHERE


@cache
def _kind() -> Any:
    class Picked(cupy.ndarray):
        order: Any
        step: Any

    return Picked


def pickable(program: Program, number: int) -> bool:
    """Whether all that read an input of a program can do so where the data lies."""
    readers = [one for one in program.instructions if number in one.inputs]
    return number not in program.outputs and all(one.name in READERS for one in readers)
