"""The pieces that a generated loop over images is put together from (see `whole`)."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pareo.backends.compiled.functions import hyperbolic, logistic
from pareo.backends.compiled.jit import jit


@jit
def sigmoid(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = logistic(a[i])


@jit
def tanh(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = hyperbolic(a[i])


@jit
def relu(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = a.dtype.type(0) if a[i] <= 0 else a[i]


@jit
def sigmoid_gradient(out: Any, g: Any, y: Any) -> None:
    for i in range(y.size):
        out[i] = g[i] * y[i] * (1 - y[i])


@jit
def tanh_gradient(out: Any, g: Any, y: Any) -> None:
    for i in range(y.size):
        out[i] = g[i] * (1 - y[i] * y[i])


@jit
def relu_gradient(out: Any, g: Any, y: Any) -> None:
    for i in range(y.size):
        out[i] = g.dtype.type(0) if y[i] <= 0 else g[i]


@jit
def dot(out: Any, a: Any, b: Any) -> None:
    """out = a @ b, for a few rows."""
    for i in range(a.shape[0]):
        out[i] = 0
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


@jit
def dot_turned(out: Any, a: Any, b: Any) -> None:
    """out = a @ b.T, for a few rows."""
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = a.dtype.type(0)
            for k in range(b.shape[1]):
                total += a[i, k] * b[j, k]
            out[i, j] = total


@jit
def add_outer(out: Any, a: Any, b: Any) -> None:
    """out += a.T @ b, for a few rows."""
    for n in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[n, i] * b[n, j]


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
def shrink(out: Any, x: Any, w: Any, b: Any, kh: int, kw: int) -> None:
    """Subsampling by windows that do not overlap: x (planes, H, W), w flat."""
    for p in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                total = b
                for u in range(kh):
                    for v in range(kw):
                        total += w[u * kw + v] * x[p, i * kh + u, j * kw + v]
                out[p, i, j] = total


@jit
def grow(out: Any, g: Any, w: Any, kh: int, kw: int) -> None:
    """Back through `shrink` to its images."""
    for p in range(g.shape[0]):
        for i in range(g.shape[1]):
            for u in range(kh):
                for j in range(g.shape[2]):
                    error = g[p, i, j]
                    for v in range(kw):
                        out[p, i * kh + u, j * kw + v] = error * w[u * kw + v]


@jit
def add_shrunk(out: Any, x: Any, g: Any, kh: int, kw: int) -> None:
    """Back through `shrink` to its filter, out flat."""
    for u in range(kh):
        for v in range(kw):
            total = x.dtype.type(0)
            for p in range(g.shape[0]):
                for i in range(g.shape[1]):
                    for j in range(g.shape[2]):
                        total += g[p, i, j] * x[p, i * kh + u, j * kw + v]
            out[u * kw + v] += total


@jit
def update(
    parameter: Any, velocity: Any, sums: Any, start: int, share: Any, rate: Any, momentum: Any,
    decay: Any,
) -> None:  # fmt: skip
    """Move a flat parameter by the workers' sums of its gradient, taken in a fixed order."""
    for i in range(parameter.size):
        total = sums[0, start + i]
        for worker in range(1, sums.shape[0]):
            total += sums[worker, start + i]
        step = total * share + decay * parameter[i]
        if velocity.size:
            step += momentum * velocity[i]
            velocity[i] = step
        parameter[i] -= rate * step


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
