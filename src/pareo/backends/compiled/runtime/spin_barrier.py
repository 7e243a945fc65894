"""A barrier for threads that meet millions of times a second."""

from typing import Any

from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.thread_handoff import call_system


@llvm_intrinsic
def spin_barrier(typingctx, counter, target):  # type: ignore[no-untyped-def]
    """Add one to the counter at an address, and spin until it has reached `target`.

    There is no system call unless the wait is long. Then the thread yields its core to others.
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
        yield_core = function.append_basic_block("yield")
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
        builder.cbranch(builder.icmp_signed(">", more, i64(20_000)), yield_core, poll)
        builder.position_at_end(yield_core)
        call_system(builder, "sched_yield")
        polls.add_incoming(more, yield_core)
        builder.branch(poll)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate
