"""The `sequential` device: every operator as plain loops, the specification of the other devices.

It is written to be read. Sums are kept in double precision and stored once, at the end.
"""

from pareo.backends.sequential import (
    activation,
    attention,
    augmentation,
    convolution,
    elementwise,
    linear,
    loss,
    normalisation,
    pooling,
    reduction,
    update,
)
from pareo.backends.sequential.numbers import backend

__all__ = [
    "activation",
    "attention",
    "augmentation",
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
