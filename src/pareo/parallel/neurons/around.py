"""What every worker of a split by neurons computes on whole batches: augmentation and the loss."""

from collections.abc import Sequence
from typing import Any

from pareo.nn.layers import Context, Layer
from pareo.nn.network import Sequential
from pareo.parallel.neurons.segments import dropouts
from pareo.program import Program, trace, value_and_grad
from pareo.spec import Spec
from pareo.training.settings import Settings


def loss_program(
    network: Sequential, settings: Settings, after: Sequence[Layer], size: int
) -> Program:
    """From logits, labels and seeds to the loss and the logits' gradient.

    `after` are the layers after the last segment.
    """

    def loss(logits: Any, labels: Any, seeds: Any) -> Any:
        context = Context(True, iter(seeds))
        for layer in after:
            logits = layer.apply({}, logits, context)
        return settings.loss(logits, labels)

    seeds = (Spec((), "int64"),) * dropouts([], after)[0]
    logits = Spec((size, network.classes), settings.dtype)
    labels = settings.loss.targets(size, network.classes, settings.dtype)
    return trace(value_and_grad(loss), logits, labels, seeds)


def augmentation(network: Sequential, settings: Settings, size: int) -> Program:
    """From images and a seed to augmented images."""
    images = Spec((size, *network.inputs), settings.dtype)
    return trace(settings.augment, images, Spec((), "int64"))
