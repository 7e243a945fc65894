"""All instructions of lowered programs: importing this module enters them into their table."""

from pareo.backends.cuda.large import bias, convolution, dense, layout, lrn, pool, turned
from pareo.backends.cuda.large.instructions import INSTRUCTIONS

__all__ = ["INSTRUCTIONS", "bias", "convolution", "dense", "layout", "lrn", "pool", "turned"]
