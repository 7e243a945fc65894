"""The rules of lowering: what becomes of each operator in a lowered program.

A rule is a function named after its operator and entered into `table`. `convolution`, `activation`,
`normalise` (batch normalisation), `images` (pooling, local response normalisation), `shapes`,
`dense`, `tokens`, `attention` and `update` are its families.
"""

from pareo.backends.cuda.nhwc.rules import (
    activation,
    convolution,
    dense,
    images,
    normalise,
    normalise_back,
    shapes,
    tokens,
)
from pareo.backends.cuda.nhwc.rules.attention import find_attention
from pareo.backends.cuda.nhwc.rules.table import RULES
from pareo.backends.cuda.nhwc.rules.update import add_grouped_updates

__all__ = [
    "RULES",
    "activation",
    "add_grouped_updates",
    "convolution",
    "dense",
    "find_attention",
    "images",
    "normalise",
    "normalise_back",
    "shapes",
    "tokens",
]
