"""Source of the functions that a generated loop needs with its sizes written in (see `whole`).

With every size a literal, the compiler unrolls the short loops and keeps their sums in registers.
"""

from collections.abc import Callable

# A row of a product this short is held in variables of its own, one for each column.
FEW_COLUMNS = 16


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


def shrink(name: str, planes: int, height: int, width: int, kh: int, kw: int) -> str:
    """Subsampling by windows that do not overlap.

    The filter is laid out once along a whole row of the image, so that the rows of a window are
    multiplied and added at full width; then the row is folded, window by window.
    """
    return f"""
@jit
def {name}(out, x, w, b, laid, line):
    for u in range({kh}):
        for j in range({width}):
            for v in range({kw}):
                laid[u, j * {kw} + v] = w[u * {kw} + v]
    for p in range({planes}):
        for i in range({height}):
            for c in range({width * kw}):
                total = laid[0, c] * x[p, i * {kh}, c]
                for u in range(1, {kh}):
                    total += laid[u, c] * x[p, i * {kh} + u, c]
                line[c] = total
            for j in range({width}):
                total = b
                for v in range({kw}):
                    total += line[j * {kw} + v]
                out[p, i, j] = total
"""


def shrink_back(name: str, planes: int, height: int, width: int, kh: int, kw: int) -> str:
    """The way back, to the images and to the filter at once, all arrays flat.

    The rows of a window lie one after the other, so a whole row of windows is one straight loop
    over errors repeated along their windows, beside the filter laid out likewise.
    """
    row, block = width * kw, kh * width * kw
    return f"""
@jit
def {name}(gx, gw, x, g, w, laid, errors, held):
    for u in range({kh}):
        for j in range({width}):
            for v in range({kw}):
                laid[u * {row} + j * {kw} + v] = w[u * {kw} + v]
    held[:] = 0
    for i in range({planes * height}):
        for u in range({kh}):
            for j in range({width}):
                for v in range({kw}):
                    errors[u * {row} + j * {kw} + v] = g[i * {width} + j]
        start = i * {block}
        for c in range({block}):
            gx[start + c] = errors[c] * laid[c]
        for c in range({block}):
            held[c] += errors[c] * x[start + c]
    for u in range({kh}):
        for j in range({width}):
            for v in range({kw}):
                gw[u * {kw} + v] += held[u * {row} + j * {kw} + v]
"""


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
    return f'''"""Generated by pareo.backends.compiled.templates: a convolution layer in tiles."""

import numpy as np

from pareo.backends.compiled import loops, parts, tiles
from pareo.backends.compiled.jit import jit


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
        {back if activation else copy}
        parts.add_planes(bias_sums, d.reshape(({filters}, {plane})))
        for k in range(0, {filters}, 3):
            for u in range({kh}):
                tiles.gradient_row(
                    sums.ctypes.data + 4 * (k * {taps} + u * {kw}),
                    x[n].ctypes.data + 4 * u * {wide}, d.ctypes.data + 4 * k * {plane},
                    {height}, {width}, {wide}, {kh}, {kw},
                )
    parts.add_to(gw, sums)
    parts.add_to(gb, bias_sums)
'''


Template = Callable[..., str]
