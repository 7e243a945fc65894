"""The pieces that a generated loop over images is put together from (see `whole`)."""

from typing import Any

from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.runtime.jit import emits, jit
from pareo.backends.compiled.runtime.thread_handoff import call_system


@jit
def add_rows(out: Any, a: Any, b: Any) -> None:
    """out = a + b in every row."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + b[j]


@jit
def add_planes(out: Any, a: Any) -> None:
    """out[k] += the sum of a's plane k."""
    for k in range(a.shape[0]):
        total = a.dtype.type(0)
        for i in range(a.shape[1]):
            total += a[k, i]
        out[k] += total


@jit
def add_to(out: Any, a: Any) -> None:
    """out += a, both flat."""
    for i in range(a.size):
        out[i] += a[i]


@jit
def clear(a: Any) -> None:
    """a = 0, flat."""
    for i in range(a.size):
        a[i] = 0


@jit
def gather(sums: Any) -> None:
    """Add all workers' sums to the first's, in a fixed order."""
    for worker in range(1, sums.shape[0]):
        for i in range(sums.shape[1]):
            sums[0, i] += sums[worker, i]


@jit
def move(target: Any, source: Any) -> None:
    """Add one row of sums to another, and begin the first anew."""
    for i in range(source.size):
        target[i] += source[i]
        source[i] = 0


@jit
def update(
    parameter: Any, velocity: Any, total: Any, share: Any, rate: Any, momentum: Any, decay: Any
) -> None:
    """Move a flat parameter by the batch's total gradient; velocity is empty without momentum."""
    if velocity.size:
        for i in range(parameter.size):
            velocity[i] = momentum * velocity[i] + total[i] * share + decay * parameter[i]
        for i in range(parameter.size):
            parameter[i] -= rate * velocity[i]
    else:
        for i in range(parameter.size):
            parameter[i] -= rate * (total[i] * share + decay * parameter[i])


@emits
def wait_for_all(typingctx, counter, target):  # type: ignore[no-untyped-def]
    """Count this worker in at an address, and spin until `target` were counted.

    Millions of times a second, so no system call unless the wait is long: then the core is lent to
    whoever else wants it.
    """
    signature = types.void(counter, target)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, target = arguments
        i64 = ir.IntType(64)
        place = builder.inttoptr(address, i64.as_pointer())
        builder.atomic_rmw("add", place, i64(1), "seq_cst")
        start, function = builder.block, builder.function
        poll = function.append_basic_block("poll")
        wait = function.append_basic_block("wait")
        lend = function.append_basic_block("lend")
        done = function.append_basic_block("done")
        builder.branch(poll)
        builder.position_at_end(poll)
        polls = builder.phi(i64)
        polls.add_incoming(i64(0), start)
        seen = builder.load_atomic(place, "seq_cst", align=8)
        builder.cbranch(builder.icmp_signed(">=", seen, target), done, wait)
        builder.position_at_end(wait)
        more = builder.add(polls, i64(1))
        polls.add_incoming(more, wait)
        builder.cbranch(builder.icmp_signed(">", more, i64(20_000)), lend, poll)
        builder.position_at_end(lend)
        call_system(builder, "sched_yield")
        polls.add_incoming(more, lend)
        builder.branch(poll)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


@jit
def multiply(
    product: int, out: Any, a: Any, turn_a: bool, b: Any, turn_b: bool, alpha: Any, beta: Any
) -> None:
    """out = alpha * a @ b + beta * out through BLAS (`blas.address`), a or b turned if asked."""
    if out.size == 0:
        return
    depth = a.shape[0] if turn_a else a.shape[1]
    call_product(
        product, 112 if turn_a else 111, 112 if turn_b else 111, out.shape[0], out.shape[1], depth,
        alpha, a.ctypes.data, _row(a), b.ctypes.data, _row(b), beta, out.ctypes.data, _row(out),
    )  # fmt: skip


@jit
def _row(a: Any) -> int:
    """The distance of a matrix's rows in elements; that of a single row may be anything."""
    return max(a.strides[0] // a.itemsize, a.shape[1]) if a.shape[0] > 1 else a.shape[1]


@emits
def call_product(typingctx, product, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """Call the BLAS product at an address, on matrices at addresses, row by row."""
    whole, real = types.int64, alpha
    signature = types.void(
        whole, whole, whole, whole, whole, whole, real, whole, whole, whole, whole, real, whole,
        whole,
    )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = arguments
        i32, i64, pointer = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(
            ir.VoidType(),
            [i32] * 3 + [i64] * 3 + [alpha.type] + [pointer, i64] * 2
            + [alpha.type, pointer, i64],
        )  # fmt: skip
        function = builder.inttoptr(place, kind.as_pointer())

        def at(address: Any) -> Any:
            return builder.inttoptr(address, pointer)

        builder.call(
            function,
            [i32(101), builder.trunc(ta, i32), builder.trunc(tb, i32), m, n, k, alpha, at(a), lda,
             at(b), ldb, beta, at(c), ldc],
        )  # fmt: skip
        return context.get_dummy_value()

    return signature, generate
