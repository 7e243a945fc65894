"""The `compiled` device: Numba kernels over pareo's own threads, BLAS for matrix products."""

from pareo.backends.compiled.backend import backend
from pareo.backends.compiled.conv import convolution
from pareo.backends.compiled.kernels import (
    elementwise,
    linear,
    loss,
    normalisation,
    pooling,
    reduction,
    update,
)

__all__ = [
    "backend",
    "convolution",
    "elementwise",
    "linear",
    "loss",
    "normalisation",
    "pooling",
    "reduction",
    "update",
]
