"""Programs for workers that share one network: their gradients, and the update from all of them.

The gradient of a dense layer's weights is the product of two thin matrices: what came in, turned,
and the error that came back, a row of each for every image. Where that is less, workers show each
other these rows instead of the product. AlexNet at batch 32 has 235 MB of such gradients; their
factors are 3.4 MB. Whoever moves a stretch of the weights multiplies them, just for that stretch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.nn.layers import Dropout
from pareo.nn.network import Sequential
from pareo.operators.normalisation import GOLDEN
from pareo.parallel.shared import places
from pareo.program import Program, remove_common, remove_dead, trace, value_and_grad
from pareo.spec import Spec
from pareo.training.settings import Settings
from pareo.training.step import descended

_UNGOLDEN = pow(GOLDEN, -1, 1 << 64)


@dataclass(frozen=True)
class Layout:
    """Which parameters' gradients travel whole, side by side in one vector, and which as factors.

    whole:   specs of the former, by path
    factors: specs of the latter, matrices (inputs, outputs)
    """

    whole: Mapping[str, Spec]
    factors: Mapping[str, Spec]
    dtype: str

    @property
    def length(self) -> int:
        """Elements of the vector of all whole gradients; each starts where wide loads may."""
        return places(self.whole)[1] // Spec((), self.dtype).nbytes if self.whole else 0

    def bytes(self, batch: int, workers: int = 1) -> int:
        """What so many workers show each other in a step."""
        rows = sum(sum(spec.shape) for spec in self.factors.values())
        return (workers * self.length + batch * rows) * Spec((), self.dtype).nbytes


def layout(network: Sequential, batch: int, dtype: str, whole: bool = False) -> Layout:
    """How gradients of a network travel at a batch size; all of them `whole`, if that is wanted.

    >>> from pareo.nn import networks
    >>> found = layout(networks.alexnet(), 32, "float32")
    >>> list(found.factors), found.bytes(32) // 10**6
    (['15.w', '18.w', '20.w'], 13)
    >>> layout(networks.alexnet(), 32, "float32", whole=True).bytes(32) // 10**6
    244
    """
    parameters = specs(network, dtype)
    program = gradient_program(network, batch, batch, dtype)
    found = {} if whole else _products(program, list(parameters))
    thin = {
        path: parameters[path]
        for path in found
        if batch * sum(parameters[path].shape) < parameters[path].size
    }
    rest = {path: spec for path, spec in parameters.items() if path not in thin}
    return Layout(rest, thin, dtype)


def specs(network: Sequential, dtype: str) -> dict[str, Spec]:
    """The specs of a network's parameters, by path."""
    return {path: Spec(p.shape, dtype) for path, p in network.parameters(network.inputs).items()}


def gradient_program(network: Sequential, rows: int, batch: int, dtype: str) -> Program:
    """From (parameters, images, labels, seeds) of some rows of a batch to (loss, gradients).

    Both are the rows' share of the whole batch's: those of all workers add up to it.
    """

    def share(parameters: Any, images: Any, labels: Any, seeds: Any) -> Any:
        loss = network.loss(parameters, images, labels, seeds)
        return loss if rows == batch else op.scale(rows / batch, loss)

    program = trace(
        value_and_grad(share),
        specs(network, dtype),
        Spec((rows, *network.inputs), dtype),
        Spec((rows,), "int64"),
        (Spec((), "int64"),) * network.seeds(),
    )
    return remove_dead(remove_common(program))


def _products(program: Program, paths: list[str]) -> dict[str, tuple[int, int]]:
    """The gradients of a program that are products of two thin matrices, by path: their numbers."""
    made = {number: i for i in program.instructions for number in i.outputs}
    found = {}
    for path, number in zip(paths, program.outputs[1:], strict=True):
        product = made.get(number)
        if product is None or product.name != "dot" or len(product.attributes):
            continue
        turned = made.get(product.inputs[0])
        if (
            turned is not None
            and turned.name == "transpose"
            and len(program.specs[number].shape) == 2
        ):
            found[path] = turned.inputs[0], product.inputs[1]
    return found


def shown_gradients(program: Program, where: Layout, paths: list[str]) -> Program:
    """A program of (loss, gradients) that writes what a layout wants into arguments of the caller.

    Its results after the loss are the whole gradients, what came into each factored layer, and its
    errors; there are as many more arguments, which `updates` says they are to replace.
    """
    products = _products(program, paths)
    whole = [program.outputs[1 + paths.index(path)] for path in where.whole]
    came = [products[path][0] for path in where.factors]
    errors = [products[path][1] for path in where.factors]
    results = (*whole, *came, *errors)
    first = max(program.specs) + 1
    targets = tuple(range(first, first + len(results)))
    extra = {t: program.specs[n] for t, n in zip(targets, results, strict=True)}
    return remove_dead(
        program.changed(
            specs={**program.specs, **extra},
            inputs=(*program.inputs, *targets),
            outputs=(program.outputs[0], *results),
            result=[None] * (1 + len(results)),
            rebuild=None,
        )
    )


def updates(program: Program, results: int) -> dict[int, int]:
    """The last results of a program replace its last arguments."""
    return {len(program.outputs) - 1 - k: len(program.inputs) - 1 - k for k in range(results)}


def update_program(
    where: Layout, length: int, rows: Mapping[str, tuple[int, int]], batch: int, settings: Settings
) -> Program:
    """From (parameters, velocities, sum, came, errors, rate) to what one worker moves.

    It moves `length` elements of the whole parameters, whose gradients are in `sum`, and `rows` of
    each factored matrix.
    """
    dtype, momentum, decay = where.dtype, settings.momentum, settings.decay
    mine = {"": Spec((length,), dtype)} if length else {}
    for path, (lo, hi) in rows.items():
        if hi > lo:
            mine[path] = Spec((hi - lo, where.factors[path].shape[1]), dtype)
    came = {p: Spec((batch, where.factors[p].shape[0]), dtype) for p in mine if p}
    errors = {p: Spec((batch, where.factors[p].shape[1]), dtype) for p in mine if p}

    def update(
        parameters: Any, velocities: Any, total: Any, came: Any, errors: Any, rate: Any
    ) -> Any:
        moved, speeds = {}, {}
        for path, parameter in parameters.items():
            if path == "":
                gradient = total
            else:
                part = op.part(came[path], 1, rows[path])
                gradient = op.dot(op.transpose(part), errors[path])
            velocity = velocities.get(path)
            new = descended(parameter, gradient, velocity, rate, momentum, decay)
            moved[path] = new[0]
            if momentum:
                speeds[path] = new[1]
        return moved, speeds

    still = mine if momentum else {}
    program = trace(update, mine, still, Spec((length,), dtype), came, errors, Spec((), dtype))
    return remove_dead(remove_common(program))


def dropout_widths(network: Sequential) -> list[int]:
    """How many elements of one image each dropout layer sees, in the order of their seeds."""
    return [
        math.prod(shape)
        for _, layer, shape in network.walk(network.inputs)
        if isinstance(layer, Dropout)
    ]


def seeds_from(seeds: list[int], widths: list[int], row: int) -> list[int]:
    """Seeds with which a worker that starts at a row of the batch drops what one alone would drop.

    Dropout's hash takes an element's position plus the seed's golden steps, so a later position is
    another seed.

    >>> import numpy as np
    >>> whole = op.dropout(np.ones((4, 3)), 0.5, seed=7)
    >>> bool((op.dropout(np.ones((2, 3)), 0.5, seed=seeds_from([7], [3], 2)[0]) == whole[2:]).all())
    True
    """
    moved = [
        (seed + row * width * _UNGOLDEN) % (1 << 64)
        for seed, width in zip(seeds, widths, strict=True)
    ]
    return [seed - (1 << 64) if seed >> 63 else seed for seed in moved]
