"""The activations of newer networks and their gradients."""

from pareo.array import Array
from pareo.backends.cuda.kernels import elementwise
from pareo.backends.cuda.table import backend


def _apply(
    name: str, out: Array, a: Array, b: Array = None, low: float = 0.0, high: float = 0.0
) -> None:
    elementwise.apply(name, out, a, b, file="activation", numbers=(low, high))


@backend.kernel(in_place=True)
def gelu(out: Array, a: Array, approximate: bool) -> None:
    _apply("gelu_tanh" if approximate else "gelu", out, a)


@backend.kernel(in_place=True)
def gelu_gradient(out: Array, g: Array, a: Array, approximate: bool) -> None:
    _apply("gelu_tanh_gradient" if approximate else "gelu_gradient", out, g, a)


@backend.kernel(in_place=True)
def silu(out: Array, a: Array) -> None:
    _apply("silu", out, a)


@backend.kernel(in_place=True)
def silu_gradient(out: Array, g: Array, a: Array) -> None:
    _apply("silu_gradient", out, g, a)


@backend.kernel(in_place=True)
def hard_sigmoid(out: Array, a: Array) -> None:
    _apply("hard_sigmoid", out, a)


@backend.kernel(in_place=True)
def hard_sigmoid_gradient(out: Array, g: Array, a: Array) -> None:
    _apply("hard_sigmoid_gradient", out, g, a)


@backend.kernel(in_place=True)
def hard_swish(out: Array, a: Array) -> None:
    _apply("hard_swish", out, a)


@backend.kernel(in_place=True)
def hard_swish_gradient(out: Array, g: Array, a: Array) -> None:
    _apply("hard_swish_gradient", out, g, a)


@backend.kernel(in_place=True)
def leaky_relu(out: Array, a: Array, slope: float) -> None:
    _apply("leaky_relu", out, a, low=slope)


@backend.kernel(in_place=True)
def leaky_relu_gradient(out: Array, g: Array, a: Array, slope: float) -> None:
    _apply("leaky_relu_gradient", out, g, a, low=slope)


@backend.kernel(in_place=True)
def clip(out: Array, a: Array, low: float, high: float) -> None:
    _apply("clip", out, a, low=low, high=high)


@backend.kernel(in_place=True)
def clip_gradient(out: Array, g: Array, a: Array, low: float, high: float) -> None:
    _apply("clip_gradient", out, g, a, low=low, high=high)
