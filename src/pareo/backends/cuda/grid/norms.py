"""Writes normalisations and their sums as tiles that blocks share."""

from functools import partial
from math import prod

from pareo.backends.cuda.grid.plan import Task
from pareo.backends.cuda.grid.sharing import Options, Work
from pareo.backends.cuda.grid.source import Source, one_way
from pareo.backends.cuda.grid.tiles import BUSY, BYTES, LOAD, SHARE
from pareo.backends.cuda.images.elements import number

MOST_HELD = 8  # elements of a thread in registers, as in held.cuh
MOST_READ = 24  # those that are read again, as there; others are copied to shared memory
MOST_KEPT = 40000  # floats of shared memory for these


def _rows(source: Source, x: int, axis: int) -> tuple[int, int, int]:
    dims = source.plan.shape(x)
    inner = prod(dims[axis:][1:])
    return prod(dims[:axis]) * inner, dims[axis], inner


def layer_norm(source: Source, task: Task) -> Options:
    one, machine = task.one, source.machine
    back = one.name == "layer_rows"
    rows, count, inner = _rows(source, one.inputs[1 if back else 0], one.attributes["axis"])
    given = [source.read(n) for n in one.inputs] + [f"p{n}" for n in one.outputs[1:]]
    arguments = ", ".join([*given, number(one.attributes["epsilon"]), source.ending(task)])
    name = "layer_norm_back" if back else "layer_norm"
    ways: list[Work] = []
    for alone in (True, False):  # a block for each row, or a warp
        terms = -(-count // (machine.threads if alone else machine.lanes))
        read = (1 if terms <= 8 else 3 * terms / 4) * (LOAD if inner == 1 else 2 * LOAD)
        sums = (3 if back else 2) * (300 if alone else 150)
        sizes = f"{'true' if alone else 'false'}, {rows}, {count}, {inner}"
        code = f"{name}<{sizes}>(tile, room, {arguments});"
        tiles = rows if alone else -(-rows // machine.warps)
        ways += one_way(code, tiles, 400 + read + sums + terms * 80)
    if inner > 1:
        ways += _beside(source, task, (rows, count, inner), back, f"{name}_beside", arguments)
    return ways


def _beside(
    source: Source, task: Task, sizes: tuple[int, int, int], back: bool, name: str, arguments: str
) -> Options:
    """Rows that lie side by side: neighbouring threads have neighbouring ones."""
    (rows, count, inner), machine = sizes, source.machine
    ways, split, share = list[Work](), 1, machine.threads / SHARE
    while machine.threads // split >= machine.lanes:
        terms, across = -(-count // split), machine.threads // split
        if terms <= MOST_HELD and split < 2 * count:
            counted = terms * ((50 if back else 35) + 10 * len(task.chain))
            moved = 4 * terms * machine.threads * (4 if back else 3) / BYTES
            sums = (3 if back else 2) * (120 + 3 * split * share)
            code = f"{name}<{rows}, {count}, {inner}, {split}>(tile, room, {arguments});"
            time = 700 + LOAD + sums + max(BUSY * counted * share, moved)
            ways.append(Work(partial(str, code), -(-rows // across), time))
        split *= 2
    return ways


def layer_sums(source: Source, task: Task) -> Options:
    one, machine = task.one, source.machine
    rows, count, inner = _rows(source, one.inputs[1], one.attributes["axis"])
    given = [*map(source.read, one.inputs), *(source.ending_of(task, n) for n in one.outputs)]
    parts = one.attributes["parts"]
    code = f"layer_sums<{rows}, {count}, {inner}, {parts}>(tile, room, {', '.join(given)});"
    terms = -(-rows // (parts * machine.warps))
    return one_way(code, parts * -(-count // machine.lanes), 1000 + 2 * -(-terms // 4) * LOAD)


def batch_norm(source: Source, task: Task) -> Options:
    one, machine = task.one, source.machine
    back = one.name == "batch_norm_gradient"
    images, channels, *pixels = source.plan.shape(one.outputs[0])
    others = one.outputs[1:]
    given = [*map(source.read, one.inputs), number(one.attributes["epsilon"])]
    given += [source.ending_of(task, n) for n in others] if back else [f"p{n}" for n in others]
    arguments = ", ".join(["tile", "room", *given, source.ending(task)])
    flat = prod(pixels) == 1
    terms = -(-images // machine.warps) if flat else -(-images * prod(pixels) // machine.threads)
    name = "batch_norm_back" if back else "batch_norm"
    tiles = -(-channels // machine.lanes) if flat else channels
    code = f"{name}<{images}, {channels}, {prod(pixels)}>({arguments});"
    room, kept = _kept(source, task, terms, back)
    cycles = 1300 + LOAD + kept if kept else 1000 + (1 if terms <= 8 else 3) * -(-terms // 4) * LOAD
    return [Work(partial(str, code), tiles, cycles, room)]


def _kept(source: Source, task: Task, terms: int, back: bool) -> tuple[int, float]:
    """The shared memory for so many elements of each thread, and the cycles that they take.

    Both are 0 where they are read again instead, or held in registers, or have no room.
    """
    threads = source.machine.threads
    room = (2 + (2 if back else 1) * terms) * threads
    if terms <= MOST_READ or room > MOST_KEPT:
        return 0, 0.0
    counted = BUSY * terms * (30 + 10 * len(task.chain)) * threads / SHARE
    return room, max(counted, 4 * (3 if back else 2) * terms * threads / BYTES)


def batch_norm_of_parts(source: Source, task: Task) -> Options:
    """A batch normalisation, or the sums that it needs, where several blocks share a channel."""
    one, plan = task.one, source.plan
    images, channels, *pixels = plan.shape(one.inputs[0])
    parts = one.attributes["parts"]
    given, name = [*map(source.read, one.inputs)], one.name
    epsilon = number(one.attributes.get("epsilon", 0.0))
    if name in ("batch_moments", "batch_sums"):
        given += [epsilon] if name == "batch_sums" else []
        given += [f"p{n}" for n in one.outputs]
    else:
        back = name == "batch_norm_back_of_parts"
        others = one.outputs[1:]
        given += [epsilon, *(source.ending_of(task, n) if back else f"p{n}" for n in others)]
        given.append(source.ending(task))
        name = name.replace("parts", "part")
    sizes = f"{images}, {channels}, {prod(pixels)}, {parts}"
    terms = -(-images * prod(pixels) // (parts * source.machine.threads))
    room, kept = _kept(source, task, terms, "sums" in name or "back" in name)
    cycles = 1200 + 2 * LOAD + (1 if terms <= 8 else 2) * terms * 150
    cycles = 1500 + LOAD + kept if kept else cycles
    code = f"{name}<{sizes}>(tile, room, {', '.join(given)});"
    return [Work(partial(str, code), parts * channels, cycles, room)]


def local(source: Source, task: Task) -> Options:
    """Local response normalisation, or its gradient."""
    one = task.one
    _, channels, *pixels = source.plan.shape(one.inputs[-1])
    how = {"alpha": 1e-4, "beta": 0.75, "k": 1.0, **one.attributes}
    size, back = how["size"], one.name == "lrn_gradient"
    numbers = ", ".join(number(n) for n in (how["alpha"] / size, how["beta"], how["k"]))
    given = ", ".join(map(source.read, one.inputs))
    name = "lrn_back_at" if back else "lrn_at"
    value = f"{name}<{channels}, {prod(pixels)}, {size}>({given}, i, Lrn{{{numbers}}})"
    near = min(size, channels)
    cost = 60 + near * (80 + 8 * near) if back else 100 + 8 * near
    return source.elements(task, value, cost, near + 1 if back else 2, 1)
