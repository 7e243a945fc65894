"""Programs for workers that share one network: their gradients, and the update from all of them.

The gradient of a dense layer's weights is the product of two thin matrices: what came in, turned,
and the error that came back, a row of each for every image. Where that is less, workers show each
other these rows instead of the product. AlexNet at batch 32 has 235 MB of such gradients; their
factors are 3.4 MB. Whoever moves a stretch of the weights multiplies them, just for that stretch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.nn.layers import Dropout
from pareo.nn.network import Sequential
from pareo.operators.normalisation import GOLDEN
from pareo.parallel.group.shared_memory import places
from pareo.program import Program, remove_common, remove_dead, trace, value_and_grad
from pareo.spec import Spec
from pareo.training.settings import Settings
from pareo.training.step import sgd_step

_UNGOLDEN = pow(GOLDEN, -1, 1 << 64)


@dataclass(frozen=True)
class Layout:
    """Which parameters' gradients travel whole, side by side in one vector, and which as factors.

    whole:   specs of the former, by path
    factors: specs of the latter, matrices (inputs, outputs)
    paths:   of all of them, in the network's order
    """

    whole: Mapping[str, Spec]
    factors: Mapping[str, Spec]
    paths: tuple[str, ...]
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
    program = gradient_program(network, batch, batch, dtype)
    gradients = dict(zip(specs(network, dtype), program.outputs[1:], strict=True))
    return layout_of(program, gradients, batch, dtype, whole)


def layout_of(
    program: Program, gradients: Mapping[str, int], batch: int, dtype: str, whole: bool = False
) -> Layout:
    """The same for any program that makes gradients, given their numbers in it by path."""
    shapes = {path: Spec(program.specs[number].shape, dtype) for path, number in gradients.items()}
    thin = (
        {}
        if whole
        else {
            path: shapes[path]
            for path in products(program, gradients)
            if batch * sum(shapes[path].shape) < shapes[path].size
        }
    )
    rest = {path: spec for path, spec in shapes.items() if path not in thin}
    return Layout(rest, thin, tuple(shapes), dtype)


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


def products(program: Program, gradients: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The gradients that are products of two thin matrices, by path: the numbers of these."""
    made = {number: i for i in program.instructions for number in i.outputs}
    found = {}
    for path, number in gradients.items():
        product = made.get(number)
        turned = made.get(product.inputs[0]) if product and product.name == "dot" else None
        if product and turned and turned.name == "transpose" and program.specs[number].ndim == 2:
            found[path] = turned.inputs[0], product.inputs[1]
    return found


def shown(program: Program, gradients: Mapping[str, int], where: Layout) -> tuple[int, ...]:
    """The values that leave a program in place of gradients, as a layout wants it.

    Those that travel whole, what came into each factored layer, and the errors of each.
    """
    thin = products(program, gradients)
    whole = [gradients[path] for path in where.whole]
    return (*whole, *[thin[p][0] for p in where.factors], *[thin[p][1] for p in where.factors])


def writing(program: Program, kept: Sequence[int], written: Sequence[int]) -> Program:
    """A program that returns some values, and writes others into a last argument, a list of arrays.

    Compile it with `updates(program, len(written))`.
    """
    first = max(program.specs) + 1
    targets = tuple(range(first, first + len(written)))
    extra = {t: program.specs[n] for t, n in zip(targets, written, strict=True)}
    return remove_dead(
        program.changed(
            specs={**program.specs, **extra},
            inputs=(*program.inputs, *targets),
            outputs=(*kept, *written),
            result=[None] * (len(kept) + len(written)),
            arguments=(*program.arguments, [None] * len(written)),
            rebuild=None,
        )
    )


def updates(program: Program, results: int) -> dict[int, int]:
    """The last results of a program replace its last arguments (see `writing`)."""
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
            new = sgd_step(parameter, gradient, velocity, rate, momentum, decay)
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
