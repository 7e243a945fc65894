"""Biases, activations, dropout and dense layers in the working precision (bias.cu)."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.launch import kernel, kind, pitch, pixels, together
from pareo.backends.cuda.nhwc.kernels.layout import beside, least
from pareo.backends.cuda.nhwc.kernels.table import NOT, NOTHING, offer
from pareo.backends.cuda.runtime import cublas
from pareo.operators.normalisation import dropout_threshold
from pareo.spec import Spec


def partial_sums(images: Spec) -> Spec:
    """What blocks leave of the sums of images, channel by channel: a row each, and their number.

    >>> partial_sums(Spec((1, 2, 2, 8)))
    Spec((2, 8), 'float32')
    """
    channels = images.shape[-1]
    return Spec((1 + launch.most_rows(pixels(images), channels), channels))


@offer()
def add_sums(out: Any, partial: Any) -> None:
    """The sums of what blocks left: apart, as only the update of a bias waits for them."""
    blocks = (-(-out.size // 32),)
    kernel("bias", "add_partial")(blocks, (32, 32), (out, partial, np.int32(out.size)))


def _relu_back(d: Any, partial: Any, y: Any, gradients: tuple[Any, ...]) -> None:
    channels = y.shape[-1]
    many = min(together(channels, d, y), least(*gradients))
    grid, block = launch.walk(pixels(y), channels, many)
    sizes = np.uint32(pixels(y)), np.int32(channels)
    function = kernel("bias", f"relu_bias_back<{kind(y)}, {many}>")
    arguments = (d, partial, y, *sizes, *beside(gradients))
    function(grid, block, arguments, shared_mem=room(block, many))


@offer(in_place=(1, NOT), strided=True)
def relu_bias_back(out: Any, y: Any, *gradients: Any) -> None:
    d, partial = out
    _relu_back(d, partial, y, gradients)


@offer(strided=True)
def relu_back(out: Any, g: Any, y: Any) -> None:
    _relu_back(out, NOTHING, y, (g,))


@offer(strided=True)
def bias_back(out: Any, g: Any) -> None:
    channels = g.shape[-1]
    many = together(channels, g)
    grid, block = launch.walk(pixels(g), channels, many)
    sizes = np.int64(pixels(g)), np.int32(channels), np.int32(pitch(g))
    function = kernel("bias", f"bias_back<{kind(g)}, {many}>")
    function(grid, block, (out, g, *sizes), shared_mem=room(block, many))


def room(block: tuple[int, int], many: int) -> int:
    """Bytes of shared memory for a block's sums."""
    return block[0] * block[1] * many * 4


@offer(in_place=(0,))
def bias_forward(out: Any, x: Any, b: Any, relu: bool) -> None:
    function = kernel("bias", f"add_bias<{kind(out)}, {str(relu).lower()}>")
    function(*launch.flat(out.size), (out, x, b, np.int64(out.size), np.int32(b.size)))


@offer(in_place=(0,))
def dropout_working(out: Any, x: Any, seed: Any, rate: float) -> None:
    numbers = np.int64(x.size), np.uint32(dropout_threshold(rate)), np.float32(1 / (1 - rate))
    kernel("bias", f"dropout<{kind(x)}>")(*launch.flat(x.size), (out, x, seed, *numbers))


@offer()
def dot_working(out: Any, a: Any, b: Any, turned: tuple[bool, bool]) -> None:
    """out = a b, each turned first where `turned` says so."""
    cublas.multiply(out, a.T if turned[0] else a, b.T if turned[1] else b)
