"""Writes matrix products as tiles that blocks share."""

from collections.abc import Mapping
from functools import partial

from pareo.backends.cuda.grid.dense import dense_back, weights_back
from pareo.backends.cuda.grid.joined import inside
from pareo.backends.cuda.grid.plan import Task
from pareo.backends.cuda.grid.shapes import Product
from pareo.backends.cuda.grid.sharing import Options, Work
from pareo.backends.cuda.grid.source import NOTHING, Source
from pareo.backends.cuda.grid.tiles import Tile, room_of, tiles_of


def grouped(shape: Product, tiles_: int) -> tuple[str, str]:
    """Code that finds the group of a tile, and its number in the group."""
    if shape.groups == 1:
        return "", "tile"
    return f"const int group = tile / {tiles_}; ", f"tile % {tiles_}"


def in_group(shape: Product, pointer: str, size: int) -> str:
    """The elements of a group, of which there are so many."""
    return f"{pointer} + group * {size}" if shape.groups > 1 else pointer


def product(
    source: Source, task: Task, shape: Product, sides: tuple[str, str], place: str,
    names: Mapping[str, str],
) -> Options:  # fmt: skip
    """A product: `place` is i for row m and column n of a group; `names` as for `Source`."""
    machine, losses = source.machine, inside(source.plan, task)
    logits = source.plan.root(losses[0].one.inputs[-2]) if losses else None
    at = f"logits[(m - top) * {shape.n} + n]"
    early, end, cost = source.early_and_end(task, place, "int m, int n", logits, at, names)

    def written(tile: Tile) -> str:
        if tile.deep:
            return _copied(source, task, shape, sides, place, tile, 1, names)
        rows, columns, high, wide, *_ = tile
        group, number = grouped(shape, tile.tiles // shape.groups)
        sizes = f"{shape.m}, {shape.n}, {shape.k}, {rows}, {columns}, {high}, {wide}"
        code = f"{group}product<{sizes}>({', '.join([number, 'room', *sides, early, end])});"
        if not losses:
            return code
        tall = rows * high
        before = f"float* const logits = room + {machine.threads * rows * columns}; "
        before += f"const int top = tile * {tall}; __syncthreads();"
        given = f"{shape.m}, {tall}>(tile, {labels}, {factor})"
        call = f"losses_of_tile<{shape.m}, {shape.n}, {tall}>"
        after = f"__syncthreads(); {call}(tile, logits, {labels}, first, {', '.join(ends)});"
        return f"{before} const Labelled first = labelled<{given}; {code} {after}"

    if losses:
        labels, factor, ends = _losses(source, losses)
    tiles = tiles_of(shape, machine, cost, rows=bool(losses))
    return [
        Work(
            partial(written, tile),
            tile.tiles,
            tile.cycles,
            room_of(tile, shape, machine, bool(losses)),
        )
        for tile in tiles
    ]


def _losses(source: Source, losses: list[Task]) -> tuple[str, str, list[str]]:
    """Labels, the factor of the gradient, and what happens with losses and gradients."""
    labels, factor, ends = "", "nullptr", {"row_losses": "Nothing()"}
    ends["cross_entropy_gradient"] = "Nothing()"
    for task in losses:
        labels = source.read(task.one.inputs[-1])
        ends[task.one.name] = source.ending(task)
        if task.one.name != "row_losses":
            factor = source.read(task.one.inputs[0])
    return labels, factor, list(ends.values())


def lanes(
    source: Source, task: Task, shape: Product, sides: tuple[str, str], parts: int
) -> Options:
    """A product whose terms lie side by side, or one in parts."""
    machine = source.machine
    size = shape.groups * shape.m * shape.n
    row = f"group * {shape.m} + m" if shape.groups > 1 else "m"
    inside = f"({row}) * {shape.n} + n"
    place = f"part * {size} + {inside}" if parts > 1 else inside
    early, end, cost = source.early_and_end(task, place, "int part, int m, int n")

    def written(tile: Tile) -> str:
        if tile.deep:
            return _copied(source, task, shape, sides, place, tile, parts)
        group, number = grouped(shape, tile.tiles // shape.groups)
        sizes = f"{shape.m}, {shape.n}, {shape.k}, {tile.rows}, {tile.columns}, {parts}"
        given = ", ".join([number, "room", *sides, early, end])
        return f"{group}product_of_lanes<{sizes}>({given});"

    tiles = tiles_of(shape, machine, cost, parts)
    return [
        Work(
            partial(written, tile),
            tile.tiles,
            tile.cycles,
            room_of(tile, shape, machine, False)
            if tile.deep
            else machine.warps * tile.rows * tile.columns,
        )
        for tile in tiles
    ]


def _copied(
    source: Source, task: Task, shape: Product, sides: tuple[str, str], place: str, tile: Tile,
    parts: int, names: Mapping[str, str] = NOTHING,
) -> str:  # fmt: skip
    """A tile whose operands are copied to shared memory."""
    early, end, _ = source.early_and_end(task, place, "int part, int m, int n", names=names)
    group, number = grouped(shape, tile.tiles // shape.groups)
    how = tile.rows, tile.columns, tile.high, tile.wide, tile.deep
    sizes = ", ".join(map(str, (shape.m, shape.n, shape.k, parts, *how)))
    name = "product_on_tensors" if tile.tensors else "product_of_copies"
    return f"{group}{name}<{sizes}>({', '.join([number, 'room', *sides, early, end])});"


def dot(source: Source, task: Task) -> Options:
    plan, (a, b) = source.plan, task.one.inputs
    (m, k), (_, n) = plan.shape(a), plan.shape(b)
    left, right = (plan.transposed.get(x, x) for x in (a, b))
    first = f"Matrix<1, {m}>" if a in plan.transposed else f"Matrix<{k}, 1>"
    second = f"Matrix<{k}, 1>" if b in plan.transposed else f"Matrix<1, {n}>"
    sides = f"{first}{{{source.read(left)}}}", f"{second}{{{source.read(right)}}}"
    parts = plan.size(task.one.outputs[0]) // (m * n)
    if b in plan.transposed and a not in plan.transposed:
        if updates := inside(plan, task):
            return dense_back(source, task, *updates)
        return lanes(source, task, Product(1, m, n, k, "k"), sides, parts)
    shape = Product(1, m, n, k, "n")
    if parts > 1:
        return lanes(source, task, shape, sides, parts)
    found = product(source, task, shape, sides, f"m * {n} + n", {f"i % {n}": "n"})
    weights = a in plan.transposed and b not in plan.transposed
    return [*found, *weights_back(source, task)] if weights else found
