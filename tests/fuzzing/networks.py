"""Networks drawn at random, trained for two steps against float64 with its own rounding."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from fuzzing.compare import Wrong, fault
from fuzzing.reference import Expected, interpret
from fuzzing.writer import Random

from pareo import Device, nn
from pareo.errors import ShapeError
from pareo.moving import to_device, to_host
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe
from pareo.training.step import Step, dropout_seeds, step_program

STEPS = 2
IMAGES = 12


@dataclass(frozen=True)
class Drawn:
    """A network, and how it is trained."""

    network: nn.Sequential
    batch: int
    momentum: float
    decay: float
    rate: float

    @property
    def recipe(self) -> Recipe:
        """How a step trains the network; decay applies to every parameter."""
        return Recipe(SGD(self.momentum), self.decay, decay_biases=True)


def drawn_network(seed: int) -> Drawn:
    """The random network of a seed."""
    d = Random(np.random.default_rng(seed))
    flat = d.often(0.25)
    shape = (d.whole(1, 40),) if flat else (d.whole(1, 3), d.whole(4, 13), d.whole(4, 13))
    layers: list[nn.Layer] = []
    here = shape
    if not flat and d.often(0.12):
        shape, layers = _like_the_papers(d)
        here = nn.Sequential(layers).output(shape)
    else:
        for _ in range(0 if flat else d.whole(0, 4)):
            if d.often(0.1):
                layers.append(_auxiliary(d, here))
            here = _grown(d, layers, here, _image_layer)
    layers.append(nn.Flatten())
    here = (int(np.prod(here)),)
    for _ in range(d.whole(0, 3)):
        here = _grown(d, layers, here, _flat_layer)
    layers.append(nn.Dense(d.whole(1, 5)))
    momentum, decay = d.one_of(0.0, 0.0, 0.9), d.one_of(0.0, 0.0, 0.01)
    batch = d.one_of(1, 2, 3, 5, 8, 9)
    return Drawn(nn.Sequential(layers, shape), batch, momentum, decay, d.one_of(0.05, 0.2))


def _like_the_papers(d: Random) -> tuple[Any, list[nn.Layer]]:
    """A convolution and subsampling without rest, which devices have loops of their own for.

    It costs seconds to compile one, so there are few.
    """
    window, kernel = (d.whole(1, 3), d.one_of(1, 2, 4)), (d.whole(2, 5), d.whole(2, 5))
    rows, columns = window[0] * d.whole(2, 4), d.one_of(4, 8, 8, 12, 24)
    layers = [nn.Conv(d.one_of(3, 3, 6, 2), kernel), _activation(d)]
    if d.often(0.8):
        layers += [nn.Subsample(window, window), _activation(d)]
    return (1, rows + kernel[0] - 1, columns + kernel[1] - 1), layers


def _grown(d: Random, layers: list[nn.Layer], here: Any, draw: Any) -> Any:
    """Append a layer that fits; the shape after it."""
    for _ in range(20):
        layer = draw(d, here)
        try:
            after = nn.Sequential([layer], here).output(here)
        except ShapeError:
            continue
        if min(after) >= 1 and np.prod(after) <= 4096:
            layers.append(layer)
            return after
    return here


def _activation(d: Random) -> nn.Layer:
    layer: nn.Layer = d.one_of(nn.Sigmoid(), nn.Tanh(), nn.ReLU())
    return layer


def _conv(d: Random, here: Any) -> nn.Conv:
    groups = d.one_of(1, 1, 1, 2)
    filters = groups * (16 if d.often(0.1) else d.whole(1, 4))
    size = d.one_of(1, 2, 3, 3, 5, 5, (1, 3), (4, 2))
    return nn.Conv(filters, size, d.one_of(1, 1, 1, 2), d.one_of(0, 0, 1, 2), groups)


def _image_layer(d: Random, here: Any) -> nn.Layer:
    """A convolution more often than anything else, mostly with its activation."""
    kind = d.whole(0, 9)
    if kind <= 3:
        return nn.Sequential([_conv(d, here), _activation(d)])
    if kind == 4:
        return _conv(d, here)
    if kind in (5, 6):
        pool = d.one_of(nn.MaxPool, nn.MaxPool, nn.AveragePool)
        size = d.whole(1, 3)
        padding = d.one_of(0, 0, 1) if size > 1 else 0
        return pool(size, d.one_of(None, 1, 2, 3), padding, d.flag())
    if kind == 7:
        return nn.Sequential([nn.Subsample(d.whole(1, 4), d.whole(1, 4)), _activation(d)])
    if d.often(0.1):
        return _large(d)
    if kind == 8:
        return d.one_of(nn.Lrn(d.whole(1, 5), 0.1), nn.Dropout(0.3), _activation(d))
    return nn.Branches(
        [nn.Conv(d.whole(1, 3), 1), _activation(d)],
        [nn.Conv(d.whole(1, 3), 3, 1, 1), nn.ReLU()],
        *([[nn.MaxPool(3, 1, 1), nn.Conv(2, 1)]] if d.flag() else []),
    )


def _large(d: Random) -> nn.Layer:
    """Filters of 4096 weights or more, for which a GPU has ways of its own."""
    if d.flag():
        second = nn.Conv(16, 3, d.one_of(1, 2), 1)
        return nn.Sequential([nn.Conv(32, 3, 1, 1), _activation(d), second, _activation(d)])
    return nn.Sequential(
        [
            nn.Conv(64, 1),
            nn.Branches(
                [nn.Conv(64, 1), _activation(d)],
                [nn.Conv(64, 1), nn.ReLU(), nn.Conv(8, 3, 1, 1)],
                [nn.MaxPool(3, 1, 1), nn.Conv(4, 1), _activation(d)],
            ),
        ]
    )


def _flat_layer(d: Random, here: Any) -> nn.Layer:
    if d.often(0.15):
        return nn.Dropout(0.3)
    units = d.one_of(1, 2, 3, 7, 16, 40)
    if d.often(0.1):
        return nn.Dense(units)
    return nn.Sequential([nn.Dense(units), _activation(d)])


def _auxiliary(d: Random, here: Any) -> nn.Auxiliary:
    return nn.Auxiliary(nn.Sequential([nn.Flatten(), nn.Dense(d.whole(1, 4))]), 0.3)


@dataclass
class Trained:
    """A network with its data, and what two steps of training make of it."""

    drawn: Drawn
    seed: int

    @cached_property
    def data(self) -> tuple[Any, Any, Any]:
        """Images and labels, and which of them each step takes."""
        random = np.random.default_rng(self.seed)
        network, batch = self.drawn.network, self.drawn.batch
        images = random.uniform(-1, 1, (IMAGES, *network.inputs)).astype("float32")
        # Auxiliary heads may have fewer classes than the network.
        labels = random.integers(0, self.classes, IMAGES)
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
        """Parameters to begin with, biases too, as float32 holds them."""
        random = np.random.default_rng(self.seed + 1)
        return {
            path: np.asarray(array + 0.1 * random.uniform(-1, 1, array.shape), "float32")
            for path, array in self.drawn.network.initialise(self.seed).items()
        }

    def reference(self, random: np.random.Generator | None = None) -> list[Any]:
        """The losses, and parameters and velocities after all steps, in float64."""
        drawn = self.drawn
        images, labels, order = self.data
        program = step_program(drawn.network, drawn.batch, drawn.recipe, "float64")
        arrays = [array.astype("float64") for array in self.start.values()]
        count = len(arrays)
        if drawn.momentum:
            arrays += [np.zeros_like(array) for array in arrays]
        losses = []
        for step, chosen in enumerate(order):
            seeds = dropout_seeds(self.seed, step, drawn.network.seeds())
            given = [
                images[chosen].astype("float64"), labels[chosen],
                np.asarray(drawn.rate), *(np.asarray(seed) for seed in seeds),
            ]  # fmt: skip
            loss, *arrays = interpret(program, [*arrays, *given], random)
            losses.append(loss)
        return [np.array(losses), *arrays[:count], *arrays[count:]]

    def measured(self, runs: int, seed: int) -> list[Expected]:
        """What training gives, and how far the noise of float32 moves it."""
        values = self.reference()
        moved = [0.0] * len(values)
        for run in range(runs):
            for place, other in enumerate(self.reference(np.random.default_rng([seed, run]))):
                far = float(np.abs(other - values[place]).max(initial=0))
                moved[place] = max(moved[place], far if np.isfinite(far) else np.inf)
        return [Expected(value, far) for value, far in zip(values, moved, strict=True)]

    @cached_property
    def expected(self) -> list[Expected]:
        return self.measured(4, self.seed)

    @cached_property
    def patiently(self) -> list[Expected]:
        return self.measured(40, self.seed + 1)

    @property
    def names(self) -> list[str]:
        speeds = [f"velocity of {path}" for path in self.start] if self.drawn.momentum else []
        return ["the losses", *self.start, *speeds]


def check_network(trained: Trained, device: str, dtype: str = "float32") -> None:
    """Train on a device, by its loop where it has one and as a program; raise `Wrong`."""
    drawn = trained.drawn
    place = Device(device) if device == "cuda" else Device(device, 2)
    step = Step(drawn.network, drawn.batch, place, drawn.recipe, dtype)
    ways = ["as a loop", "as a program"] if step.loops else ["as a program"]
    for way in ways:
        if way == "as a loop":
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
    """The losses, parameters and velocities of a device after all steps."""
    images, labels, order = trained.data
    with step.device:
        parameters = {path: to_device(a.astype(dtype)) for path, a in trained.start.items()}
        speeds = {
            f"velocity.{path}": to_device(np.zeros(a.shape, dtype))
            for path, a in (trained.start if trained.drawn.momentum else {}).items()
        }
        losses = step.run(
            parameters, speeds, to_device(images.astype(dtype)), to_device(labels), order,
            trained.drawn.rate, trained.seed,
        )  # fmt: skip
        results = [losses, *parameters.values(), *speeds.values()]
        return [np.asarray(to_host(result)).astype(dtype) for result in results]
