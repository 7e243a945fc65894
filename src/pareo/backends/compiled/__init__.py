"""The `compiled` device: Numba kernels over pareo's own threads, BLAS for matrix products.

`backend`  the table of kernels
`kernels`  kernels, one module for each family of operators
`conv`     ways to convolve, and the choice between them
`loops`    training loops for whole networks
`runtime`  what compiled code needs: Numba, its cache, vector instructions, threads

`loops` imports from `conv`, which imports from `kernels`; all of them import from `runtime`.
"""

from pareo.backends.compiled.backend import backend
from pareo.backends.compiled.conv import convolution
from pareo.backends.compiled.kernels import (
    activation,
    activation_sums,
    attention,
    augmentation,
    batch_norm,
    elementwise,
    embedding,
    layer_norm,
    linear,
    loss,
    normalisation,
    pooling,
    reduction,
    update,
)

__all__ = [
    "activation",
    "activation_sums",
    "attention",
    "augmentation",
    "backend",
    "batch_norm",
    "convolution",
    "elementwise",
    "embedding",
    "layer_norm",
    "linear",
    "loss",
    "normalisation",
    "pooling",
    "reduction",
    "update",
]
