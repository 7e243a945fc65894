"""Networks drawn at random, trained for two steps against float64 with its own rounding."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from fuzzing.compare import Wrong, fault
from fuzzing.layers import activation, flat_layer, grown, image_layer, plain_activation, tokens
from fuzzing.recipes import drawn_recipe
from fuzzing.reference import Expected, interpret
from fuzzing.writer import Random

from pareo import Device, nn
from pareo.moving import to_device, to_host
from pareo.program import Program
from pareo.training.losses import CrossEntropy
from pareo.training.recipe import AVERAGE, Recipe
from pareo.training.step import Step, dropout_seeds, slot_specs, step_program

STEPS = 2
FIRST = 3  # the number of the first step: optimizers count them
IMAGES = 12


@dataclass(frozen=True)
class Drawn:
    """A network, and how it is trained."""

    network: nn.Sequential
    batch: int
    recipe: Recipe
    rate: float


def drawn_network(seed: int) -> Drawn:
    """The random network of a seed."""
    d = Random(np.random.default_rng(seed))
    flat, papers = d.often(0.2), False
    shape: Any = (d.whole(1, 40),) if flat else (d.whole(1, 3), d.whole(4, 13), d.whole(4, 13))
    layers: list[nn.Layer] = []
    here = shape
    if not flat and d.often(0.1):
        papers = True
        shape, layers = _like_the_papers(d)
        here = nn.Sequential(layers).output(shape)
    else:
        for _ in range(0 if flat else d.whole(0, 4)):
            if d.often(0.06):
                layers.append(_auxiliary(d, here))
            here = grown(d, layers, here, image_layer)
    if not (flat or papers) and d.often(0.15) and np.prod(here[1:]) <= 64:
        layers += tokens(d, here)
    else:
        layers += [nn.GlobalAveragePool()] if not (flat or papers) and d.often(0.2) else []
        layers.append(nn.Flatten())
    here = nn.Sequential(layers).output(shape)
    for _ in range(d.whole(0, 3)):
        here = grown(d, layers, here, flat_layer)
    layers.append(nn.Dense(d.whole(1, 5)))
    network = nn.Sequential(layers, shape)
    batch = d.one_of(1, 2, 3, 5, 8, 9)
    alone = any(
        isinstance(layer, nn.BatchNorm) and np.prod(into[1:]) < 2
        for _, layer, into in network.walk(shape)
    )
    recipe = drawn_recipe(d, network, plain=papers or d.often(0.3))
    return Drawn(network, max(batch, 2) if alone else batch, recipe, d.one_of(0.05, 0.2))


def _like_the_papers(d: Random) -> tuple[Any, list[nn.Layer]]:
    """A convolution and subsampling without rest, which devices have loops of their own for.

    It costs seconds to compile one, so there are few.
    """
    window, kernel = (d.whole(1, 3), d.one_of(1, 2, 4)), (d.whole(2, 5), d.whole(2, 5))
    rows, columns = window[0] * d.whole(2, 4), d.one_of(4, 8, 8, 12, 24)
    layers = [nn.Conv(d.one_of(3, 3, 6, 2), kernel), plain_activation(d)]
    if d.often(0.8):
        layers += [nn.Subsample(window, window), plain_activation(d)]
    return (1, rows + kernel[0] - 1, columns + kernel[1] - 1), layers


def _auxiliary(d: Random, here: Any) -> nn.Auxiliary:
    inside = [activation(d)] if d.flag() else []
    return nn.Auxiliary(nn.Sequential([*inside, nn.Flatten(), nn.Dense(d.whole(1, 4))]), 0.3)


@dataclass
class Trained:
    """A network with its data, and what two steps of training make of it."""

    drawn: Drawn
    seed: int

    @cached_property
    def data(self) -> tuple[Any, Any, Any]:
        """Images and labels, and which of them each step takes."""
        random = np.random.default_rng(self.seed)
        network, batch, loss = self.drawn.network, self.drawn.batch, self.drawn.recipe.loss
        images = random.uniform(-1, 1, (IMAGES, *network.inputs)).astype("float32")
        # Auxiliary heads may have fewer classes than the network.
        labels = random.integers(0, self.classes, IMAGES)
        if not isinstance(loss, CrossEntropy):
            labels = random.integers(0, 2, (IMAGES, network.classes)).astype("float32")
        order = np.stack([random.permutation(IMAGES)[:batch] for _ in range(STEPS)])
        return images, labels, order

    @property
    def classes(self) -> int:
        heads = [
            layer.head.output(shape)[-1]
            for _, layer, shape in self.drawn.network.walk(self.drawn.network.inputs)
            if isinstance(layer, nn.Auxiliary)
        ]
        return min(self.drawn.network.classes, *heads, 99)

    @cached_property
    def start(self) -> dict[str, Any]:
        """Parameters and state to begin with, biases too, as float32 holds them."""
        random = np.random.default_rng(self.seed + 1)
        return {
            path: np.asarray(array + 0.1 * random.uniform(-1, 1, array.shape), "float32")
            for path, array in self.drawn.network.initialise(self.seed).items()
        }

    @cached_property
    def slots(self) -> dict[str, Any]:
        """What the optimizer keeps: zeros at first, or numbers as they are later on."""
        random = np.random.default_rng(self.seed + 2)
        share = 0.02 * (self.seed % 3 > 0)
        found = {}
        for name, spec in slot_specs(self.drawn.network, self.drawn.recipe, "float32").items():
            slot, path = name.split(".", 1)
            low = 0.05 if slot == "second" else -1
            numbers = share * random.uniform(low, 1, spec.shape)
            if slot == AVERAGE:
                numbers += self.start[path]
            found[name] = np.asarray(numbers, "float32")
        return found

    @cached_property
    def programs(self) -> tuple[Program, Program]:
        """A step, and the pass forward outside of training."""
        drawn = self.drawn
        step = step_program(drawn.network, drawn.batch, drawn.recipe, "float64")
        return step, drawn.network.program(drawn.batch, "float64")

    def reference(self, random: np.random.Generator | None = None) -> list[Any]:
        """The losses, then parameters, state and slots after all steps, in float64.

        The last is what the network, as it was at first, makes of the first images.
        """
        drawn = self.drawn
        images, labels, order = self.data
        program, forward = self.programs
        before = [array.astype("float64") for array in self.start.values()]
        (outputs,) = interpret(forward, [*before, _wide(images[: drawn.batch])], random)
        arrays = before + [array.astype("float64") for array in self.slots.values()]
        losses = []
        for step, chosen in enumerate(order, FIRST):
            seeds = dropout_seeds(self.seed, step, drawn.network.seeds() + drawn.recipe.seeds)
            given = [
                _wide(images[chosen]), _wide(labels[chosen]),
                *map(np.asarray, drawn.recipe.optimizer.numbers(step, drawn.rate)),
                *map(np.asarray, seeds),
            ]  # fmt: skip
            loss, *arrays = interpret(program, [*arrays, *given], random)
            losses.append(loss)
        return [np.array(losses), *arrays, outputs]

    def measured(self, runs: int, seed: int) -> list[Expected]:
        """What training gives, and how far the noise of float32 moves it."""
        values = self.reference()
        moved = [np.zeros(value.shape) for value in values]
        for run in range(runs):
            for place, other in enumerate(self.reference(np.random.default_rng([seed, run]))):
                far = np.abs(other - values[place])
                moved[place] = np.maximum(moved[place], np.where(np.isfinite(far), far, np.inf))
        return [
            Expected(value, float(far.max(initial=0)), far)
            for value, far in zip(values, moved, strict=True)
        ]

    @cached_property
    def expected(self) -> list[Expected]:
        return self.measured(4, self.seed)

    @cached_property
    def patiently(self) -> list[Expected]:
        return self.measured(40, self.seed + 1)

    @property
    def names(self) -> list[str]:
        return ["the losses", *self.start, *self.slots, "the outputs"]


def _wide(array: Any) -> Any:
    return array.astype("float64") if array.dtype.kind == "f" else array


def check_network(trained: Trained, device: str, dtype: str = "float32") -> None:
    """Train on a device, by its loop or table if it has one, and as a program; raise `Wrong`."""
    drawn = trained.drawn
    plain = device in ("cuda", "sequential")
    place = Device(device) if plain else Device(device, 1 + trained.seed % 2)
    step = Step(drawn.network, drawn.batch, place, drawn.recipe, dtype)
    own = ["as a loop"] if step.loops else ["from a table"] if step.in_table else []
    for way in [*own, "as a program"]:
        if way in own:
            found = _trained(trained, step, dtype)
        else:
            with step.without_loop():
                found = _trained(trained, step, dtype)
        for place, (value, right) in enumerate(zip(found, trained.expected, strict=True)):
            if fault(value, right, dtype) and (
                why := fault(value, trained.patiently[place], dtype)
            ):
                raise Wrong(f"{way}, {trained.names[place]} {why}")


def _trained(trained: Trained, step: Step, dtype: str) -> list[Any]:
    """The losses, parameters and slots of a device after all steps, and the first outputs."""
    images, labels, order = trained.data
    drawn = trained.drawn
    labels = labels.astype(dtype) if labels.dtype.kind == "f" else labels
    with step.device:
        parameters = {path: to_device(a.astype(dtype)) for path, a in trained.start.items()}
        slots = {name: to_device(a.astype(dtype)) for name, a in trained.slots.items()}
        given = to_device(images.astype(dtype))
        forward = drawn.network.program(drawn.batch, dtype).compile(step.device)
        outputs = np.array(to_host(forward(parameters, given[: drawn.batch])))
        losses = step.run(
            parameters, slots, given, to_device(labels), order, drawn.rate, trained.seed, FIRST
        )
        results = [losses, *parameters.values(), *slots.values(), outputs]
        return [np.asarray(to_host(result)).astype(dtype) for result in results]
