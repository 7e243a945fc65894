"""Writes matrix products and convolutions as tiles that blocks share."""

from collections.abc import Sequence
from math import prod

from pareo.backends.cuda.grid.plan import Task
from pareo.backends.cuda.grid.shapes import (
    Product,
    conv_name,
    conv_product,
    input_product,
    weight_product,
)
from pareo.backends.cuda.grid.source import Source, Work
from pareo.backends.cuda.grid.tiles import tile_of


def _grouped(shape: Product, tiles_: int) -> tuple[str, str]:
    """Code that finds the group of a tile, and its number in the group."""
    if shape.groups == 1:
        return "", "tile"
    return f"const int group = tile / {tiles_}; ", f"tile % {tiles_}"


def _in_group(shape: Product, pointer: str, size: int) -> str:
    """The elements of a group, of which there are so many."""
    return f"{pointer} + group * {size}" if shape.groups > 1 else pointer


def _product(
    source: Source, task: Task, shape: Product, sides: tuple[str, str], place: str
) -> Work:
    """A product: `place` is i for row m and column n of a group."""
    machine = source.machine
    rows, columns, high, wide, count, cycles = tile_of(shape, machine)
    group, tile = _grouped(shape, count // shape.groups)
    source.room(machine.threads * rows * columns)
    sizes = f"{shape.m}, {shape.n}, {shape.k}, {rows}, {columns}, {high}, {wide}"
    given = ", ".join([tile, "room", *sides, *source.early_and_end(task, place, "int m, int n")])
    return Work(f"{group}product<{sizes}>({given});", count, cycles + 10 * len(task.chain))


def _lanes(source: Source, task: Task, shape: Product, sides: tuple[str, str], parts: int) -> Work:
    """A product whose terms lie side by side."""
    machine = source.machine
    rows, columns, _, _, count, cycles = tile_of(shape, machine, parts)
    group, tile = _grouped(shape, count // shape.groups)
    source.room(machine.warps * rows * columns)
    size = shape.groups * shape.m * shape.n
    inside = f"(group * {shape.m} + m) * {shape.n} + n" if group else f"m * {shape.n} + n"
    place = f"part * {size} + {inside}" if parts > 1 else inside
    ends = source.early_and_end(task, place, "int part, int m, int n")
    sizes = f"{shape.m}, {shape.n}, {shape.k}, {rows}, {columns}, {parts}"
    given = ", ".join([tile, "room", *sides, *ends])
    return Work(f"{group}product_of_lanes<{sizes}>({given});", count, cycles + 10 * len(task.chain))


def dot(source: Source, task: Task) -> Work:
    plan, (a, b) = source.plan, task.one.inputs
    (m, k), (_, n) = plan.shape(a), plan.shape(b)
    left, right = (plan.transposed.get(x, x) for x in (a, b))
    first = f"Matrix<1, {m}>" if a in plan.transposed else f"Matrix<{k}, 1>"
    second = f"Matrix<{k}, 1>" if b in plan.transposed else f"Matrix<1, {n}>"
    sides = f"{first}{{{source.read(left)}}}", f"{second}{{{source.read(right)}}}"
    if b in plan.transposed and a not in plan.transposed:
        return _lanes(source, task, Product(1, m, n, k, "k"), sides, 1)
    return _product(source, task, Product(1, m, n, k, "n"), sides, f"m * {n} + n")


def conv(source: Source, task: Task) -> Work:
    plan, (x, w), how = source.plan, task.one.inputs, task.one.attributes
    images, results, window = plan.shape(x), plan.shape(task.one.outputs[0]), plan.shape(w)[2:]
    shape = conv_product(images, results, prod(window), how)
    filters = _in_group(shape, source.read(w), shape.m * shape.k)
    pixels = _in_group(shape, source.read(x), images[1] // shape.groups * prod(images[2:]))
    name = conv_name(images, results, window, how)
    sides = f"Matrix<{shape.k}, 1>{{{filters}}}", f"ByResult<{name}>{{{{{pixels}}}}}"
    return _product(source, task, shape, sides, _pixel(shape, results))


def conv_back(source: Source, task: Task) -> Work:
    plan, (g, w), how = source.plan, task.one.inputs, task.one.attributes
    images, results, window = plan.shape(task.one.outputs[0]), plan.shape(g), plan.shape(w)[2:]
    shape = input_product(images, results, prod(window), how)
    inner = results[1] // shape.groups
    filters = _in_group(shape, source.read(w), inner * shape.m * prod(window))
    errors = _in_group(shape, source.read(g), inner * prod(results[2:]))
    name = conv_name(images, results, window, how)
    sides = f"FiltersBack<{name}>{{{filters}}}", f"Errors<{name}>{{{errors}}}"
    return _product(source, task, shape, sides, _pixel(shape, images))


def filters_back(source: Source, task: Task) -> Work:
    plan, (x, g), how = source.plan, task.one.inputs, task.one.attributes
    images, results = plan.shape(x), plan.shape(g)
    shape = weight_product(images, results, how)
    errors = _in_group(shape, source.read(g), shape.m * prod(results[2:]))
    pixels = _in_group(shape, source.read(x), images[1] // shape.groups * prod(images[2:]))
    name = conv_name(images, results, how["size"], how)
    sides = f"ErrorsOfFilters<{name}>{{{errors}}}", f"ByTap<{name}>{{{{{pixels}}}}}"
    parts = plan.size(task.one.outputs[0]) // (shape.groups * shape.m * shape.n)
    return _lanes(source, task, shape, sides, parts)


def _pixel(shape: Product, images: Sequence[int]) -> str:
    """Where pixel n of all images has row m of a group."""
    pixels = prod(images[2:])
    row = f"group * {shape.m} + m" if shape.groups > 1 else "m"
    return f"(n / {pixels} * {images[1]} + {row}) * {pixels} + n % {pixels}"
