"""The same network in every framework, from pareo's own layers: one short file for each.

An adapter is a module with `build(task, **options)`, which returns a `Trainer`. One that imports
much has `load()`, which does so and computes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from pareo.data import Dataset, load
from pareo.errors import ShapeError
from pareo.machine import gpus
from pareo.nn.layers import Dropout, Layer
from pareo.nn.network import Auxiliary, Branches, Sequential
from pareo.training.evaluate import as_inputs

EXTRAS = ("torch", "jax", "tensorflow")  # of pareo, under the frameworks' own names
MADE_UP = 64  # images, where the network is not for MNIST


@dataclass(frozen=True)
class Task:
    """What everyone does: train this network by plain SGD on these batches, from these weights.

    source: the data, as `pareo train --data` names it; None is MNIST where that fits the network,
        else images that are made up, the first of them the same at every batch size.
    made: the data where it is there already.
    """

    network: Sequential
    batch: int
    threads: int = 1
    rate: float = 0.01
    seed: int = 0
    source: str | None = None
    made: tuple[Any, Any] | None = field(default=None, compare=False, repr=False)

    def parameters(self) -> dict[str, Any]:
        """The weights that everyone starts from, in float32."""
        return self.network.initialise(self.seed)

    def data(self) -> tuple[Any, Any]:
        """All images and labels to train on."""
        if self.made is not None:
            return self.made
        found = self._dataset()
        if found is not None:
            return self._fitted(found.images, found.labels)
        drawn, named = np.random.default_rng(self.seed).spawn(2)
        shape = (self.count(), *self.network.inputs)
        images = drawn.standard_normal(shape, dtype=np.float32)
        return images, named.integers(0, self.network.classes, len(images))

    def count(self) -> int:
        """How many images there are.

        >>> from pareo.nn import networks
        >>> Task(networks.alexnet(), batch=512).count()
        1024
        """
        found = self._dataset()
        return max(MADE_UP, 2 * self.batch) if found is None else len(found.labels)

    def uncopied_bytes(self) -> int:
        """The bytes of `data` that are the dataset's own arrays, as they were read."""
        found = self._dataset()
        if found is None:
            return 0
        own = zip(self.data(), (found.images, found.labels), strict=True)
        return sum(int(a.nbytes) for a, b in own if np.may_share_memory(a, b))

    def test_data(self) -> tuple[Any, Any] | None:
        """Images and labels to test on; None where there are none."""
        found = self._dataset()
        if found is None or not len(found.test_images):
            return None
        return self._fitted(found.test_images, found.test_labels)

    @property
    def trained_on(self) -> str | None:
        """The name of the data; None where it is made up."""
        return self.source or ("mnist" if self.network.inputs == (1, 28, 28) else None)

    def _dataset(self) -> Dataset | None:
        return None if self.trained_on is None else _loaded(self.trained_on)

    def _fitted(self, images: Any, labels: Any) -> tuple[Any, Any]:
        if len(labels) and labels.max() >= self.network.classes:
            raise ShapeError(
                f"{self.network.name} has {self.network.classes} classes; a label of "
                f"{self.trained_on} is {labels.max()}"
            )
        return as_inputs(self.network, images, "float32"), labels

    def least_bytes(self) -> int:
        """What a step must move at least: parameters both ways, images one."""
        images = self.batch * int(np.prod(self.network.inputs))
        return 4 * (2 * self.network.count() + images)

    def order(self, count: int, first: int, steps: int) -> Any:
        """Which of `count` images the steps from `first` on take, a row for each step.

        >>> from pareo.nn import networks
        >>> Task(networks.papers_cnn(), batch=2).order(4, first=0, steps=3).shape
        (3, 2)
        """
        shuffled = np.random.default_rng(self.seed).permutation(count)
        positions = np.arange(first * self.batch, (first + steps) * self.batch)
        return shuffled[positions % count].reshape(steps, self.batch)


@cache
def _loaded(source: str) -> Dataset:
    """A dataset, read once in each process."""
    return load(source)


class Trainer(Protocol):
    """A network under training.

    It may have four methods more: `facts()`, what a reader should know of how it computes (see
    `Runner.ledger`), `peak_bytes()`, the most of a GPU's memory that its arrays have had,
    `reserved_bytes()`, the most that its allocator has held, and `forget_peak()`, after which both
    begin anew: what was needed to choose among algorithms is not what a step needs.
    """

    def run(self, order: Any) -> Any:
        """Train one step for each row of image numbers; the losses, once all is done."""

    def parameters(self) -> dict[str, Any]:
        """The parameters now, as pareo lays them out."""

    def load(self, parameters: dict[str, Any]) -> None:
        """Go on from other parameters, laid out so."""


@dataclass(frozen=True)
class Contestant:
    """An adapter with its options.

    needs: the package that it is for.
    gpu: whether it computes on an NVIDIA GPU.
    warms: whether building it once, beside others, makes the next time fast: its compiler keeps
        what it made on disk, but nothing that was chosen by timing.
    images: those of one step, for one that is too slow for a batch.
    tries: other contestants, by name: a short trial says which of them races as this one.
    """

    module: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    needs: str | None = None
    gpu: bool = False
    warms: bool = False
    images: int | None = None
    tries: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """What it needs and how to install that; None where it is here.

        >>> Contestant("some.module", needs="frobnicate").missing()
        'not installed: pip install frobnicate'
        """
        if self.needs is not None and find_spec(self.needs) is None:
            name = f"'pareo[{self.needs}]'" if self.needs in EXTRAS else self.needs
            return f"not installed: pip install {name}"
        return "this machine has no NVIDIA GPU" if self.gpu and not _has_card() else None

    def in_precision(self, precision: str) -> "Contestant":
        """The same, told how to multiply; only on a GPU is there a choice."""
        return replace(self, options={**self.options, "precision": precision}) if self.gpu else self

    def load(self) -> None:
        """Import the libraries, where the adapter can say which; nothing is computed."""
        getattr(import_module(self.module), "load", lambda **_: None)(**self.options)

    def build(self, task: Task) -> Trainer:
        """The task, ready to train."""
        trainer: Trainer = import_module(self.module).build(task, **self.options)
        return trainer


@cache
def _has_card() -> bool:
    """Asked for each contestant, and the driver takes a second to answer."""
    return bool(gpus())


def _adapter(framework: str, **options: Any) -> Contestant:
    needs = None if framework == "pareo" else framework
    return Contestant(f"pareo.lab.contestants.{framework}_step", options, needs)


CONTESTANTS = {
    "pareo-compiled": _adapter("pareo", device="compiled"),
    "pareo-vectorized": _adapter("pareo", device="vectorized"),
    "torch": _adapter("torch"),
    "torch-onednn-off": _adapter("torch", onednn=False),
    "torch-channels-last": _adapter("torch", last=True),
    "torch-compile": _adapter("torch", compiled=True),
    "jax": _adapter("jax"),
    "jax-scan": _adapter("jax", scan=True),
    "jax-channels-last": _adapter("jax", last=True),
    "tensorflow": _adapter("tensorflow"),
    "tensorflow-xla": _adapter("tensorflow", xla=True),
}


def without_dropout(network: Sequential) -> Sequential:
    """The network less its Dropout layers, which no two frameworks would draw alike.

    >>> from pareo.nn import networks
    >>> without_dropout(networks.googlenet(auxiliary=True)).seeds()
    0
    """
    return Sequential(_kept(network.layers), network.input_shape, network.name)


def _kept(layers: tuple[Layer, ...]) -> list[Layer]:
    kept: list[Layer] = []
    for layer in layers:
        if isinstance(layer, Branches):
            kept.append(Branches(*(_kept(branch.layers) for branch in layer.branches)))
        elif isinstance(layer, Auxiliary):
            kept.append(Auxiliary(without_dropout(layer.head), layer.weight))
        elif isinstance(layer, Sequential):
            kept.append(without_dropout(layer))
        elif not isinstance(layer, Dropout):
            kept.append(layer)
    return kept


def forward(
    network: Sequential,
    parameters: Mapping[str, Any],
    x: Any,
    apply: Callable[[Layer, Any, Any, Any], Any],
    join: Callable[[list[Any]], Any],
    path: str = "",
    heads: list[tuple[float, Any]] | None = None,
) -> Any:
    """The network's output, where `apply(layer, w, b, x)` is one layer and `join` ends branches.

    In training, `heads` is a list that takes the weight and the output of each auxiliary head.
    """
    for number, layer in enumerate(network.layers):
        here = f"{path}{number}."
        if isinstance(layer, Sequential):
            x = forward(layer, parameters, x, apply, join, here, heads)
        elif isinstance(layer, Branches):
            x = join(
                [
                    forward(branch, parameters, x, apply, join, f"{here}{which}.", heads)
                    for which, branch in enumerate(layer.branches)
                ]
            )
        elif isinstance(layer, Auxiliary):
            if heads is not None:
                out = forward(layer.head, parameters, x, apply, join, here, heads)
                heads.append((layer.weight, out))
        else:
            x = apply(layer, parameters.get(f"{here}w"), parameters.get(f"{here}b"), x)
    return x


def total_loss(
    network: Sequential,
    parameters: Mapping[str, Any],
    x: Any,
    apply: Callable[[Layer, Any, Any, Any], Any],
    join: Callable[[list[Any]], Any],
    loss: Callable[[Any], Any],
) -> Any:
    """The loss in training: `loss(output)`, and that of each auxiliary head times its weight."""
    heads: list[tuple[float, Any]] = []
    total = loss(forward(network, parameters, x, apply, join, heads=heads))
    for weight, out in heads:
        total = total + weight * loss(out)
    return total


def unknown(layer: Layer) -> TypeError:
    """The error of an adapter that lacks a kind of layer."""
    return TypeError(f"this adapter has no {layer!r}")


def pair(value: Any) -> tuple[int, int]:
    """A size along height and width.

    >>> pair(3), pair((3, 5))
    ((3, 3), (3, 5))
    """
    return (value, value) if isinstance(value, int) else tuple(value)


@dataclass(frozen=True)
class Window:
    """A pooling layer's windows over one image, as frameworks without `ceil` need them.

    `padding` is ((top, bottom), (left, right)), enough for the last window of all; `counts` says
    how many pixels of the image each window holds.
    """

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    counts: Any

    @classmethod
    def of(cls, layer: Any, image: tuple[int, int]) -> "Window":
        """The windows of a MaxPool or AveragePool layer over an image of height and width.

        >>> from pareo.nn import MaxPool
        >>> Window.of(MaxPool(3, 2, ceil=True), (8, 8)).padding
        ((0, 1), (0, 1))
        """
        size = pair(layer.size)
        stride = size if layer.stride is None else pair(layer.stride)
        before = pair(layer.padding)
        outputs = layer.output((1, *image))[1:]
        padding, counts = [], []
        for axis in (0, 1):
            starts = np.arange(outputs[axis]) * stride[axis] - before[axis]
            ends = np.minimum(starts + size[axis], image[axis])
            counts.append(ends - np.maximum(starts, 0))
            padding.append((before[axis], max(0, int(starts[-1]) + size[axis] - image[axis])))
        return cls(size, stride, (padding[0], padding[1]), np.outer(*counts).astype(np.float32))
