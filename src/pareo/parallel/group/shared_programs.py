"""Programs for workers that share one network: their gradients, and the update from all of them.

The gradient of a dense layer's weights is the product of two thin matrices: the layer's inputs,
transposed, and the gradients of its outputs, a row of each for every image. Where these factors are
smaller than the product, workers exchange them instead. AlexNet at batch 32 has 235 MB of such
gradients; their factors are 3.4 MB. A worker multiplies the factors only for its own shard.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.nn.layers import Dropout
from pareo.nn.network import Sequential
from pareo.operators.normalisation import GOLDEN
from pareo.parallel.group.shared_memory import byte_offsets
from pareo.program import Program, remove_common, remove_dead, trace, value_and_grad
from pareo.spec import Spec
from pareo.training.settings import Settings
from pareo.training.step import parameter_specs, sgd_step

_GOLDEN_INVERSE = pow(GOLDEN, -1, 1 << 64)


@dataclass(frozen=True)
class GradientLayout:
    """Which gradients workers exchange whole, in one vector, and which as two factors.

    whole:    specs of the parameters of the former, by path
    factored: specs of the parameters of the latter, matrices (inputs, outputs)
    paths:    of all of them, in the network's order
    """

    whole: Mapping[str, Spec]
    factored: Mapping[str, Spec]
    paths: tuple[str, ...]
    dtype: str

    @property
    def length(self) -> int:
        """Elements of the vector of whole gradients, each of which is aligned."""
        return byte_offsets(self.whole)[1] // Spec((), self.dtype).nbytes if self.whole else 0

    def bytes(self, batch: int, workers: int = 1) -> int:
        """Bytes that the workers exchange in a step."""
        rows = sum(sum(spec.shape) for spec in self.factored.values())
        return (workers * self.length + batch * rows) * Spec((), self.dtype).nbytes


def gradient_layout(
    network: Sequential, batch: int, dtype: str, whole: bool = False
) -> GradientLayout:
    """How workers exchange a network's gradients at a batch size: where it pays as factors.

    With `whole`, none of them is factored.

    >>> from pareo.nn import networks
    >>> found = gradient_layout(networks.alexnet(), 32, "float32")
    >>> list(found.factored), found.bytes(32) // 10**6
    (['15.w', '18.w', '20.w'], 13)
    >>> gradient_layout(networks.alexnet(), 32, "float32", whole=True).bytes(32) // 10**6
    244
    """
    program = gradient_program(network, batch, batch, dtype)
    gradients = dict(zip(parameter_specs(network, dtype), program.outputs[1:], strict=True))
    return layout_of_program(program, gradients, batch, dtype, whole)


def layout_of_program(
    program: Program, gradients: Mapping[str, int], batch: int, dtype: str, whole: bool = False
) -> GradientLayout:
    """The layout for any program that computes gradients, whose value numbers are given by path."""
    shapes = {path: Spec(program.specs[number].shape, dtype) for path, number in gradients.items()}
    factored = {
        path: shapes[path]
        for path in ([] if whole else gradient_factors(program, gradients))
        if batch * sum(shapes[path].shape) < shapes[path].size
    }
    rest = {path: spec for path, spec in shapes.items() if path not in factored}
    return GradientLayout(rest, factored, tuple(shapes), dtype)


def gradient_program(network: Sequential, rows: int, batch: int, dtype: str) -> Program:
    """The program that computes the gradients of some rows of a batch.

    It maps (parameters, images, labels, seeds) to (loss, gradients). Both are
    the rows' share of the whole batch's: the sum over all workers is the batch's.
    """

    def share(parameters: Any, images: Any, labels: Any, seeds: Any) -> Any:
        loss = network.loss(parameters, images, labels, seeds)
        return loss if rows == batch else op.scale(rows / batch, loss)

    program = trace(
        value_and_grad(share),
        parameter_specs(network, dtype),
        Spec((rows, *network.inputs), dtype),
        Spec((rows,), "int64"),
        (Spec((), "int64"),) * network.seeds(),
    )
    return remove_dead(remove_common(program))


def gradient_factors(program: Program, gradients: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """For each gradient that is a product of two matrices, by path, the numbers of the factors."""
    made = {number: i for i in program.instructions for number in i.outputs}
    found = {}
    for path, number in gradients.items():
        product = made.get(number)
        transpose = made.get(product.inputs[0]) if product and product.name == "dot" else None
        if (
            product
            and transpose
            and transpose.name == "transpose"
            and program.specs[number].ndim == 2
        ):
            found[path] = transpose.inputs[0], product.inputs[1]
    return found


def exchanged_values(
    program: Program, gradients: Mapping[str, int], layout: GradientLayout
) -> tuple[int, ...]:
    """The values of a program that workers exchange, according to a layout.

    These are the whole gradients, the inputs of each factored layer, and its output gradients.
    """
    factors = gradient_factors(program, gradients)
    inputs, output_gradients = ([factors[path][k] for path in layout.factored] for k in (0, 1))
    return (*[gradients[path] for path in layout.whole], *inputs, *output_gradients)


def writing_into_arguments(
    program: Program, kept: Sequence[int], written: Sequence[int]
) -> Program:
    """A program that returns some values, and writes others into a last argument, a list of arrays.

    Compile it with `argument_updates(program, len(written))`.
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


def argument_updates(program: Program, results: int) -> dict[int, int]:
    """The last results of a program replace its last arguments (see `writing_into_arguments`)."""
    return {len(program.outputs) - 1 - k: len(program.inputs) - 1 - k for k in range(results)}


def update_program(
    layout: GradientLayout,
    length: int,
    rows: Mapping[str, tuple[int, int]],
    batch: int,
    settings: Settings,
) -> Program:
    """The program that updates one worker's shard of the parameters.

    It maps (parameters, velocities, total, inputs, output gradients, rate) to (parameters,
    velocities): `length` elements of the vector, whose summed gradients are `total`, and `rows` of
    each factored matrix.
    """
    dtype, momentum, decay = layout.dtype, settings.momentum, settings.decay
    own = {"": Spec((length,), dtype)} if length else {}
    for path, (lo, hi) in rows.items():
        own[path] = Spec((hi - lo, layout.factored[path].shape[1]), dtype)
    inputs, output_gradients = (
        {p: Spec((batch, layout.factored[p].shape[axis]), dtype) for p in own if p}
        for axis in (0, 1)
    )

    def update(
        parameters: Any, velocities: Any, total: Any, inputs: Any, output_gradients: Any, rate: Any
    ) -> Any:
        new_parameters, new_velocities = {}, {}
        for path, parameter in parameters.items():
            if path == "":
                gradient = total
            else:
                part = op.part(inputs[path], 1, rows[path])
                gradient = op.dot(op.transpose(part), output_gradients[path])
            velocity = velocities.get(path)
            new = sgd_step(parameter, gradient, velocity, rate, momentum, decay)
            new_parameters[path] = new[0]
            if momentum:
                new_velocities[path] = new[1]
        return new_parameters, new_velocities

    total, rate = Spec((length,), dtype), Spec((), dtype)
    moving = own if momentum else {}
    program = trace(update, own, moving, total, inputs, output_gradients, rate)
    return remove_dead(remove_common(program))


def dropout_widths(network: Sequential) -> list[int]:
    """The elements of one image that each dropout layer sees, in the order of the seeds."""
    return [
        math.prod(shape)
        for _, layer, shape in network.walk(network.inputs)
        if isinstance(layer, Dropout)
    ]


def seeds_from_row(seeds: list[int], widths: list[int], row: int) -> list[int]:
    """Seeds with which a worker that starts at a row of the batch drops what a single one would.

    Dropout hashes an element's position plus the seed times a constant. So an offset of the
    position is the same as another seed.

    >>> import numpy as np
    >>> whole = op.dropout(np.ones((4, 3)), 0.5, seed=7)
    >>> seed = seeds_from_row([7], widths=[3], row=2)[0]
    >>> bool((op.dropout(np.ones((2, 3)), 0.5, seed=seed) == whole[2:]).all())
    True
    """
    shifted = [
        (seed + row * width * _GOLDEN_INVERSE) % (1 << 64)
        for seed, width in zip(seeds, widths, strict=True)
    ]
    return [seed - (1 << 64) if seed >> 63 else seed for seed in shifted]
