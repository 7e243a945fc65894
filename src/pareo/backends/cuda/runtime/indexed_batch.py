"""A batch that is not gathered: kernels read its images from the dataset, by index."""

from functools import cache
from typing import Any

from pareo.array import Array
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.backends.cuda.runtime.launch import NULL
from pareo.program.ir import Program

READERS = ("space_to_depth",)  # instructions whose kernels can


def indexed_batch(images: Array, batch: int, order: Array, step: Array) -> Array:
    """The images of a batch, given by row `step` of `order`; both are on the GPU.

    READERS read the indexed images. To any other reader it is the first images of the dataset.
    """
    found = _array_type()((batch, *images.shape[1:]), images.dtype, images.data)
    found.order, found.step = order, step
    return found


def order_and_step(images: Array) -> tuple[Array, Array]:
    """The order and step of an indexed batch as kernel arguments; null for any other array."""
    if isinstance(images, _array_type()):
        return images.order, images.step
    return NULL, NULL


@cache
def _array_type() -> Any:
    class IndexedBatch(cupy.ndarray):
        order: Array
        step: Array

    return IndexedBatch


def reads_in_place(program: Program, number: int) -> bool:
    """Whether every reader of a program's input can read it from the dataset, by index."""
    readers = [one for one in program.instructions if number in one.inputs]
    return number not in program.outputs and all(one.name in READERS for one in readers)
