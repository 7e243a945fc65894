"""The pass that rewrites a training step as one kernel whose blocks compute it together.

What it is expected to take is checked against measurements: of 24 MLPs and 21 small CNNs drawn by
seeds 505 and 808, most took between 0.7 and 1.1 times as long on an H200, before the constants for
convolutions were lowered once more.
"""

from functools import cache

from pareo.backends.cuda.grid.emit import emit
from pareo.backends.cuda.grid.kernel import Launch, Loop, together
from pareo.backends.cuda.grid.loop import LoopSource
from pareo.backends.cuda.grid.plan import Plan, Unsupported, planned
from pareo.backends.cuda.grid.source import Source
from pareo.backends.cuda.grid.tiles import Machine
from pareo.backends.cuda.grid.updates import with_updates
from pareo.backends.cuda.images.costs import CLOCK, MULTIPROCESSORS
from pareo.backends.cuda.images.updates import grouped_updates
from pareo.program.ir import Instruction, Program
from pareo.program.kernel import Fusion
from pareo.program.passes import remove_dead, rewrite

AROUND = 10  # microseconds of a step that is no part of a loop, for launches and updates
SLOWER = 1.0  # times as long as the cycles that are counted
# What reads more than it computes waits for memory: steps of so many microseconds take twice as
# long.
TWICE = 4000
MOST_TASKS = 400  # so many take NVRTC a minute or two
LARGEST = 1 << 28  # floats between the tasks
FLOPS = 4 * 10**9  # beyond, other kernels use the GPU better
CLUSTER = 8  # blocks; of more blocks, not every GPU with clusters has one
THREADS = (256, 512)  # of a block: fewer wait less for each other, more read more at once


@cache
def machines() -> tuple[Machine, ...]:
    """The whole GPU; and a cluster, whose blocks meet sooner, on one that has clusters.

    Without a GPU, as in the tests, they are those of an H200.
    """
    from pareo.machine import gpus

    count, capability = MULTIPROCESSORS, 90
    if gpus():
        from pareo.backends.cuda.runtime.cupy_module import cupy

        device = cupy.cuda.Device()
        count = int(device.attributes["MultiProcessorCount"])
        capability = int(device.compute_capability)
    found = [Machine(count, threads) for threads in THREADS]
    if capability >= 90:
        found += [Machine(CLUSTER, threads, cluster=True) for threads in THREADS]
    return tuple(found)


def source_of(program: Program) -> Source:
    """The kernel of a training step that is expected to be the fastest.

    Raises:
        Unsupported: it cannot be computed this way.
    """
    if sum(one.flops for one in program.instructions) > FLOPS:
        raise Unsupported("so many FLOPs")
    plan = planned(program)
    if not plan.tasks or not plan.after or len(plan.tasks) > MOST_TASKS:
        raise Unsupported(f"{len(plan.tasks)} tasks and {len(plan.after)} updates")
    found = min((emit(plan, machine) for machine in machines()), key=lambda one: one.cycles)
    if found.floats_between > LARGEST:
        raise Unsupported("so much between the layers")
    return found


def expected(program: Program) -> float | None:
    """Microseconds that a step is expected to take; None if it cannot be computed this way."""
    try:
        source = source_of(program)
    except Unsupported:
        return None
    try:
        time = SLOWER * loop_source(source.plan).cycles / CLOCK
    except Unsupported:
        time = AROUND + SLOWER * source.cycles / CLOCK
    return time * (1 + time / TWICE)


def loop_of(program: Program) -> Loop | None:
    """A loop of training steps, for a program that is such a kernel and updates."""
    steps = [one for one in program.instructions if not one.is_view]
    names = [one.name for one in steps]
    if names[:1] != ["together"] or set(names[1:]) - {"update_all"}:
        return None
    assert isinstance(steps[0].operator, Fusion)
    launch = steps[0].operator.kernel.function
    assert isinstance(launch, Launch)
    try:
        return Loop(loop_source(launch.source.plan))
    except Unsupported:
        return None


def loop_source(plan: Plan) -> LoopSource:
    """The kernel of many steps that is expected to be the fastest.

    Raises:
        Unsupported: they cannot be computed this way.
    """
    whole = with_updates(plan)
    found = [emit(whole, machine, LoopSource) for machine in machines()]
    return min((one for one in found if isinstance(one, LoopSource)), key=lambda one: one.cycles)


def refusal(program: Program) -> str:
    """Why a program cannot be computed this way; empty if it can.

    >>> from pareo.nn import networks
    >>> from pareo.training.step import step_program
    >>> refusal(step_program(networks.by_name("resnet18"), 32))
    'all blocks together cannot compute so many FLOPs'
    """
    try:
        source_of(program)
    except Unsupported as reason:
        return f"all blocks together cannot compute {reason}"
    return ""


@rewrite
def computed_together(program: Program) -> Program:
    """The program with one kernel for the forward and backward pass, and one for the updates."""
    return rewritten(program, source_of(program))


def rewritten(program: Program, source: Source) -> Program:
    """The program with this kernel."""
    plan = source.plan
    specs = program.specs
    flops = sum(one.flops for one in _tasks(plan))
    moved = sum(specs[n].nbytes for n in (*source.arguments, *plan.results))
    inputs, outputs = tuple(source.arguments), tuple(plan.results)
    made = Instruction(together(source), inputs, outputs, {}, flops, moved)
    views = [one for one in program.instructions if one.name in ("reshape", "transpose")]
    known = {*program.inputs, *program.constants, *outputs}
    kept = []
    for one in views:
        if known.issuperset(one.inputs):
            kept.append(one)
            known.update(one.outputs)
    changed = program.changed(instructions=(made, *kept, *plan.after))
    return grouped_updates(remove_dead(changed))


def _tasks(plan: Plan) -> list[Instruction]:
    return [one for task in plan.tasks for one in (task.one, *task.chain)]
