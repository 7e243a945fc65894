"""Writes the tasks of a plan as tiles that blocks share, level by level."""

from collections.abc import Callable
from math import prod

from pareo.backends.cuda.grid import convolutions, norms, pools, products
from pareo.backends.cuda.grid.joined import joined, paired
from pareo.backends.cuda.grid.later import delayed
from pareo.backends.cuda.grid.plan import LOCAL, PARTS, Plan, Task, Unsupported, levels
from pareo.backends.cuda.grid.sharing import Options
from pareo.backends.cuda.grid.source import Source, one_way
from pareo.backends.cuda.grid.tiles import LOAD, Machine
from pareo.backends.cuda.images.rows import ELEMENTWISE, POOLS


def emit(plan: Plan, machine: Machine, kind: type[Source] = Source) -> Source:
    """The kernel of a plan on a machine; tasks are joined where that is expected to be faster."""
    plans = [plan]
    for join in (lambda one: joined(one, machine), paired):
        plans += [more for one in plans if _hosted(more := join(one)) > _hosted(one)]
    found = min((_emitted(one, machine, kind) for one in plans), key=_cycles)
    later = delayed(found)
    return min(found, _emitted(later, machine, kind), key=_cycles) if later else found


def _cycles(source: Source) -> float:
    return source.cycles


def _hosted(plan: Plan) -> int:
    return sum(task.host is not None for task in plan.tasks)


def _emitted(plan: Plan, machine: Machine, kind: type[Source]) -> Source:
    source = kind(plan, machine)
    for tasks in levels(source.plan):
        source.tasks.append([WORKS[task.one.name](source, task) for task in tasks])
    return source


def _update(source: Source, task: Task) -> Options:
    """The update of a parameter whose gradient is not the first result of a task."""
    return source.elements(task, f"{source.read(task.one.inputs[0])}[i]", 60.0)


def _elementwise(source: Source, task: Task) -> Options:
    return source.elements(task, source.value(task.one), 20.0)


def _sum(source: Source, task: Task) -> Options:
    """A sum over axes: of x[o, k, i] over o and i."""
    one = task.one
    dims = source.plan.shape(one.inputs[0])
    axes = [axis for axis in one.attributes["axis"] if dims[axis] > 1]
    kept = [axis for axis in range(len(dims)) if axis not in axes and dims[axis] > 1]
    if kept and kept != [axis for axis in range(kept[0], kept[-1] + 1) if dims[axis] > 1]:
        raise Unsupported(f"{one.name} over axes {one.attributes['axis']}")
    before = prod(dims[axis] for axis in axes if not kept or axis < kept[0])
    behind = prod(dims[axis] for axis in axes if kept and axis > kept[-1])
    inside = prod(dims[axis] for axis in kept)
    return _sums(source, task, before, inside, behind, before * behind if one.name == "mean" else 1)


def _sums(source: Source, task: Task, before: int, kept: int, behind: int, by: int) -> Options:
    machine, x = source.machine, source.read(task.one.inputs[0])
    early, end, _ = source.early_and_end(task, "k", "int k")
    end = end.replace("{", f"{{ r /= {by};", 1) if by > 1 else end
    ends, count = f"{early}, {end}", before * behind
    sizes = f"{before}, {kept}, {behind}"
    if task.one.name == "part_sums":
        parts = task.one.attributes["parts"]
        early, end, _ = source.early_and_end(task, "k", "int k")
        code = f"sums_of_parts<{sizes}, {parts}>(tile, room, {x}, {early}, {end});"
        rounds = -(-count // (8 * machine.threads * parts))
        return one_way(code, parts * kept, 1100 + rounds * (LOAD + 200))
    rounds = -(-count // (8 * machine.threads)), -(-count // (8 * machine.lanes))
    by_block, by_warp = (each * (LOAD + 200) for each in rounds)
    ways = [
        (f"sums_by_block<{sizes}>(tile, room, {x}, {ends});", kept, 1100 + by_block),
        (f"sums_by_warp<{sizes}>(tile, {x}, {ends});", -(-kept // machine.warps),
         800 + by_warp),
    ]  # fmt: skip
    if behind == 1 and kept >= 8:
        code = f"sums_across<{before}, {kept}>(tile, room, {x}, {ends});"
        time = 1000 + -(-before // (8 * machine.warps)) * LOAD
        ways.append((code, -(-kept // machine.lanes), time))
    found = [one_way(*way)[0] for way in ways]
    if behind == 1 and by == 1 and before <= 64:
        value = f"sum_of_column<{before}, {kept}>({x}, i)"
        found += source.elements(task, value, 4.0 * before, -(-before // 8))
    return found


def _add_parts(source: Source, task: Task) -> Options:
    size = source.plan.size(task.one.outputs[0])
    return _sums(source, task, task.one.attributes["parts"], size, 1, 1)


def _row_losses(source: Source, task: Task) -> Options:
    rows, classes = source.plan.shape(task.one.inputs[-2])
    name = "row_losses" if task.one.name == "row_losses" else "row_losses_back"
    given = ", ".join(map(source.read, task.one.inputs))
    code = f"{name}<{rows}, {classes}>(tile, {given}, {source.ending(task)});"
    return one_way(code, -(-rows // source.machine.warps), 2 * LOAD + 30 * -(-classes // 32) + 300)


def _moved(source: Source, task: Task) -> Options:
    """Elements of other arrays along one axis."""
    plan, one = source.plan, task.one
    axis = one.attributes["axis"]
    dims = plan.shape(one.outputs[0])
    inner, size = prod(dims[axis:][1:]), dims[axis]
    head = f"const int at = i / {inner} % {size}, outer = i / {inner * size}, rest = i % {inner}; "

    def element(pointer: str, length: int, shift: int) -> str:
        return f"{pointer}[(outer * {length} + at - {shift}) * {inner} + rest]"

    if one.name == "concat":
        value, start, tests = "", 0, []
        for operand in one.inputs:
            length = plan.shape(operand)[axis]
            tests.append((start + length, element(source.read(operand), length, start)))
            start += length
        value = "".join(f"at < {stop} ? {text} : " for stop, text in tests[:-1]) + tests[-1][1]
    else:
        first, stop = one.attributes["between"]
        length = plan.shape(one.inputs[0])[axis]
        back = one.name == "part_gradient"
        value = element(source.read(one.inputs[0]), length, first if back else -first)
        value = f"at >= {first} && at < {stop} ? {value} : 0" if back else value
    return source.elements(task, f"[&] {{ {head}return (float)({value}); }}()", 40)


WORKS: dict[str, Callable[[Source, Task], Options]] = {
    "dot": products.dot,
    "conv": convolutions.conv,
    "conv_input_gradient": convolutions.conv_back,
    "conv_weight_gradient": convolutions.filters_back,
    "sum": _sum,
    "mean": _sum,
    "part_sums": _sum,
    "add_parts": _add_parts,
    "row_losses": _row_losses,
    "cross_entropy_gradient": _row_losses,
    "layer_norm": norms.layer_norm,
    "layer_rows": norms.layer_norm,
    "layer_sums": norms.layer_sums,
    "batch_norm": norms.batch_norm,
    "batch_norm_gradient": norms.batch_norm,
    **dict.fromkeys(LOCAL, norms.local),
    **dict.fromkeys(PARTS, norms.batch_norm_of_parts),
    "update": _update,
    "concat": _moved,
    "part": _moved,
    "part_gradient": _moved,
    **dict.fromkeys(POOLS, pools.pool),
    **dict.fromkeys(ELEMENTWISE, _elementwise),
}
