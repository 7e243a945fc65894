"""Biases, activations, dropout and dense layers in the working precision (bias.cu)."""

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.launch import c_type, kernel, pitch, pixels, vector_width
from pareo.backends.cuda.nhwc.kernels.layout import common_vector_width, side_by_side
from pareo.backends.cuda.nhwc.kernels.table import NO_OPERAND, instruction
from pareo.backends.cuda.runtime import cublas
from pareo.backends.cuda.runtime.launch import NULL
from pareo.operators.normalisation import dropout_threshold
from pareo.spec import Spec


def partial_sums(images: Spec) -> Spec:
    """The array of the blocks' partial sums for each channel: a header, then a row for each block.

    >>> partial_sums(Spec((1, 2, 2, 8)))
    Spec((2, 8), 'float32')
    """
    channels = images.shape[-1]
    return Spec((1 + launch.max_pixel_blocks(pixels(images), channels), channels))


@instruction()
def add_sums(out: Array, partial: Array) -> None:
    """Add up partial sums: a separate instruction, as only the update of a bias needs them."""
    blocks = (-(-out.size // 32),)
    kernel("bias", "add_partial")(blocks, (32, 32), (out, partial, np.int32(out.size)))


def _relu_back(d: Array, partial: Array, y: Array, gradients: tuple[Array, ...]) -> None:
    channels = y.shape[-1]
    vector = min(vector_width(channels, d, y), common_vector_width(*gradients))
    grid, block = launch.pixel_grid(pixels(y), channels, vector)
    sizes = np.uint32(pixels(y)), np.int32(channels)
    function = kernel("bias", f"relu_bias_back<{c_type(y)}, {vector}>")
    arguments = (d, partial, y, *sizes, *side_by_side(gradients))
    function(grid, block, arguments, shared_mem=shared_bytes(block, vector))


@instruction(in_place=(1, NO_OPERAND), strided=True)
def relu_bias_back(out: Array, y: Array, *gradients: Array) -> None:
    d, partial = out
    _relu_back(d, partial, y, gradients)


@instruction(strided=True)
def relu_back(out: Array, g: Array, y: Array) -> None:
    _relu_back(out, NULL, y, (g,))


@instruction(strided=True)
def bias_back(out: Array, g: Array) -> None:
    channels = g.shape[-1]
    vector = vector_width(channels, g)
    grid, block = launch.pixel_grid(pixels(g), channels, vector)
    sizes = np.int64(pixels(g)), np.int32(channels), np.int32(pitch(g))
    function = kernel("bias", f"bias_back<{c_type(g)}, {vector}>")
    function(grid, block, (out, g, *sizes), shared_mem=shared_bytes(block, vector))


def shared_bytes(block: tuple[int, int], vector: int) -> int:
    """Bytes of shared memory for a block's sums."""
    return block[0] * block[1] * vector * 4


@instruction(in_place=(0,))
def bias_forward(out: Array, x: Array, b: Array, relu: bool) -> None:
    function = kernel("bias", f"add_bias<{c_type(out)}, {str(relu).lower()}>")
    function(*launch.element_grid(out.size), (out, x, b, np.int64(out.size), np.int32(b.size)))


@instruction(in_place=(0,))
def dropout_working(out: Array, x: Array, seed: Array, rate: float) -> None:
    numbers = np.int64(x.size), np.uint32(dropout_threshold(rate)), np.float32(1 / (1 - rate))
    kernel("bias", f"dropout<{c_type(x)}>")(*launch.element_grid(x.size), (out, x, seed, *numbers))


@instruction()
def dot_working(out: Array, a: Array, b: Array, transposed: tuple[bool, bool]) -> None:
    """out = a b, where each factor is transposed first if `transposed` says so."""
    cublas.multiply(out, a.T if transposed[0] else a, b.T if transposed[1] else b)
