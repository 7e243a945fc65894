"""Elementwise loops by number, for compiled code that chooses one of them at run time.

Activations and their gradients are numbered by their names. `numbers` are those of the activation:
a slope, or a lower and an upper limit; it has at least one element.
"""

from pareo.array import Array
from pareo.backends.compiled.kernels import activation_loops as newer
from pareo.backends.compiled.kernels import elementwise_loops as loops
from pareo.backends.compiled.runtime.jit import jit

NAMES = (
    "none", "relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "hard_sigmoid", "hard_swish",
    "leaky_relu", "clip",
)  # fmt: skip
CODES = {name: code for code, name in enumerate(NAMES)}
(
    NONE, RELU, SIGMOID, TANH, GELU, GELU_TANH, SILU, HARD_SIGMOID, HARD_SWISH, LEAKY_RELU, CLIP,
) = range(len(NAMES))  # fmt: skip


@jit
def activate(code: int, out: Array, a: Array, numbers: Array) -> None:
    """out = an activation of a, both flat and in different memory."""
    if code == RELU:
        loops.relu(out, a)
    elif code == SIGMOID:
        loops.sigmoid(out, a)
    elif code == TANH:
        loops.tanh(out, a)
    elif code == GELU:
        newer.gelu(out, a)
    elif code == GELU_TANH:
        newer.gelu_tanh(out, a)
    elif code == SILU:
        newer.silu(out, a)
    elif code == HARD_SIGMOID:
        newer.hard_sigmoid(out, a)
    elif code == HARD_SWISH:
        newer.hard_swish(out, a)
    elif code == LEAKY_RELU:
        newer.leaky_relu(out, a, numbers)
    elif code == CLIP:
        newer.clip(out, a, numbers)


@jit
def activate_in_place(code: int, a: Array, numbers: Array) -> None:
    """a = an activation of a."""
    if code == RELU:
        loops.relu_in_place(a)
    elif code == SIGMOID:
        loops.sigmoid_in_place(a)
    elif code == TANH:
        loops.tanh_in_place(a)
    elif code == GELU:
        newer.gelu_in_place(a)
    elif code == GELU_TANH:
        newer.gelu_tanh_in_place(a)
    elif code == SILU:
        newer.silu_in_place(a)
    elif code == HARD_SIGMOID:
        newer.hard_sigmoid_in_place(a)
    elif code == HARD_SWISH:
        newer.hard_swish_in_place(a)
    elif code == LEAKY_RELU:
        newer.leaky_relu_in_place(a, numbers)
    elif code == CLIP:
        newer.clip_in_place(a, numbers)


@jit
def differentiate(code: int, out: Array, g: Array, a: Array, numbers: Array) -> None:
    """out = g times the derivative of an activation, in memory that neither g nor a has.

    `a` is the activation's result for relu, sigmoid and tanh, and its operand for the others.
    """
    if code == RELU:
        loops.relu_gradient(out, g, a)
    elif code == SIGMOID:
        loops.sigmoid_gradient(out, g, a)
    elif code == TANH:
        loops.tanh_gradient(out, g, a)
    elif code == GELU:
        newer.gelu_gradient(out, g, a)
    elif code == GELU_TANH:
        newer.gelu_tanh_gradient(out, g, a)
    elif code == SILU:
        newer.silu_gradient(out, g, a)
    elif code == HARD_SIGMOID:
        newer.hard_sigmoid_gradient(out, g, a)
    elif code == HARD_SWISH:
        newer.hard_swish_gradient(out, g, a)
    elif code == LEAKY_RELU:
        newer.leaky_relu_gradient(out, g, a, numbers)
    elif code == CLIP:
        newer.clip_gradient(out, g, a, numbers)


@jit
def differentiate_in_place(code: int, g: Array, a: Array, numbers: Array) -> None:
    """g = g times the derivative of an activation."""
    if code == RELU:
        loops.relu_gradient_in_place(g, a)
    elif code == SIGMOID:
        loops.sigmoid_gradient_in_place(g, a)
    elif code == TANH:
        loops.tanh_gradient_in_place(g, a)
    elif code == GELU:
        newer.gelu_gradient_in_place(g, a)
    elif code == GELU_TANH:
        newer.gelu_tanh_gradient_in_place(g, a)
    elif code == SILU:
        newer.silu_gradient_in_place(g, a)
    elif code == HARD_SIGMOID:
        newer.hard_sigmoid_gradient_in_place(g, a)
    elif code == HARD_SWISH:
        newer.hard_swish_gradient_in_place(g, a)
    elif code == LEAKY_RELU:
        newer.leaky_relu_gradient_in_place(g, a, numbers)
    elif code == CLIP:
        newer.clip_gradient_in_place(g, a, numbers)
