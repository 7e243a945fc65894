"""Writes convolutions as products of M x K by K x N elements, or directly."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from pareo.backends.cuda.grid import direct
from pareo.backends.cuda.grid.direct import Sizes, Way
from pareo.backends.cuda.grid.plan import Task
from pareo.backends.cuda.grid.products import grouped, in_group, lanes, product
from pareo.backends.cuda.grid.shapes import (
    Product,
    conv_name,
    conv_product,
    input_product,
    weight_product,
)
from pareo.backends.cuda.grid.sharing import Options, Work
from pareo.backends.cuda.grid.source import Source


def conv(source: Source, task: Task) -> Options:
    plan, (x, w), how = source.plan, task.one.inputs, task.one.attributes
    images, results, window = plan.shape(x), plan.shape(task.one.outputs[0]), plan.shape(w)[2:]
    shape = conv_product(images, results, prod(window), how)
    filters = in_group(shape, source.read(w), shape.m * shape.k)
    pixels = in_group(shape, source.read(x), images[1] // shape.groups * prod(images[2:]))
    name, at = conv_name(images, results, window, how), _pixel(shape, results)
    sides = f"Matrix<{shape.k}, 1>{{{filters}}}", f"ByResult<{name}>{{{{{pixels}}}}}"
    sizes = direct.sizes_of(images, results, window, how)
    return [
        *product(source, task, shape, sides, *at),
        *_direct(source, task, shape, sizes, f"Forward<{name}>", (pixels, filters), at),
    ]


def conv_back(source: Source, task: Task) -> Options:
    plan, (g, w), how = source.plan, task.one.inputs, task.one.attributes
    images, results, window = plan.shape(task.one.outputs[0]), plan.shape(g), plan.shape(w)[2:]
    shape = input_product(images, results, prod(window), how)
    inner = results[1] // shape.groups
    filters = in_group(shape, source.read(w), inner * shape.m * prod(window))
    errors = in_group(shape, source.read(g), inner * prod(results[2:]))
    name, at = conv_name(images, results, window, how), _pixel(shape, images)
    sides = f"FiltersBack<{name}>{{{filters}}}", f"Errors<{name}>{{{errors}}}"
    sizes = direct.sizes_back(images, results, window, how)
    return [
        *product(source, task, shape, sides, *at),
        *_direct(source, task, shape, sizes, f"Backward<{name}>", (errors, filters), at),
    ]


def filters_back(source: Source, task: Task) -> Options:
    plan, (x, g), how = source.plan, task.one.inputs, task.one.attributes
    images, results = plan.shape(x), plan.shape(g)
    shape = weight_product(images, results, how)
    errors = in_group(shape, source.read(g), shape.m * prod(results[2:]))
    pixels = in_group(shape, source.read(x), images[1] // shape.groups * prod(images[2:]))
    name = conv_name(images, results, how["size"], how)
    sides = f"ErrorsOfFilters<{name}>{{{errors}}}", f"ByTap<{name}>{{{{{pixels}}}}}"
    parts = plan.size(task.one.outputs[0]) // (shape.groups * shape.m * shape.n)
    found = lanes(source, task, shape, sides, parts)
    sizes = direct.sizes_of(images, results, how["size"], how)
    if sizes is None:
        return found
    row = f"group * {shape.m} + m" if shape.groups > 1 else "m"
    place = f"({row}) * {shape.n} + n"
    place = f"part * {shape.groups * shape.m * shape.n} + {place}" if parts > 1 else place
    early, end, cost = source.early_and_end(task, place, "int part, int m, int n")

    def written(way: Way) -> str:
        group, tile = grouped(shape, way.tiles // shape.groups)
        what = f"{name}, {parts}, {', '.join(map(str, way[:6]))}"
        given = ", ".join([tile, "room", pixels, errors, early, end])
        return f"{group}convolution_of_errors<{what}>({given});"

    ways = direct.ways_of_errors(sizes, source.machine, cost, parts)
    return [*found, *(_work(written, way) for way in ways)]


def _direct(
    source: Source, task: Task, shape: Product, sizes: Sizes | None, name: str,
    operands: tuple[str, str], at: tuple[str, Mapping[str, str]],
) -> Options:  # fmt: skip
    """The ways without a product, if there are any."""
    if sizes is None:
        return []
    place, names = at
    early, end, cost = source.early_and_end(task, place, "int m, int n", names=names)

    def written(way: Way) -> str:
        group, tile = grouped(shape, way.tiles // shape.groups)
        what = f"{name}, {', '.join(map(str, way[:6]))}"
        return f"{group}convolution<{what}>({', '.join([tile, 'room', *operands, early, end])});"

    return [_work(written, way) for way in direct.ways_of(sizes, source.machine, cost)]


def _work(written: Callable[[Way], str], way: Way) -> Work:
    return Work(partial(written, way), way.tiles, way.cycles, way.room)


def _pixel(shape: Product, images: Sequence[int]) -> tuple[str, dict[str, str]]:
    """Where pixel n of all images has row m of a group; and what a channel is called there."""
    pixels = prod(images[2:])
    row = f"group * {shape.m} + m" if shape.groups > 1 else "m"
    place = f"n / {pixels} * {images[1] * pixels} + n % {pixels} + ({row}) * {pixels}"
    return place, {f"i / {pixels} % {images[1]}": row}
