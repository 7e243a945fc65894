"""Dense layers of few images: the gradients of inputs and of weights, with the update of weights.

Those of both read each row of the weights: as one task they read it once.
"""

from collections.abc import Iterator
from functools import partial

from pareo.backends.cuda.grid.plan import Plan, Task, reads
from pareo.backends.cuda.grid.sharing import Options, Work
from pareo.backends.cuda.grid.source import Source
from pareo.backends.cuda.grid.steps import FEW
from pareo.backends.cuda.grid.tiles import BUSY, BYTES, LOAD, SHARE, START, End, Machine


def updated_with(plan: Plan, task: Task) -> Task | None:
    """The task that updates the weights by which a task multiplies errors; None without one."""
    weights = _weights(plan, task)
    if weights is None:
        return None
    for other in plan.tasks:
        if other.one.name != "dot" or [one.name for one in other.chain] != ["update"]:
            continue
        (a, g), update = other.one.inputs, other.chain[0]
        same = g not in plan.transposed and plan.root(g) == plan.root(task.one.inputs[0])
        if a in plan.transposed and same and plan.root(update.inputs[1]) == weights:
            return other
    return None


def _weights(plan: Plan, task: Task) -> int | None:
    """The matrix whose rows a task multiplies by those of few images; None if it does not."""
    if task.one.name != "dot":
        return None
    a, b = task.one.inputs
    images, _ = plan.shape(a)
    whole = plan.size(task.one.outputs[0]) == images * plan.shape(b)[1]
    if a in plan.transposed or b not in plan.transposed or images > FEW or not whole:
        return None
    return plan.root(plan.transposed[b])


def in_time(plan: Plan, task: Task) -> bool:
    """Whether what a task reads is made before, and nobody else reads what it replaces by then."""
    assert task.host
    makers = {n: one for one in plan.tasks for n in one.results}
    before = [makers[n] for n in reads(plan, task) if n in makers]
    replaced = {argument for argument, result in plan.over.items() if result in task.results}
    before += [one for one in plan.tasks if replaced & reads(plan, one)]
    return all(one in (task, task.host) or one.level < task.host.level for one in before)


def dense_back(source: Source, task: Task, update: Task) -> Options:
    """Ways to compute both."""
    plan, machine = source.plan, source.machine
    g, transposed = task.one.inputs
    (images, outputs), inputs = plan.shape(g), plan.shape(transposed)[1]
    early, end, cost = source.early_and_end(task, f"m * {inputs} + n", "int m, int n")
    place = f"m * {outputs} + n"
    early_weight, end_weight, each = source.early_and_end(update, place, "int m, int n")
    x = plan.transposed[update.one.inputs[0]]
    arrays = (source.read(n) for n in (g, plan.transposed[transposed], x))
    given = ", ".join([*arrays, early, end, early_weight, end_weight])
    more = 200 + images * 40 * machine.threads / SHARE + cost.cycles
    ways = list[Work]()
    for share, tiles, cycles in _shares(machine, (images, inputs, outputs), each):
        code = f"dense_back<{images}, {inputs}, {outputs}, {share}>(tile, room, {given});"
        ways.append(Work(partial(str, code), tiles, cycles + more, machine.warps * images))
    return ways


def weights_back(source: Source, task: Task) -> Options:
    """Ways to compute the gradient of weights alone, if there are few images."""
    plan, machine = source.plan, source.machine
    (inputs, images), outputs = plan.shape(task.one.inputs[0]), plan.shape(task.one.inputs[1])[1]
    if images > FEW:
        return []
    early, end, each = source.early_and_end(task, f"m * {outputs} + n", "int m, int n")
    x, g = plan.transposed[task.one.inputs[0]], task.one.inputs[1]
    given = ", ".join([source.read(g), source.read(x), early, end])
    ways = list[Work]()
    for share, tiles, cycles in _shares(machine, (images, inputs, outputs), each):
        code = f"weights_back<{images}, {inputs}, {outputs}, {share}>(tile, {given});"
        ways.append(Work(partial(str, code), tiles, cycles))
    return ways


def _shares(
    machine: Machine, shape: tuple[int, int, int], each: End
) -> Iterator[tuple[int, int, float]]:
    """How many warps share a row of the weights; tiles, and what one takes."""
    images, inputs, outputs = shape
    at_once, share = 8 if images <= 4 else 4, machine.warps
    while share:
        rows = machine.warps // share
        rounds = -(-outputs // (at_once * share * machine.lanes))
        counted = rounds * at_once * (3 * images + each.cycles + 20) * machine.threads / SHARE
        moved = 4 * rows * outputs * each.floats / BYTES
        cycles = START + LOAD + max(rounds * LOAD, BUSY * counted, moved)
        yield share, -(-inputs // rows), cycles
        share //= 2
