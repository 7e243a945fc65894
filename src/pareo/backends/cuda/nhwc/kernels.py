"""All instructions of lowered programs: importing this module enters them into their table."""

from pareo.backends.cuda.nhwc import (
    bias,
    convolution,
    dense,
    input_gradient_as_forward,
    layout,
    lrn,
    pool,
)
from pareo.backends.cuda.nhwc.instructions import INSTRUCTIONS

__all__ = [
    "INSTRUCTIONS",
    "bias",
    "convolution",
    "dense",
    "input_gradient_as_forward",
    "layout",
    "lrn",
    "pool",
]
