"""All instructions of lowered programs; importing this module fills their table."""

from pareo.backends.cuda.nhwc import attention
from pareo.backends.cuda.nhwc.conv import (
    convolution,
    input_gradient_as_forward,
    product_sums,
)
from pareo.backends.cuda.nhwc.kernels import (
    activation,
    bias,
    dense,
    layout,
    lrn,
    normalise,
    normalise_at_once,
    pool,
    tokens,
)
from pareo.backends.cuda.nhwc.kernels.table import INSTRUCTIONS

__all__ = [
    "INSTRUCTIONS",
    "activation",
    "attention",
    "bias",
    "convolution",
    "dense",
    "input_gradient_as_forward",
    "layout",
    "lrn",
    "normalise",
    "normalise_at_once",
    "pool",
    "product_sums",
    "tokens",
]
