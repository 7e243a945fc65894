"""Writes poolings, of windows that overlap or lie apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from pareo.backends.cuda.grid.plan import Task
from pareo.backends.cuda.grid.sharing import Options, Work
from pareo.backends.cuda.grid.source import Source
from pareo.backends.cuda.grid.tiles import BUSY, BYTES, LOAD, SHARE

MOST_ROOM = 20000  # floats of shared memory
MOST_OF_PLANES = 44000  # the same of whole planes
KINDS = {"max_pool": "Largest", "average_pool": "Average"}


@dataclass(frozen=True)
class Cells:
    """Planes of pixels, and the cells in which windows start that do not overlap."""

    planes: int
    wide: int
    rows: int  # of a plane
    across: int
    step: int  # lines of a cell
    window: int  # pixels


def pool(source: Source, task: Task) -> Options:
    """A pooling, or a gradient of one."""
    plan, one = source.plan, task.one
    back = one.name.endswith("_gradient")
    images, results = (one.outputs[0], one.inputs[0]) if back else (one.inputs[0], one.outputs[0])
    how = {"padding": (0, 0), **one.attributes}
    window = plan.shape(one.inputs[1]) if one.name == "subsample" else how["size"]
    n, c, h, w = plan.shape(images)
    (down, over), (top, left) = how["stride"], how["padding"][:2]
    sizes = n * c, h, w, *plan.shape(results)[2:], *window, down, over, top, left
    given = ", ".join(map(source.read, one.inputs))
    name, shape = one.name.replace("_gradient", "_back"), f"Pool<{', '.join(map(str, sizes))}>"
    windows = -(-window[0] // down) * -(-window[1] // over) if back else 1  # of an element
    reads = prod(window) if not back or one.name == "max_pool_gradient" else 1  # of each
    most = 4 if windows * reads <= 4 else 1  # elements at once: as little code as can be
    cost = 30 + windows * (15 + 8 * reads)
    found = list(source.elements(task, f"{name}_at<{shape}>({given}, i)", cost, 2, most))
    at = f"{name}_at<{shape}>"
    whole = _planes(source, task, (n * c, images, results), at, shape, windows, window)
    if down < window[0] or over < window[1]:
        return [*found, *whole]
    cells = Cells(n * c, w, -(-(h + top) // down), -(-(w + left) // over), down, prod(window))
    if one.name == "max_pool_gradient":
        strips = _strips(source, task, cells, f"max_pool_back<{shape}, ", given)
        return [*(strips or found), *whole]
    if one.name in KINDS:
        kind = f", {KINDS[one.name]}<{shape}>"
        return [*found, *_strips(source, task, cells, f"pooled<{shape}, ", given, kind)]
    return found


def _strips(
    source: Source, task: Task, cells: Cells, name: str, given: str, kind: str = ""
) -> Options:
    """The ways that read and write rows of cells line by line."""
    early, end, cost = source.early_and_end(task, "e", "int e")
    threads, back = source.machine.threads, not kind
    share, ways = threads / SHARE, list[Work]()
    for many in sorted({max(1, threads * k // 4 // cells.across) for k in (1, 2, 4, 8, 16)}):
        rows = min(many, cells.planes * cells.rows)
        lines = rows * cells.step
        room = lines * (cells.wide + 1) + (2 * rows * cells.across if back else 0)
        if room > MOST_ROOM:
            break
        pixels, each = -(-lines * cells.wide // threads), -(-rows * cells.across // threads)
        counted = 20 + 9 * pixels + each * (40 + 7 * cells.window + cost.cycles)
        counted += 20 * each + (30 + cost.cycles) * pixels if back else 0
        waits = 3 + (-(-pixels // 8) if back else 1)
        floats = lines * cells.wide * (1 + (cost.floats if back else 0))
        floats += rows * cells.across * (1 if back else cost.floats)
        cycles = 100 + waits * LOAD + max(BUSY * counted * share, 4 * floats / BYTES)
        code = f"{name}{rows}{kind}>(tile, room, {given}, {early}, {end});"
        ways.append(Work(partial(str, code), -(-cells.planes * cells.rows // rows), cycles, room))
    return ways


def _planes(
    source: Source, task: Task, planes: tuple[int, int, int], name: str, shape: str,
    windows: int, window: Sequence[int],
) -> Options:  # fmt: skip
    """The ways that copy whole planes, of so many windows of a pixel, to shared memory."""
    plan, one = source.plan, task.one
    total, pixels, found = planes[0], plan.size(planes[1]), plan.size(planes[2])
    pixels, found = pixels // total, found // total
    both, back = one.name == "max_pool_gradient", one.name.endswith("_gradient")
    into, out = (found, pixels) if back else (pixels, found)
    early, end, cost = source.early_and_end(task, "e", "int e")
    first, *others = map(source.read, one.inputs)
    share, ways, many = source.machine.threads / SHARE, list[Work](), 1
    while many <= total:
        held = (pixels, found, found) if both else (into,)
        room = sum(-(-many * size // 4) * 4 for size in held)
        if room > MOST_OF_PLANES:
            break
        if many > 1 and many * out > 32 * source.machine.threads:
            break
        if both:
            code = f"max_pool_back_planes<{shape}, {many}>(tile, room, {first}, {others[0]}"
        else:
            given = ", ".join(["in", *others, "i"])
            code = f"pooled_planes<{into}, {out}, {many}, {total}>(tile, room, {first}, "
            code += f"[&](const float* in, int i) {{ return {name}({given}); }}"
        code += f", {early}, {end});"
        each = -(-many * out // source.machine.threads)
        counted = 40 + each * (35 + cost.cycles + (10 * windows if back else 6 * prod(window)))
        if both:
            counted += -(-many * found // source.machine.threads) * (25 + 6 * prod(window))
        copied = many * (pixels + found if both else into)
        counted += 8 * -(-copied // source.machine.threads)
        moved = 4 * (copied + many * out * cost.floats) / BYTES
        waits = (2 if both else 1) + (1 if cost.floats > 1 else 0) * -(-each // 4)
        cycles = 300 + waits * LOAD + max(BUSY * counted * share, moved)
        ways.append(Work(partial(str, code), -(-total // many), cycles, room))
        many *= 2
    return ways
