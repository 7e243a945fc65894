"""Source of the functions that a generated loop needs with its sizes written in (see `whole`).

With every size a literal, the compiler unrolls the short loops and keeps their sums in registers.
"""

from collections.abc import Callable

# A row of a product this short is held in variables of its own, one for each column.
FEW_COLUMNS = 16
GROUP = 128  # images whose gradients are added up in float32


def dot(name: str, rows: int, columns: int, depth: int) -> str:
    """out (rows, columns) = a (rows, depth) @ b."""
    if columns > FEW_COLUMNS:
        return f"""
@jit
def {name}(out, a, b):
    for i in range({rows}):
        for j in range({columns}):
            out[i, j] = 0
        for k in range({depth}):
            for j in range({columns}):
                out[i, j] += a[i, k] * b[k, j]
"""
    return f"""
@jit
def {name}(out, a, b):
    for i in range({rows}):
        {_each(columns, "t{j} = a.dtype.type(0)")}
        for k in range({depth}):
            e = a[i, k]
            {_each(columns, "t{j} += e * b[k, {j}]")}
        {_each(columns, "out[i, {j}] = t{j}")}
"""


def dot_turned(name: str, rows: int, columns: int, depth: int) -> str:
    """out (rows, columns) = a (rows, depth) @ b.T."""
    if depth > FEW_COLUMNS:
        return f"""
@jit
def {name}(out, a, b):
    for i in range({rows}):
        for j in range({columns}):
            total = a.dtype.type(0)
            for k in range({depth}):
                total += a[i, k] * b[j, k]
            out[i, j] = total
"""
    products = " + ".join(f"e{k} * b[j, {k}]" for k in range(depth))
    return f"""
@jit
def {name}(out, a, b):
    for i in range({rows}):
        {_each(depth, "e{j} = a[i, {j}]")}
        for j in range({columns}):
            out[i, j] = {products}
"""


def add_outer(name: str, rows: int, columns: int, depth: int) -> str:
    """out (rows, columns) += a.T @ b, over `depth` rows of a and b."""
    if columns > FEW_COLUMNS:
        return f"""
@jit
def {name}(out, a, b):
    for n in range({depth}):
        for i in range({rows}):
            for j in range({columns}):
                out[i, j] += a[n, i] * b[n, j]
"""
    return f"""
@jit
def {name}(out, a, b):
    for n in range({depth}):
        {_each(columns, "e{j} = b[n, {j}]")}
        for i in range({rows}):
            x = a[n, i]
            {_each(columns, "out[i, {j}] += x * e{j}")}
"""


def _each(count: int, line: str) -> str:
    """One statement for each column, on one line."""
    return "; ".join(line.format(j=j) for j in range(count))


def tiled_layer(
    filters: int, height: int, width: int, wide: int, kh: int, kw: int, activation: str
) -> str:
    """A module for one convolution layer in tiles: its way forward, and back to its filters.

    `activation` is the name of a loop of `loops`, or empty.
    """
    plane, taps = height * width, kh * kw
    forward = f"loops.{activation}_here(out[n].reshape(-1))" if activation else "pass"
    back = f"loops.{activation}_gradient(d, g[n].reshape(-1), y[n].reshape(-1))"
    copy = "d[:] = g[n].reshape(-1)"
    return f'''"""A convolution layer in tiles, by pareo.backends.compiled.loops.templates."""

import numpy as np

from pareo.backends.compiled.kernels import elementwise_loops as loops
from pareo.backends.compiled.loops import runtime as parts
from pareo.backends.compiled.conv import register_tiles as tiles
from pareo.backends.compiled.runtime.jit import jit


@jit
def forward(out, x, w, b):
    for n in range(out.shape[0]):
        y, image = out[n].ctypes.data, x[n].ctypes.data
        for i in range({height}):
            for k in range(0, {filters}, 3):
                tiles.forward_row(
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
            parts.move(gw, sums)
            parts.move(gb, bias_sums)
        {back if activation else copy}
        parts.add_planes(bias_sums, d.reshape(({filters}, {plane})))
        for k in range(0, {filters}, 3):
            for u in range({kh}):
                tiles.gradient_row(
                    sums.ctypes.data + 4 * (k * {taps} + u * {kw}),
                    x[n].ctypes.data + 4 * u * {wide}, d.ctypes.data + 4 * k * {plane},
                    {height}, {width}, {wide}, {kh}, {kw},
                )
    parts.move(gw, sums)
    parts.move(gb, bias_sums)
'''


Template = Callable[..., str]
