"""Source of functions for a generated loop (see `network`), with all sizes as literals.

The compiler then unrolls the short loops and keeps their sums in registers.
"""

from collections.abc import Callable

# A row of a product that is this short is kept in variables, one for each column.
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


def dot_transposed(name: str, rows: int, columns: int, depth: int) -> str:
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


Template = Callable[..., str]
