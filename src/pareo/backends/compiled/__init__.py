"""The `compiled` device: Numba kernels over pareo's own threads, BLAS for matrix products."""

from pareo.backends.compiled import (
    convolution,
    elementwise,
    linear,
    loss,
    normalisation,
    pooling,
    reduction,
    update,
)
from pareo.backends.compiled.backend import backend

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
