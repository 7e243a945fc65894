"""The `vectorized` device: NumPy on whole arrays, and its BLAS; one short file per family.

No kernel makes an array of its own: work arrays are declared as scratch, so a program plans them.
Where a kernel needs several passes it goes block by block, to find its data in the cache again.
"""

from pareo.backends.vectorized import (
    activation,
    attention,
    augmentation,
    batch_normalisation,
    convolution,
    elementwise,
    layer_normalisation,
    linear,
    loss,
    normalisation,
    pooling,
    reduction,
    update,
)
from pareo.backends.vectorized.table import backend

__all__ = [
    "activation",
    "attention",
    "augmentation",
    "backend",
    "batch_normalisation",
    "convolution",
    "elementwise",
    "layer_normalisation",
    "linear",
    "loss",
    "normalisation",
    "pooling",
    "reduction",
    "update",
]
