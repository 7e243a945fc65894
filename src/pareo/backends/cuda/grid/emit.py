"""Writes the tasks of a plan as tiles that blocks share, level by level."""

from collections.abc import Callable
from math import prod

from pareo.backends.cuda.grid import products
from pareo.backends.cuda.grid.plan import Plan, Task, Unsupported, levels
from pareo.backends.cuda.grid.source import Source, Work
from pareo.backends.cuda.grid.tiles import LOAD, Machine
from pareo.backends.cuda.images.elements import number
from pareo.backends.cuda.images.rows import ELEMENTWISE, POOLS


def emit(plan: Plan, machine: Machine, kind: type[Source] = Source) -> Source:
    """The kernel of a plan on a machine."""
    source = kind(plan, machine)
    for tasks in levels(plan):
        source.levels.append([WORKS[task.one.name](source, task) for task in tasks])
    return source


def _update(source: Source, task: Task) -> Work:
    """The update of a parameter whose gradient is not the first result of a task."""
    return source.elements(task, f"{source.read(task.one.inputs[0])}[i]", 60.0)


def _elementwise(source: Source, task: Task) -> Work:
    return source.elements(task, source.value(task.one), 20.0)


def _sum(source: Source, task: Task) -> Work:
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


def _sums(source: Source, task: Task, before: int, kept: int, behind: int, by: int) -> Work:
    machine, x = source.machine, source.read(task.one.inputs[0])
    share = f"r /= {by};" if by > 1 else ""
    end = f"[&](int i, float r) {{ {share} {source.end(task)} }}"
    count = before * behind
    if behind == 1 and kept >= 8:
        terms = -(-before // machine.warps)
        code = f"sums_across<{before}, {kept}>(tile, room, {x}, {end});"
        return Work(code, -(-kept // machine.lanes), 400 + -(-terms // 4) * LOAD)
    sizes = f"{before}, {kept}, {behind}"
    if count > 64 * machine.lanes or (kept < 4 * machine.blocks and count > 8 * machine.lanes):
        terms = -(-count // machine.threads)
        code = f"sums_by_block<{sizes}>(tile, room, {x}, {end});"
        return Work(code, kept, 300 + -(-terms // 4) * LOAD)
    terms = -(-count // machine.lanes)
    code = f"sums_by_warp<{sizes}>(tile, {x}, {end});"
    return Work(code, -(-kept // machine.warps), 150 + -(-terms // 4) * LOAD)


def _add_parts(source: Source, task: Task) -> Work:
    size = source.plan.size(task.one.outputs[0])
    return _sums(source, task, task.one.attributes["parts"], size, 1, 1)


def _row_losses(source: Source, task: Task) -> Work:
    rows, classes = source.plan.shape(task.one.inputs[-2])
    name = "row_losses" if task.one.name == "row_losses" else "row_losses_back"
    given = ", ".join(map(source.read, task.one.inputs))
    code = f"{name}<{rows}, {classes}>(tile, {given}, {source.ending(task)});"
    return Work(code, -(-rows // source.machine.warps), 2 * LOAD + 30 * -(-classes // 32) + 300)


def _rows(source: Source, x: int, axis: int) -> tuple[int, int, int]:
    dims = source.plan.shape(x)
    inner = prod(dims[axis:][1:])
    return prod(dims[:axis]) * inner, dims[axis], inner


def _layer_norm(source: Source, task: Task) -> Work:
    one, machine = task.one, source.machine
    back = one.name == "layer_rows"
    rows, count, inner = _rows(source, one.inputs[1 if back else 0], one.attributes["axis"])
    given = [source.read(n) for n in one.inputs] + [f"p{n}" for n in one.outputs[1:]]
    arguments = ", ".join([*given, number(one.attributes["epsilon"]), source.ending(task)])
    name = "layer_norm_back" if back else "layer_norm"
    alone = rows <= 2 * machine.blocks and count > 4 * machine.lanes  # a block for each row
    terms = -(-count // (machine.threads if alone else machine.lanes))
    sizes = f"{'true' if alone else 'false'}, {rows}, {count}, {inner}"
    cycles = 3 * LOAD + terms * (120 if inner == 1 else 300) + (600 if alone else 0)
    code = f"{name}<{sizes}>(tile, room, {arguments});"
    return Work(code, rows if alone else -(-rows // machine.warps), cycles)


def _layer_sums(source: Source, task: Task) -> Work:
    one, machine = task.one, source.machine
    rows, count, inner = _rows(source, one.inputs[1], one.attributes["axis"])
    given = ", ".join([*(f"p{n}" for n in one.outputs), *map(source.read, one.inputs)])
    code = f"layer_sums(tile, room, {given}, {rows}, {count}, {inner});"
    terms = -(-rows // machine.warps)
    return Work(code, -(-count // machine.lanes), 400 + -(-terms // 4) * LOAD)


def _batch_norm(source: Source, task: Task) -> Work:
    one = task.one
    back = one.name == "batch_norm_gradient"
    dims = source.plan.shape(one.outputs[0])
    sizes = dims[0], dims[1], prod(dims[2:])
    given = [f"p{n}" for n in one.outputs[1:]] + [source.read(n) for n in one.inputs]
    arguments = ", ".join([*given, number(one.attributes["epsilon"]), source.ending(task)])
    name = "batch_norm_back" if back else "batch_norm"
    terms = -(-sizes[0] * sizes[2] // source.machine.threads)
    code = f"{name}<{', '.join(map(str, sizes))}>(tile, room, {arguments});"
    return Work(code, dims[1], 800 + 3 * -(-terms // 4) * LOAD)


def _pool(source: Source, task: Task) -> Work:
    plan, one = source.plan, task.one
    back = one.name.endswith("_gradient")
    images, results = (one.outputs[0], one.inputs[0]) if back else (one.inputs[0], one.outputs[0])
    how = {"padding": (0, 0), **one.attributes}
    window = plan.shape(one.inputs[1]) if one.name == "subsample" else how["size"]
    n, c, h, w = plan.shape(images)
    sizes = n * c, h, w, *plan.shape(results)[2:], *window, *how["stride"], *how["padding"][:2]
    given = ", ".join(map(source.read, one.inputs))
    name = one.name.replace("_gradient", "_back")
    value = f"{name}_at<Pool<{', '.join(map(str, sizes))}>>({given}, i)"
    overlap = any(step < size for step, size in zip(how["stride"], window, strict=True))
    scans = prod(window) if one.name == "max_pool_gradient" and overlap else 1
    return source.elements(task, value, 60 + 10 * prod(window) * scans, 2)


def _moved(source: Source, task: Task) -> Work:
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


WORKS: dict[str, Callable[[Source, Task], Work]] = {
    "dot": products.dot,
    "conv": products.conv,
    "conv_input_gradient": products.conv_back,
    "conv_weight_gradient": products.filters_back,
    "sum": _sum,
    "mean": _sum,
    "add_parts": _add_parts,
    "row_losses": _row_losses,
    "cross_entropy_gradient": _row_losses,
    "layer_norm": _layer_norm,
    "layer_rows": _layer_norm,
    "layer_sums": _layer_sums,
    "batch_norm": _batch_norm,
    "batch_norm_gradient": _batch_norm,
    "update": _update,
    "concat": _moved,
    "part": _moved,
    "part_gradient": _moved,
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(ELEMENTWISE, _elementwise),
}
