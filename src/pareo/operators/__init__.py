"""The operators of pareo: on arrays they run on the device in scope, on symbols they record.

>>> import numpy as np
>>> from pareo import Device, op
>>> with Device("compiled"):
...     op.sigmoid(np.zeros(2))
array([0.5, 0.5])
"""

from pareo.device import get_mode, set_mode
from pareo.operators.activation import (
    clip,
    clip_gradient,
    gelu,
    gelu_gradient,
    hard_sigmoid,
    hard_sigmoid_gradient,
    hard_swish,
    hard_swish_gradient,
    leaky_relu,
    leaky_relu_gradient,
    silu,
    silu_gradient,
)
from pareo.operators.attention import attention, attention_gradient, attention_with_sums
from pareo.operators.augmentation import augment
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
    pad,
    part,
    part_gradient,
    reshape,
    split,
    take,
    take_gradient,
    transpose,
)
from pareo.operators.loss import (
    cross_entropy,
    cross_entropy_gradient,
    log_softmax,
    softmax,
    squared_error,
)
from pareo.operators.normalisation import (
    batch_norm,
    batch_norm_gradient,
    batch_norm_inference,
    dropout,
    layer_norm,
    layer_norm_gradient,
    lrn,
    lrn_gradient,
)
from pareo.operators.pooling import (
    average_pool,
    average_pool_gradient,
    max_pool,
    max_pool_gradient,
    subsample,
)
from pareo.operators.reduction import argmax, max_gradient, mean, norm
from pareo.operators.reduction import max_ as max
from pareo.operators.reduction import sum_ as sum
from pareo.operators.update import adam, adamw, lion, sgd

mul = hadamard

__all__ = [  # noqa: RUF022  (in the order of the table in the reference)
    "add", "sub", "hadamard", "mul", "div", "scale", "exp", "log",
    "sigmoid", "tanh", "relu", "leaky_relu", "clip", "gelu", "silu", "hard_sigmoid", "hard_swish",
    "dot", "transpose", "reshape", "add_bias", "concat", "split", "part", "pad", "take",
    "broadcast",
    "conv", "max_pool", "average_pool", "subsample",
    "batch_norm", "batch_norm_inference", "layer_norm", "lrn", "dropout", "augment",
    "attention", "attention_with_sums",
    "sum", "mean", "max", "argmax", "norm",
    "softmax", "log_softmax", "cross_entropy", "squared_error", "sgd", "adam", "adamw", "lion",
    "sigmoid_gradient", "tanh_gradient", "relu_gradient", "leaky_relu_gradient", "clip_gradient",
    "gelu_gradient", "silu_gradient", "hard_sigmoid_gradient", "hard_swish_gradient",
    "part_gradient", "take_gradient",
    "conv_input_gradient", "conv_weight_gradient", "max_pool_gradient", "average_pool_gradient",
    "batch_norm_gradient", "layer_norm_gradient", "lrn_gradient", "attention_gradient",
    "max_gradient", "cross_entropy_gradient",
    "get_mode", "set_mode", "registry",
]  # fmt: skip
