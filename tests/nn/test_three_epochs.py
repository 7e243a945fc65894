"""Three epochs of a residual network with batch normalisation end where PyTorch ends.

Batch normalisation can match for some steps and then fall apart: by its running statistics, which
only the evaluation uses.
"""

from typing import Any

import numpy as np
import torch
from torch_network import forward, tensors, training_loss
from torch_steps import thinner

from pareo import Device, to_device, to_host
from pareo.data import load
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training import Evaluator
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe
from pareo.training.step import Step, new_slots

BATCH, IMAGES, TESTED, EPOCHS, RATE, MOMENTUM = 32, 512, 2000, 3, 0.05, 0.9


def by_pareo(network: Sequential, device: str, start: Any, x: Any, labels: Any, order: Any) -> Any:
    recipe = Recipe(SGD(momentum=MOMENTUM))
    with Device(device) as place:
        step = Step(network, BATCH, place, recipe)
        slots = new_slots(network, recipe, start)
        there = to_device((start, slots, x, labels))
        losses = step.run(*there, order, RATE)
        return losses, to_host(there[0])


def by_torch(network: Sequential, start: Any, x: Any, labels: Any, order: Any) -> Any:
    leaves = tensors(network, start)
    trained = [leaf for leaf in leaves.values() if leaf.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=RATE, momentum=MOMENTUM)
    losses = []
    for row in order:
        optimizer.zero_grad()
        loss = training_loss(network, leaves, torch.tensor(x[row]), torch.tensor(labels[row]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {path: leaf.detach() for path, leaf in leaves.items()}


def test_three_epochs_end_at_the_accuracy_of_torch() -> None:
    data = load("mnist")
    network = thinner(networks.resnet_small(8, size=28, channels=1, classes=20), 2)
    images = np.ascontiguousarray(data.images[:IMAGES], np.float32).reshape(-1, 1, 28, 28)
    labels = data.labels[:IMAGES]
    tests = np.asarray(data.test_images[:TESTED], np.float32).reshape(-1, 1, 28, 28)
    right = data.test_labels[:TESTED]
    random = np.random.default_rng(0)
    order = np.stack([random.permutation(IMAGES) for _ in range(EPOCHS)]).reshape(-1, BATCH)
    start = network.initialise(0)

    expected, leaves = by_torch(network, start, images, labels, order)
    theirs = forward(network, leaves, torch.tensor(tests)).argmax(1).numpy()
    copied = {path: a.copy() for path, a in start.items()}
    losses, parameters = by_pareo(network, "compiled", copied, images, labels, order)
    evaluator = Evaluator(network, Device("compiled"), batch=500)
    ours = evaluator.logits(parameters, tests).argmax(1)

    # The first epoch's losses agree to float32 that training has carried on.
    first = IMAGES // BATCH
    np.testing.assert_allclose(losses[:first], expected[:first], rtol=1e-3)
    found, known = np.mean(ours == right), np.mean(theirs == right)
    assert known > 0.8
    # Half of a per cent of 2,000 images are 10: less than what another seed changes.
    assert abs(found - known) < 0.005
