"""Activations in the working precision (activation.cu)."""

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.launch import c_type, kernel, vector_width
from pareo.backends.cuda.nhwc.kernels.table import instruction


@instruction(in_place=(0,))
def activation_forward(out: Array, x: Array, activation: str, low: float, high: float) -> None:
    vector = vector_width(out.size, out, x)
    name = f"activation<{c_type(x)}, {vector}, {activation}>"
    numbers = np.int64(x.size), np.float32(low), np.float32(high)
    kernel("activation", name)(*launch.element_grid(x.size, vector), (out, x, *numbers))


@instruction(in_place=True)
def activation_back(
    out: Array, g: Array, x: Array, activation: str, low: float, high: float
) -> None:
    """The gradient of an activation of x, from g, the gradient of its result."""
    vector = vector_width(out.size, out, g, x)
    name = f"activation_back<{c_type(x)}, {vector}, {activation}>"
    numbers = np.int64(x.size), np.float32(low), np.float32(high)
    kernel("activation", name)(*launch.element_grid(x.size, vector), (out, g, x, *numbers))
