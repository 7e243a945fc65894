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
        """One of the arrays as a matrix; it may be bytes: to be timed on, or flipped filters.

        The bytes of flipped filters are padded, so only as many elements as there are count.
        """
        kind = np.dtype(np.uint16 if self.convolution.precision == "bfloat16" else np.float32)
        flat = arrays[name].reshape(-1)
        if flat.dtype.itemsize != kind.itemsize:
            flat = flat.view(kind)
        shape = self.convolution.shape(name)
        return flat[: self.convolution.size(name)].reshape(-1, shape[1])


def plan(one: Convolution) -> Product | None:
    """The plan of a convolution, or None where it is of another kind."""
    _, channels, *window = one.filters
    single = window == [1, 1] and not any(one.padding) and one.images[1] == channels
    plain = one.stride == (1, 1) and not one.epilogue
    return Product(one) if single and plain else None
