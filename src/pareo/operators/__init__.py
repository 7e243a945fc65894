"""The operators of pareo: on arrays they run on the device in scope, on symbols they record.

>>> import numpy as np
>>> from pareo import Device, op
>>> with Device("compiled"):
...     op.sigmoid(np.zeros(2))
array([0.5, 0.5])
"""

from pareo.device import get_mode, set_mode
from pareo.operators.convolution import conv, conv_input_gradient, conv_weight_gradient
from pareo.operators.core import registry
from pareo.operators.elementwise import (
    add,
    broadcast,
    div,
    exp,
    hadamard,
    log,
    relu,
    relu_gradient,
    scale,
    sigmoid,
    sigmoid_gradient,
    sub,
    tanh,
    tanh_gradient,
)
from pareo.operators.linear import (
    add_bias,
    concat,
    dot,
    part,
    part_gradient,
    reshape,
    transpose,
)
from pareo.operators.loss import (
    cross_entropy,
    cross_entropy_gradient,
    log_softmax,
    softmax,
    squared_error,
)
from pareo.operators.normalisation import dropout, lrn, lrn_gradient
from pareo.operators.pooling import (
    average_pool,
    average_pool_gradient,
    max_pool,
    max_pool_gradient,
    subsample,
)
from pareo.operators.reduction import argmax, max_gradient, mean
from pareo.operators.reduction import max_ as max
from pareo.operators.reduction import sum_ as sum
from pareo.operators.update import sgd

mul = hadamard

__all__ = [  # noqa: RUF022  (in the order of the table in the reference)
    "add", "sub", "hadamard", "mul", "div", "scale", "exp", "log", "sigmoid", "tanh", "relu",
    "dot", "transpose", "reshape", "add_bias", "concat", "part", "broadcast",
    "conv", "max_pool", "average_pool", "subsample", "lrn", "dropout",
    "sum", "mean", "max", "argmax",
    "softmax", "log_softmax", "cross_entropy", "squared_error", "sgd",
    "sigmoid_gradient", "tanh_gradient", "relu_gradient", "part_gradient",
    "conv_input_gradient", "conv_weight_gradient", "max_pool_gradient", "average_pool_gradient",
    "lrn_gradient", "max_gradient", "cross_entropy_gradient",
    "get_mode", "set_mode", "registry",
]  # fmt: skip
