"""What every contestant does: train one network by plain SGD, on the same batches."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from pareo.array import Array
from pareo.data import Dataset, load
from pareo.device import cores
from pareo.errors import ShapeError
from pareo.nn.activations import Clip
from pareo.nn.network import Sequential
from pareo.training.evaluate import as_inputs
from pareo.training.losses import CrossEntropy, Loss
from pareo.training.own import Original
from pareo.training.recipe import Recipe

MADE_UP = 64  # images, if the network is not for MNIST
INVENTED = "invented"  # the source of images that are made up
BLOCK = 64  # images from one generator, so that several threads can draw them


@dataclass(frozen=True)
class Task:
    """A network to train by plain SGD, its batches, and the weights that it starts from.

    source: the data, as `pareo train --data` names it. None is MNIST if that fits the network, else
        images that are made up; the first of them are the same at every batch size. INVENTED is
        images that are made up, whatever fits.
    made: the data, if it has been read already.
    original: the PyTorch module that the network was imported from, which races as itself.
    notes: what is different in training from the file that the network is from.
    loss: what is minimised. For one of targets, classes become rows of one 1 and zeros.
    """

    network: Sequential
    batch: int
    threads: int = 1
    rate: float = 0.01
    seed: int = 0
    source: str | None = None
    made: tuple[Array, Array] | None = field(default=None, compare=False, repr=False)
    original: Original | None = field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    loss: Loss = CrossEntropy()  # noqa: RUF009  (frozen)

    @property
    def recipe(self) -> Recipe:
        """Plain SGD on the loss."""
        return Recipe(loss=self.loss)

    def parameters(self) -> dict[str, Array]:
        """The weights that all contestants start from, in float32."""
        return self.network.initialise(self.seed)

    @property
    def has_gate_parameters(self) -> bool:
        """Whether the gate starts from other weights than training: with normalisations."""
        usual = self.parameters()
        return any(
            a is not usual[path] for path, a in drawn(self.network, usual, self.seed).items()
        )

    def gate_parameters(self) -> dict[str, Array]:
        """The weights that the gate starts from; see `drawn`."""
        return drawn(self.network, self.parameters(), self.seed)

    def data(self) -> tuple[Array, Array]:
        """All images and labels to train on."""
        if self.made is not None:
            return self.made
        found = self._dataset()
        if found is not None:
            return self._fitted(found.images, found.labels)
        pixels, named = np.random.default_rng(self.seed).spawn(2)
        images = _made_up(pixels, self.count(), self.network.inputs)
        return images, self._targets(named.integers(0, self.network.classes, len(images)))

    def count(self) -> int:
        """Number of images to train on.

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

    def test_data(self) -> tuple[Array, Array] | None:
        """Images and labels to test on; None if there are none."""
        found = self._dataset()
        if found is None or not len(found.test_images):
            return None
        return self._fitted(found.test_images, found.test_labels)

    @property
    def trained_on(self) -> str | None:
        """The name of the data; None if it is made up."""
        if self.source == INVENTED:
            return None
        return self.source or ("mnist" if self.network.inputs == (1, 28, 28) else None)

    def _dataset(self) -> Dataset | None:
        return None if self.trained_on is None else _loaded(self.trained_on, self.network.inputs)

    def _fitted(self, images: Array, labels: Array) -> tuple[Array, Array]:
        if len(labels) and labels.max() >= self.network.classes:
            raise ShapeError(
                f"{self.network.name} has {self.network.classes} classes; a label of "
                f"{self.trained_on} is {labels.max()}"
            )
        return as_inputs(self.network, images, "float32"), self._targets(labels)

    def _targets(self, labels: Array) -> Array:
        """Labels as the loss takes them."""
        if self.loss.takes_classes:
            return labels
        return np.eye(self.network.classes, dtype=np.float32)[labels]

    def least_bytes(self) -> int:
        """The fewest bytes that a step moves: parameters are read and written, images are read."""
        images = self.batch * int(np.prod(self.network.inputs))
        return 4 * (2 * self.network.count() + images)

    def order(self, count: int, first: int, steps: int) -> Array:
        """Which of `count` images the steps from `first` on take, a row for each step.

        >>> from pareo.nn import networks
        >>> Task(networks.papers_cnn(), batch=2).order(4, first=0, steps=3).shape
        (3, 2)
        """
        shuffled = np.random.default_rng(self.seed).permutation(count)
        positions = np.arange(first * self.batch, (first + steps) * self.batch)
        return shuffled[positions % count].reshape(steps, self.batch)


EVERY = 16  # one channel of these has values beside the limit of a Clip, where there is one


def drawn(network: Sequential, parameters: dict[str, Array], seed: int) -> dict[str, Array]:
    """The same weights, with those of normalisations and running statistics drawn.

    They begin as ones and zeros. So a step that leaves one out would be right, and no value would
    reach the 6 of a ReLU6. And a deep network with batch normalisation is chaotic at its start: in
    ResNet-50 bfloat16 changes all of a gradient, and float32 2 % of it. Shifts that are larger than
    the scales leave most ReLUs on one side, which is 5,000 times as exact in float32.

    >>> from pareo import nn
    >>> network = nn.Sequential([nn.Dense(2), nn.BatchNorm()], (3,))
    >>> bool(drawn(network, network.initialise(0), seed=0)["1.shift"].all())
    True
    """
    found = dict(parameters)
    draw = np.random.default_rng(seed)
    limits = [layer.high for _, layer, _ in network.walk(network.inputs) if isinstance(layer, Clip)]
    for path, a in parameters.items():
        values = draw.standard_normal(a.shape[:1], np.float32)
        match path.rpartition(".")[2]:
            case "scale":
                found[path] = np.float32(0.3) * np.exp(values / 2)
            case "shift":
                found[path] = values
                if limits:
                    found[path][::EVERY] = limits[0]
            case "mean":
                found[path] = values / 5
            case "variance":
                found[path] = np.exp(values / 2)
    return found


def _made_up(source: np.random.Generator, count: int, shape: tuple[int, ...]) -> Array:
    """Normal numbers, which are the same however many threads draw them."""
    images = np.empty((count, *shape), np.float32)
    blocks = [images[start : start + BLOCK] for start in range(0, count, BLOCK)]

    def fill(block: Array, generator: np.random.Generator) -> None:
        generator.standard_normal(dtype=np.float32, out=block)

    # The first block is what it was when one generator drew all.
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(fill, blocks, [source, *source.spawn(len(blocks) - 1)]))
    return images


@cache
def _loaded(source: str, inputs: tuple[int, ...]) -> Dataset:
    """A dataset, read once in each process; images of a folder are resized to the inputs."""
    return load(source, shape=inputs if len(inputs) == 3 else None)
