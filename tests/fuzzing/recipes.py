"""Recipes drawn at random: the optimizer of a step, and everything else that changes it."""

from fuzzing.writer import Random

from pareo import nn
from pareo.training.augmentation import Augmentation
from pareo.training.losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from pareo.training.optimizers import SGD, Adam, AdamW, Lion, Optimizer
from pareo.training.recipe import Recipe


def drawn_recipe(d: Random, network: nn.Sequential, plain: bool) -> Recipe:
    """A recipe for a network; a plain one is SGD, which devices have loops for."""
    if plain:
        return Recipe(SGD(d.one_of(0.0, 0.0, 0.9)), d.one_of(0.0, 0.0, 0.01), decay_biases=True)
    images = len(network.inputs) == 3
    return Recipe(
        drawn_optimizer(d),
        decay=d.one_of(0.0, 0.01, 0.1),
        decay_biases=d.often(0.3),
        loss=drawn_loss(d, network),
        clip=d.one_of(None, None, 0.1, 1.0, 100.0),
        augment=drawn_augmentation(d) if images and d.often(0.25) else None,
        average=d.one_of(None, None, 0.5, 0.99),
        train_only=trained_layers(d, network) if d.often(0.2) else None,
    )


def drawn_optimizer(d: Random) -> Optimizer:
    """Any optimizer; Adam's steps jump less with a large epsilon."""
    epsilon = d.one_of(1e-8, 1e-3)
    optimizer: Optimizer = d.one_of(
        SGD(), SGD(0.9), SGD(0.9, nesterov=True), Adam(0.9, 0.99, epsilon), Adam(),
        AdamW(0.8, 0.95, epsilon), AdamW(), Lion(), Lion(0.5, 0.9),
    )  # fmt: skip
    return optimizer


def drawn_loss(d: Random, network: nn.Sequential) -> Loss:
    """Any loss; heads have other numbers of outputs, which few losses take."""
    smoothing = d.one_of(0.0, 0.0, 0.1)
    weights = tuple(d.one_of(0.5, 1.0, 3.0) for _ in range(network.classes))
    if any(isinstance(layer, nn.Auxiliary) for _, layer, _ in network.walk(network.inputs)):
        return CrossEntropy(smoothing)
    if d.often(0.2):
        return d.one_of(SquaredError(), BinaryCrossEntropy())
    return CrossEntropy(smoothing, weights if d.often(0.3) else None)


def drawn_augmentation(d: Random) -> Augmentation:
    """Changes to small images, up to more pixels than some have."""
    return Augmentation(d.flag(), d.one_of(0, 1, 4, 15), d.one_of(0, 2, 20))


def trained_layers(d: Random, network: nn.Sequential) -> tuple[str, ...]:
    """The starts of some paths with parameters."""
    declared = network.parameters(network.inputs)
    paths = [path for path, parameter in declared.items() if parameter.trained]
    starts = []
    for path in (d.one_of(*paths) for _ in range(d.whole(1, 3))):
        parts = path.split(".")
        starts.append(".".join(parts[: d.whole(1, len(parts))]))
    return tuple(starts)
