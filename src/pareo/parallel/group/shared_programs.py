"""Programs for workers that share one network: their gradients, and the update from all of them.

The gradient of a dense layer's weights is the product of two thin matrices: the layer's inputs,
transposed, and the gradients of its outputs, a row of each for every image. Where these factors are
smaller than the product, workers exchange them instead. AlexNet at batch 32 has 235 MB of such
gradients; their factors are 3.4 MB. A worker multiplies the factors only for its own shard.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pareo.errors import ShapeError
from pareo.nn.containers import Container
from pareo.nn.layers import Dropout, Parameter, StochasticDepth
from pareo.nn.network import Sequential
from pareo.operators.normalisation import GOLDEN
from pareo.parallel.group.shared_memory import byte_offsets
from pareo.program import Program, remove_common, remove_dead, trace, value_and_grad
from pareo.spec import Spec
from pareo.training.recipe import Recipe
from pareo.training.step import PLAIN, parameter_specs

AUGMENT_WIDTH = 8  # `op.augment` draws as `op.dropout` would for 8 elements of each image
_GOLDEN_INVERSE = pow(GOLDEN, -1, 1 << 64)


@dataclass(frozen=True)
class GradientLayout:
    """Which gradients workers exchange whole, in one vector, and which as two factors.

    whole:    specs of the parameters of the former, by path; those that decay come first
    factored: specs of the parameters of the latter, matrices (inputs, outputs)
    kept:     specs of what no gradient moves: state, and parameters that are not trained
    paths:    of all of them, in the network's order
    decaying: the paths to which weight decay applies
    """

    whole: Mapping[str, Spec]
    factored: Mapping[str, Spec]
    kept: Mapping[str, Spec]
    paths: tuple[str, ...]
    decaying: frozenset[str]
    dtype: str

    @property
    def trained(self) -> tuple[str, ...]:
        """The paths that gradients move, in the network's order."""
        return tuple(path for path in self.paths if path not in self.kept)

    @property
    def length(self) -> int:
        """Elements of the vector of whole gradients, each of which is aligned."""
        return byte_offsets(self.whole)[1] // Spec((), self.dtype).nbytes if self.whole else 0

    @property
    def decaying_length(self) -> int:
        """Elements at the start of the vector to which weight decay applies."""
        first = {path: spec for path, spec in self.whole.items() if path in self.decaying}
        return byte_offsets(first)[1] // Spec((), self.dtype).nbytes if first else 0

    def bytes(self, batch: int, workers: int = 1) -> int:
        """Bytes that the workers exchange in a step."""
        rows = sum(sum(spec.shape) for spec in self.factored.values())
        return (workers * self.length + batch * rows) * Spec((), self.dtype).nbytes


def gradient_layout(
    network: Sequential, batch: int, dtype: str, whole: bool = False, recipe: Recipe = PLAIN
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
    declared = network.parameters(network.inputs)
    program = gradient_program(network, batch, batch, dtype, recipe)
    trained = recipe.trained(declared)
    gradients = dict(zip(trained, program.outputs[1 : 1 + len(trained)], strict=True))
    return layout_of_program(program, gradients, batch, declared, recipe, dtype, whole)


def layout_of_program(
    program: Program,
    gradients: Mapping[str, int],
    batch: int,
    declared: Mapping[str, Parameter],
    recipe: Recipe,
    dtype: str,
    whole: bool = False,
) -> GradientLayout:
    """The layout for any program that computes gradients, whose value numbers are given by path.

    `declared` are all parameters of the program, those without a gradient included.
    """
    shapes = {path: Spec(program.specs[number].shape, dtype) for path, number in gradients.items()}
    factors = {} if whole else gradient_factors(program, gradients)
    factored = {
        path: shapes[path]
        for path, (inputs, _) in factors.items()
        if program.specs[inputs].shape[0] == batch  # not those of tokens, which have more rows
        and batch * sum(shapes[path].shape) < shapes[path].size
    }
    decaying = frozenset(path for path in shapes if recipe.decay_of(declared[path]))
    rest = [path for path in shapes if path not in factored]
    ordered = sorted(rest, key=lambda path: path not in decaying)
    kept = {path: Spec(p.shape, dtype) for path, p in declared.items() if path not in shapes}
    return GradientLayout(
        {path: shapes[path] for path in ordered}, factored, kept, tuple(declared), decaying, dtype
    )


def gradient_program(
    network: Sequential, rows: int, batch: int, dtype: str, recipe: Recipe = PLAIN
) -> Program:
    """The program that computes the gradients of some rows of a batch.

    It maps (parameters, images, labels, whole, seeds) to (loss, gradients, state). Loss and
    gradients are the rows' share of the whole batch's: the sum over all workers is the batch's.
    `whole` has the weight of the batch if the loss is weighted, and is empty otherwise. The state
    of layers, such as running statistics, is that after these rows.
    """
    recipe.check(network)
    declared = network.parameters(network.inputs)
    trained, fixed = recipe.trained(declared), recipe.fixed(declared)

    def share(parameters: Any, images: Any, labels: Any, whole: Any, seeds: Any) -> Any:
        if recipe.augment is not None:
            *seeds, last = seeds
            images = recipe.augment(images, last)

        def loss(moving: Any) -> Any:
            part = partial(part_of_loss, recipe, batch, whole)
            given = {**parameters, **moving}
            return network.loss_and_state(given, images, labels, seeds, part, fixed)

        total, gradients, state = value_and_grad(loss, aux=True)(
            {path: parameters[path] for path in trained}
        )
        return total, gradients, {path: state[path] for path in parameters if path in state}

    program = trace(
        share,
        parameter_specs(network, dtype),
        Spec((rows, *network.inputs), dtype),
        recipe.loss.targets(rows, network.classes, dtype),
        whole_specs(recipe, dtype),
        (Spec((), "int64"),) * (network.seeds() + recipe.seeds),
    )
    return remove_dead(remove_common(program))


def replaced_state(network: Sequential, recipe: Recipe) -> tuple[str, ...]:
    """The paths of the state that layers replace in a step, in the order of `gradient_program`."""
    declared = network.parameters(network.inputs)
    fixed = set(recipe.fixed(declared))
    return tuple(path for path in network.state if path not in fixed)


def part_of_loss(
    recipe: Recipe, batch: int, whole: Sequence[Any], outputs: Any, labels: Any
) -> Any:
    """The share of some rows in the loss of a batch (see `gradient_program`)."""
    return recipe.loss.part(outputs, labels, whole[0] if recipe.loss.weighted else batch)


def whole_specs(recipe: Recipe, dtype: str) -> tuple[Spec, ...]:
    """The argument `whole` of a `gradient_program`."""
    return (Spec((), dtype),) if recipe.loss.weighted else ()


def whole_weight(recipe: Recipe, labels: Any, indices: Any, dtype: str) -> tuple[Any, ...]:
    """The argument `whole` of a `gradient_program`, for a batch of some of the labels."""
    if not recipe.loss.weighted:
        return ()
    return (np.asarray(recipe.loss.weight(labels[indices]), dtype),)


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


def drawn_widths(network: Sequential, recipe: Recipe = PLAIN) -> list[int]:
    """How many random numbers each seed of a step gives to one image, in the order of the seeds.

    >>> from pareo.nn import Dense, Dropout
    >>> drawn_widths(Sequential([Dense(3), Dropout(0.5), Dense(2)], (4,)))
    [3]
    """
    found = []
    for _, layer, shape in network.walk(network.inputs):
        if isinstance(layer, Container) or not layer.seeds():
            continue
        if not isinstance(layer, Dropout | StochasticDepth):
            raise ShapeError(f"workers cannot share the random numbers of {layer.label}")
        found.append(math.prod(shape) if isinstance(layer, Dropout) else 1)
    return found + [AUGMENT_WIDTH] * recipe.seeds


def seeds_from_row(seeds: list[int], widths: list[int], row: int) -> list[int]:
    """Seeds with which a worker that starts at a row of the batch drops what a single one would.

    Dropout hashes an element's position plus the seed times a constant, and so does augmentation.
    So an offset of the position is the same as another seed.

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
