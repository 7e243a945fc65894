"""The pieces that a generated loop over images is put together from (see `whole`)."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pareo.backends.compiled.jit import jit


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
def gather(sums: Any) -> None:
    """Add all workers' sums to the first's, in a fixed order."""
    for worker in range(1, sums.shape[0]):
        for i in range(sums.shape[1]):
            sums[0, i] += sums[worker, i]


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


@intrinsic
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
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(_external(builder.module, kind, "sched_yield"), [])
        polls.add_incoming(more, lend)
        builder.branch(poll)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _external(module: Any, kind: Any, name: str) -> Any:
    """A function of the C library, declared once in a module."""
    return module.globals.get(name) or ir.Function(module, kind, name)
