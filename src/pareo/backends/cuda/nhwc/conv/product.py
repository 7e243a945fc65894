"""Convolutions of single pixels, stride 1, as matrix products by cuBLAS.

cuDNN computes some of them with the same kernels, but does not list them for every shape.
"""

from dataclasses import dataclass

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.runtime import cublas

NAME = "pareo product"  # on disk: see plans.py


@dataclass(frozen=True)
class Product:
    """Images (pixels, C), filters (K, C) and result (pixels, K), one of them from the others."""

    convolution: Convolution

    @property
    def name(self) -> str:
        return NAME

    @property
    def workspace(self) -> int:
        return 0

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        images, filters, result = (self._matrix(arrays, n) for n in (IMAGES, FILTERS, RESULT))
        if self.convolution.computes == "result":
            cublas.multiply(result, images, filters.T)
        elif self.convolution.computes == "images":
            cublas.multiply(images, result, filters)
        else:
            cublas.multiply(filters, result.T, images)

    def _matrix(self, arrays: dict[int, Array], name: int) -> Array:
        array = arrays[name]
        if self.convolution.precision != "bfloat16" and array.dtype != np.float32:
            array = array.view(np.float32)  # some bytes, to be timed on
        return array.reshape(-1, self.convolution.shape(name)[1])


def plan(one: Convolution) -> Product | None:
    """The plan of a convolution, or None where it is of another kind."""
    _, channels, *window = one.filters
    single = window == [1, 1] and not any(one.padding) and one.images[1] == channels
    plain = one.stride == (1, 1) and not one.epilogue
    return Product(one) if single and plain else None
