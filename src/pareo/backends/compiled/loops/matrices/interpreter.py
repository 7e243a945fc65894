"""The loop over steps and the instructions of a table, compiled once for all networks.

Each worker runs the whole table on its own part of each instruction's result. Where an instruction
needs what other workers write, the table has a barrier before it.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels import (
    batch_norm_columns,
    elementwise_loops,
    layer_norm_rows,
)
from pareo.backends.compiled.kernels.elementwise_codes import (
    NONE,
    activate,
    activate_in_place,
    differentiate,
    differentiate_in_place,
)
from pareo.backends.compiled.kernels.loss import cross_entropy_rows
from pareo.backends.compiled.kernels.reduction import ROWS
from pareo.backends.compiled.loops.gather import gather
from pareo.backends.compiled.loops.matrices import packed_products, small_batch, tile_products
from pareo.backends.compiled.loops.matrices.blas_product import blas_product
from pareo.backends.compiled.loops.matrices.tile_products import IS_WIDE
from pareo.backends.compiled.runtime.array_at import matrix_at, number_at, vector_at
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.spin_barrier import spin_barrier

# The instructions.
(
    PRODUCT, TILE_FORWARD, TILE_TRANSPOSED, TILE_UPDATE,
    PACKED_FORWARD, PACKED_BACKWARD,
    SMALL_FORWARD, SMALL_TRANSPOSED, SMALL_UPDATE, SMALL_BACKWARD,
    ACTIVATE, DIFFERENTIATE, ADD, COLUMN_SUMS, STEP_DOWN, BLEND,
    LAYER_NORM, LAYER_NORM_BACKWARD, LAYER_NORM_SUMS,
    BATCH_NORM, BATCH_NORM_AGAIN, BATCH_NORM_BACKWARD, LOSS, PARTIAL_FORWARD, ADD_PARTS,
) = range(25)  # fmt: skip

# The columns of a table. A and B are the flags of a product: whether an operand is transposed.
# RATE is the value that a product is multiplied by and subtracted; -1 to replace the result.
OPCODE, BARRIER, SPLIT, CODE, NUMBERS, M, N, K, A, B, RATE, VALUES = range(12)
OPERANDS = 9  # values, from VALUES on; -1 for none
WIDTH = VALUES + OPERANDS
BY_ROWS, BY_COLUMNS = range(2)  # how workers divide a result
GRAIN = 16  # columns: workers do not write to the same line of a cache


@jit
def share(count: int, grain: int, worker: int, workers: int) -> tuple[int, int]:
    """The items that are a worker's; all but the last share are multiples of `grain`."""
    pieces = -(-count // grain)
    low, high = pieces * worker // workers, pieces * (worker + 1) // workers
    return min(low * grain, count), min(high * grain, count)


@jit
def _part(row: Array, worker: int, workers: int) -> tuple[int, int, int, int]:
    """The first and last row, and the first and last column, that are a worker's."""
    m, n = row[M], row[N]
    if row[SPLIT] == BY_ROWS:
        # Rows of weights are shared as the columns that their layer reads.
        grain = GRAIN if row[OPCODE] in (TILE_UPDATE, SMALL_UPDATE) else 1
        low, high = share(m, grain, worker, workers)
        return low, high, 0, n
    grain = packed_products.WIDE if row[OPCODE] == PACKED_FORWARD else GRAIN
    low, high = share(n, grain, worker, workers)
    return 0, m, low, high


@jit
def _product(
    row: Array, at: Array, function: int, worker: int, workers: int, none: Array, work: int
) -> None:
    """A product, with a bias and an activation or subtracted from its result on request."""
    m, n = row[M], row[N]
    sizes = m, n, row[K]
    out, a, b = at[row[VALUES]], at[row[VALUES + 1]], at[row[VALUES + 2]]
    top, bottom, left, right = _part(row, worker, workers)
    one, zero = np.float32(1), np.float32(0)
    if IS_WIDE and row[OPCODE] in (TILE_FORWARD, TILE_TRANSPOSED, TILE_UPDATE):
        _tile_product(row, at, (top, bottom), (left, right))
    elif IS_WIDE and row[OPCODE] in (PACKED_FORWARD, PACKED_BACKWARD):
        _packed_product(row, at, (top, bottom), (left, right), work)
    elif row[OPCODE] == PRODUCT:
        alpha, beta = one, zero
        if row[RATE] >= 0:
            alpha, beta = -number_at(at[row[RATE]]), one
        blas_product(
            function, out, a, b, row[A] == 1, row[B] == 1, sizes, alpha, beta, (top, bottom),
            (left, right),
        )  # fmt: skip
    elif row[OPCODE] == SMALL_FORWARD:
        small_batch.forward(out, a, b, sizes, left, right)
    elif row[OPCODE] == SMALL_TRANSPOSED:
        small_batch.transposed(out, a, b, sizes, left, right)
    elif row[OPCODE] == SMALL_UPDATE:
        small_batch.update(out, a, b, sizes, -number_at(at[row[RATE]]), top, bottom)
    else:
        x, rate = at[row[VALUES + 3]], number_at(at[row[RATE]])
        small_batch.backward(out, b, x, a, sizes, -rate, left, right)
    if row[VALUES + 4] >= 0:
        is_added = row[OPCODE] in (TILE_FORWARD, PACKED_FORWARD)
        _add_bias(out, at[row[VALUES + 4]], row, (top, bottom), (left, right), is_added, none)


@jit
def _partial_product(row: Array, at: Array, worker: int, workers: int) -> None:
    """What a worker's columns of a, and the same rows of b, add to a @ b."""
    m, n, depth = row[M], row[N], row[K]
    out, a, b = at[row[VALUES]], at[row[VALUES + 1]], at[row[VALUES + 2]]
    low, high = share(depth, GRAIN, worker, workers)
    tile_products.partial_forward(out + 4 * m * n * worker, a, b, (m, n, depth), low, high)


@jit
def _add_parts(row: Array, at: Array, worker: int, workers: int, none: Array) -> None:
    """Some columns of the sum of all workers' parts, with a bias and an activation."""
    m, n = row[M], row[N]
    out, parts = at[row[VALUES]], at[row[VALUES + 1]]
    left, right = share(n, GRAIN, worker, workers)
    y = matrix_at(out, m, n)
    first = matrix_at(parts, workers * m, n)
    for i in range(m):
        elementwise_loops.add(y[i, left:right], first[i, left:right], first[m + i, left:right])
        for other in range(2, workers):
            elementwise_loops.add_in_place(y[i, left:right], first[other * m + i, left:right])
    if row[VALUES + 4] >= 0:
        _add_bias(out, at[row[VALUES + 4]], row, (0, m), (left, right), False, none)


@jit
def _tile_product(row: Array, at: Array, rows: tuple[int, int], columns: tuple[int, int]) -> None:
    """A product of tiles; forward with its bias."""
    sizes = row[M], row[N], row[K]
    out, a, b = at[row[VALUES]], at[row[VALUES + 1]], at[row[VALUES + 2]]
    if row[OPCODE] == TILE_FORWARD:
        bias = at[row[VALUES + 4]] if row[VALUES + 4] >= 0 else 0
        tile_products.forward(out, a, b, bias, sizes, rows, columns)
    elif row[OPCODE] == TILE_TRANSPOSED:
        tile_products.transposed(out, a, b, sizes, rows, columns)
    else:
        tile_products.update(out, a, b, sizes, -number_at(at[row[RATE]]), rows, columns)


@jit
def _packed_product(
    row: Array, at: Array, rows: tuple[int, int], columns: tuple[int, int], work: int
) -> None:
    """A product with weights in panels; forward with its bias, backward with what is asked for."""
    m, n, depth = row[M], row[N], row[K]
    out, a, b = at[row[VALUES]], at[row[VALUES + 1]], at[row[VALUES + 2]]
    if row[OPCODE] == PACKED_FORWARD:
        bias = at[row[VALUES + 4]] if row[VALUES + 4] >= 0 else 0
        packed_products.forward(out, a, b, bias, (m, n, depth), rows, columns, work)
        return
    x = at[row[VALUES + 3]] if row[VALUES + 3] >= 0 else 0
    rate = number_at(at[row[RATE]]) if row[RATE] >= 0 else np.float32(0)
    gx = out if row[VALUES] >= 0 else 0
    packed_products.backward(gx, a, x, b, (n, depth, m), rate, columns, work)


@jit
def _add_bias(
    out: int, bias: int, row: Array, rows: tuple[int, int], columns: tuple[int, int],
    is_added: bool, none: Array,
) -> None:  # fmt: skip
    """Add a bias to some rows and columns, unless it is there already; then their activation."""
    (top, bottom), (left, right), n = rows, columns, row[N]
    if not is_added:
        y, b = matrix_at(out, row[M], n), vector_at(bias, n)
        for i in range(top, bottom):
            elementwise_loops.add_in_place(y[i, left:right], b[left:right])
    if row[CODE] == NONE:
        return
    if right - left == n:  # all at once: a row of few numbers would take as long as one of many
        activate_in_place(row[CODE], vector_at(out + 4 * top * n, (bottom - top) * n), none)
        return
    for i in range(top, bottom):
        activate_in_place(row[CODE], vector_at(out + 4 * (i * n + left), right - left), none)


@jit
def _elementwise(row: Array, at: Array, worker: int, workers: int, numbers: Array) -> None:
    """An activation, the gradient of one, or a sum; the result may be in place of an operand."""
    m, n = row[M], row[N]
    top, bottom, left, right = _part(row, worker, workers)
    if left == 0 and right == n:  # as one row
        top, bottom, left, right, m, n = 0, 1, top * n, bottom * n, 1, m * n
    out, a = matrix_at(at[row[VALUES]], m, n), matrix_at(at[row[VALUES + 1]], m, n)
    b = matrix_at(at[row[VALUES + 2]], m, n) if row[VALUES + 2] >= 0 else a
    code, opcode = row[CODE], row[OPCODE]
    in_place = at[row[VALUES]] == at[row[VALUES + 1]]
    for i in range(top, bottom):
        y, first, second = out[i, left:right], a[i, left:right], b[i, left:right]
        if opcode == ACTIVATE and in_place:
            activate_in_place(code, y, numbers)
        elif opcode == ACTIVATE:
            activate(code, y, first, numbers)
        elif opcode == DIFFERENTIATE and in_place:
            differentiate_in_place(code, y, second, numbers)
        elif opcode == DIFFERENTIATE:
            differentiate(code, y, first, second, numbers)
        elif in_place:
            elementwise_loops.add_in_place(y, second)
        else:
            elementwise_loops.add(y, first, second)


@jit
def _column_sums(row: Array, at: Array, lo: int, hi: int) -> None:
    if IS_WIDE:
        out_at, a_at = at[row[VALUES]], at[row[VALUES + 1]]
        tile_products.column_sums(out_at, a_at, row[M], row[N], lo, hi)
        return
    a, out = matrix_at(at[row[VALUES + 1]], row[M], row[N]), vector_at(at[row[VALUES]], row[N])
    if row[M] <= ROWS:
        for j in range(lo, hi):
            out[j] = a[0, j]
        for i in range(1, row[M]):
            elementwise_loops.add_in_place(out[lo:hi], a[i, lo:hi])
        return
    totals, parts = np.zeros(hi - lo, np.float64), np.empty(hi - lo, np.float32)
    for start in range(0, row[M], ROWS):
        parts[:] = 0
        for i in range(start, min(start + ROWS, row[M])):
            elementwise_loops.add_in_place(parts, a[i, lo:hi])
        for j in range(hi - lo):
            totals[j] += parts[j]
    for j in range(hi - lo):
        out[lo + j] = totals[j]


@jit
def _step_down(parameter: Array, gradient: Array, rate: float) -> None:
    for i in range(parameter.size):
        parameter[i] -= rate * gradient[i]


@jit_strict
def _blend(out: Array, a: Array, b: Array, p: float, q: float) -> None:
    """Rounded as the three operators round it; out may be a."""
    for i in range(out.size):
        out[i] = p * a[i] + q * b[i]


@jit
def _vectors(row: Array, at: Array, lo: int, hi: int) -> None:
    """An update of a parameter by its gradient, or a moving average."""
    n = row[N]
    out, a = vector_at(at[row[VALUES]], n)[lo:hi], vector_at(at[row[VALUES + 1]], n)[lo:hi]
    if row[OPCODE] == STEP_DOWN:
        _step_down(out, a, number_at(at[row[RATE]]))
    else:
        b = vector_at(at[row[VALUES + 2]], n)[lo:hi]
        _blend(out, a, b, number_at(at[row[VALUES + 3]]), number_at(at[row[VALUES + 4]]))


@jit
def _layer_norm(row: Array, at: Array, worker: int, workers: int, numbers: Array) -> None:
    """Forward: (out, x, scale, shift). Backward: (gx, g, x, scale, statistics). Sums: see below."""
    m, n = row[M], row[N]
    top, bottom, left, right = _part(row, worker, workers)
    if row[OPCODE] == LAYER_NORM:
        out, x = matrix_at(at[row[VALUES]], m, n), matrix_at(at[row[VALUES + 1]], m, n)
        scale, shift = vector_at(at[row[VALUES + 2]], n), vector_at(at[row[VALUES + 3]], n)
        layer_norm_rows.forward(out[top:bottom], x[top:bottom], scale, shift, numbers[0])
        return
    g, x = matrix_at(at[row[VALUES + 1]], m, n), matrix_at(at[row[VALUES + 2]], m, n)
    statistics = matrix_at(at[row[VALUES + 4]], m, 3)
    if row[OPCODE] == LAYER_NORM_BACKWARD:
        out, scale = matrix_at(at[row[VALUES]], m, n), vector_at(at[row[VALUES + 3]], n)
        layer_norm_rows.backward(
            out[top:bottom], statistics[top:bottom], g[top:bottom], x[top:bottom], scale,
            numbers[0],
        )  # fmt: skip
        return
    by_scale, by_shift = vector_at(at[row[VALUES]], n), vector_at(at[row[VALUES + 3]], n)
    layer_norm_rows.column_sums(by_scale, by_shift, statistics, g, x, left, right)


@jit
def _batch_norm(row: Array, at: Array, lo: int, hi: int, numbers: Array) -> None:
    """Forward, and again with a mean and a variance: (out, mean, variance, x, scale, shift).

    Backward: (gx, by scale, by shift, g, x, scale, shift, mean, variance). The first of `numbers`
    is epsilon, the others are those of the activation.
    """
    m, n, first = row[M], row[N], VALUES
    out = matrix_at(at[row[first]], m, n)
    one, two = vector_at(at[row[first + 1]], n), vector_at(at[row[first + 2]], n)
    a = matrix_at(at[row[first + 3]], m, n)
    if row[OPCODE] == BATCH_NORM:
        scale, shift = vector_at(at[row[first + 4]], n), vector_at(at[row[first + 5]], n)
        batch_norm_columns.forward(
            out, one, two, a, scale, shift, numbers[0], row[CODE], numbers[1:], lo, hi
        )
        return
    if row[OPCODE] == BATCH_NORM_AGAIN:
        scale, shift = vector_at(at[row[first + 4]], n), vector_at(at[row[first + 5]], n)
        batch_norm_columns.again(out, a, scale, shift, one, two, numbers[0], lo, hi)
        return
    x = matrix_at(at[row[first + 4]], m, n)
    scale, shift = vector_at(at[row[first + 5]], n), vector_at(at[row[first + 6]], n)
    mean, variance = vector_at(at[row[first + 7]], n), vector_at(at[row[first + 8]], n)
    batch_norm_columns.backward(
        out, one, two, a, x, scale, shift, mean, variance, numbers[0], row[CODE], numbers[1:],
        lo, hi,
    )  # fmt: skip


@jit
def _loss(row: Array, at: Array, worker: int, workers: int, labels: Array) -> float:
    """The sum of the losses of a worker's rows: (d, logits, g)."""
    top, bottom, _, _ = _part(row, worker, workers)
    d = matrix_at(at[row[VALUES]], row[M], row[N])[top:bottom]
    logits = matrix_at(at[row[VALUES + 1]], row[M], row[N])[top:bottom]
    scale = np.float64(number_at(at[row[VALUES + 2]])) / row[M]
    return cross_entropy_rows(d, logits, labels[top:bottom], scale, True)


@jit
def run(
    worker: int, workers: int, counter: Array, table: Array, at: Array, numbers: Array,
    function: int, order: Array, images: Array, labels: Array, batch: int, batch_labels: Array,
    rates: Array, first_rate: int, losses: Array, shares: Array, panels: Array, work: int,
) -> None:  # fmt: skip
    """Steps of training, one for each row of order.

    at:          the address of each value; this worker's own copy
    numbers:     a row for each instruction: slopes, limits, epsilon
    batch:       the address of the images of a step
    rates:       the scalars of the optimizer, a row for each step; their values begin at first_rate
    shares:      the losses of each worker, for even and for odd steps
    panels:      of weights that lie in panels meanwhile: both addresses, rows and columns
    work:        the address of this worker's memory for products with them
    """
    arrivals = 0
    if IS_WIDE and len(panels):
        for one in range(len(panels)):
            lo, hi = share(panels[one, 2], 1, worker, workers)
            packed_products.pack(panels[one, 1], panels[one, 0], panels[one, 2:], lo, hi)
        if workers > 1:
            arrivals += workers
            spin_barrier(counter.ctypes.data, arrivals)
    size = order.shape[1]
    rows = matrix_at(batch, size, images.shape[1])
    low, high = share(size, 1, worker, workers)
    for step in range(order.shape[0]):
        gather(rows, batch_labels, images, labels, order[step], low, high)
        for k in range(rates.shape[1]):
            at[first_rate + k] = rates.ctypes.data + 4 * (step * rates.shape[1] + k)
        for position in range(table.shape[0]):
            row = table[position]
            if workers > 1 and row[BARRIER]:
                arrivals += workers
                spin_barrier(counter.ctypes.data, arrivals)
            opcode = row[OPCODE]
            if opcode <= SMALL_BACKWARD:
                _product(row, at, function, worker, workers, numbers[position], work)
            elif opcode <= ADD:
                _elementwise(row, at, worker, workers, numbers[position])
            elif opcode <= BLEND:
                lo, hi = share(row[N], GRAIN, worker, workers)
                if opcode == COLUMN_SUMS:
                    _column_sums(row, at, lo, hi)
                else:
                    _vectors(row, at, lo, hi)
            elif opcode <= LAYER_NORM_SUMS:
                _layer_norm(row, at, worker, workers, numbers[position])
            elif opcode <= BATCH_NORM_BACKWARD:
                lo, hi = share(row[N], GRAIN, worker, workers)
                _batch_norm(row, at, lo, hi, numbers[position])
            elif opcode == LOSS:
                shares[step % 2, worker] = _loss(row, at, worker, workers, batch_labels)
            elif IS_WIDE and opcode == PARTIAL_FORWARD:
                _partial_product(row, at, worker, workers)
            else:
                _add_parts(row, at, worker, workers, numbers[position])
        if workers > 1:
            arrivals += workers
            spin_barrier(counter.ctypes.data, arrivals)
        if worker == 0:
            losses[step] = shares[step % 2].sum() / size
    if IS_WIDE:
        for one in range(len(panels)):
            lo, hi = share(panels[one, 2], 1, worker, workers)
            packed_products.unpack(panels[one, 0], panels[one, 1], panels[one, 2:], lo, hi)
