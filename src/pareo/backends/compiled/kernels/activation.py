"""Kernels of the newer activations: loops over flat arrays, split over threads without Python."""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import parallel_elementwise

kernel = backend.kernel
SLOW = GRAIN // 4  # elements of functions with an exponential that are worth a thread


def _run(name: str, out: Array, first: Array, *rest: Array, least: int = GRAIN) -> None:
    parallel_elementwise.run(name, out, first, *rest, min_elements=least)


@kernel(in_place=True, strided=False, replayable=True)
def gelu(out: Array, a: Array, approximate: bool) -> None:
    _run("gelu_tanh" if approximate else "gelu", out, a, least=SLOW)


@kernel(in_place=True, strided=False, replayable=True)
def gelu_gradient(out: Array, g: Array, a: Array, approximate: bool) -> None:
    _run("gelu_tanh_gradient" if approximate else "gelu_gradient", out, g, a, least=SLOW)


@kernel(in_place=True, strided=False, replayable=True)
def silu(out: Array, a: Array) -> None:
    _run("silu", out, a, least=SLOW)


@kernel(in_place=True, strided=False, replayable=True)
def silu_gradient(out: Array, g: Array, a: Array) -> None:
    _run("silu_gradient", out, g, a, least=SLOW)


@kernel(in_place=True, strided=False, replayable=True)
def hard_sigmoid(out: Array, a: Array) -> None:
    _run("hard_sigmoid", out, a)


@kernel(in_place=(0,), strided=False, replayable=True)
def hard_sigmoid_gradient(out: Array, g: Array, a: Array) -> None:
    _run("hard_sigmoid_gradient", out, g, a)


@kernel(in_place=True, strided=False, replayable=True)
def hard_swish(out: Array, a: Array) -> None:
    _run("hard_swish", out, a)


@kernel(in_place=(0,), strided=False, replayable=True)
def hard_swish_gradient(out: Array, g: Array, a: Array) -> None:
    _run("hard_swish_gradient", out, g, a)


@kernel(in_place=True, strided=False, replayable=True)
def leaky_relu(out: Array, a: Array, slope: float) -> None:
    _run("leaky_relu", out, a, np.array([slope], a.dtype))


@kernel(in_place=(0,), strided=False, replayable=True)
def leaky_relu_gradient(out: Array, g: Array, a: Array, slope: float) -> None:
    _run("leaky_relu_gradient", out, g, a, np.array([slope], a.dtype))


@kernel(in_place=True, strided=False, replayable=True)
def clip(out: Array, a: Array, low: float, high: float) -> None:
    _run("clip", out, a, np.array([low, high], a.dtype))


@kernel(in_place=(0,), strided=False, replayable=True)
def clip_gradient(out: Array, g: Array, a: Array, low: float, high: float) -> None:
    _run("clip_gradient", out, g, a, np.array([low, high], a.dtype))
