"""A generated module for one convolution layer in register tiles, with all sizes as literals."""

from functools import lru_cache
from types import ModuleType

from pareo.backends.compiled.kernels.gradient_sums import GROUP
from pareo.backends.compiled.runtime.generated_module import generated_module


@lru_cache(maxsize=64)
def tiled_layer(
    filters: int, height: int, width: int, wide: int, kh: int, kw: int, activation: str
) -> ModuleType:
    """The module of a layer: `forward`, and `backward` to the filters and biases.

    Args:
        filters, height, width: of the outputs.
        wide: the width of the images.
        kh, kw: of the filters.
        activation: the name of a loop of `elementwise_loops`, or empty.
    """
    sizes = filters, height, width, wide, kh, kw
    return generated_module(_source(*sizes, activation))


def _source(
    filters: int, height: int, width: int, wide: int, kh: int, kw: int, activation: str
) -> str:
    plane, taps = height * width, kh * kw
    forward = (
        f"elementwise_loops.{activation}_in_place(out[n].reshape(-1))" if activation else "pass"
    )
    backward = f"elementwise_loops.{activation}_gradient(d, g[n].reshape(-1), y[n].reshape(-1))"
    copy = "d[:] = g[n].reshape(-1)"
    return f'''"""A convolution layer in tiles, by pareo.backends.compiled.conv.tiled_layer."""

import numpy as np

from pareo.backends.compiled.conv import register_tiles
from pareo.backends.compiled.kernels import elementwise_loops, gradient_sums
from pareo.backends.compiled.runtime.jit import jit


@jit
def forward(out, x, w, b):
    for n in range(out.shape[0]):
        y, image = out[n].ctypes.data, x[n].ctypes.data
        for i in range({height}):
            for k in range(0, {filters}, 3):
                register_tiles.forward_row(
                    y + 4 * (k * {plane} + i * {width}), image + 4 * i * {wide},
                    w.ctypes.data + 4 * k * {taps}, b.ctypes.data + 4 * k,
                    {plane}, {width}, {wide}, {kh}, {kw},
                )
        {forward}


@jit
def backward(gw, gb, x, g, y):
    d = np.empty({filters * plane}, np.float32)
    sums = np.zeros({filters * taps}, np.float32)
    bias_sums = np.zeros({filters}, np.float32)
    for n in range(g.shape[0]):
        if n % {GROUP} == 0:
            gradient_sums.flush(gw, sums)
            gradient_sums.flush(gb, bias_sums)
        {backward if activation else copy}
        gradient_sums.add_planes(bias_sums, d.reshape(({filters}, {plane})))
        for k in range(0, {filters}, 3):
            for u in range({kh}):
                register_tiles.gradient_row(
                    sums.ctypes.data + 4 * (k * {taps} + u * {kw}),
                    x[n].ctypes.data + 4 * u * {wide}, d.ctypes.data + 4 * k * {plane},
                    {height}, {width}, {wide}, {kh}, {kw},
                )
    gradient_sums.flush(gw, sums)
    gradient_sums.flush(gb, bias_sums)
'''
