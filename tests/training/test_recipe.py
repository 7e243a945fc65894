"""Steps by a recipe: equal to PyTorch's with batch normalisation; frozen layers stay."""

from typing import Any

import numpy as np
import pytest
import torch
from devices import CUDA
from torch_network import tensors, training_loss

from pareo import Device, nn, op, to_device, to_host
from pareo.data import load
from pareo.nn.network import Sequential
from pareo.training import Settings
from pareo.training.recipe import AVERAGE, Recipe
from pareo.training.step import Step, dropout_seeds, new_slots

DATA = load("synthetic:1x8x8:4:300")
NETWORK = Sequential(
    [("stem", nn.Conv(4, 3, padding=1, bias=False)), ("norm", nn.BatchNorm()),
     ("relu", nn.ReLU()), ("flat", nn.Flatten()), ("fc", nn.Dense(4))],
    (1, 8, 8), "normalised",
)  # fmt: skip
PLACES = ("vectorized", "compiled", CUDA)  # loops in Python would take minutes
STEPS, BATCH = 20, 12
ORDER = np.random.default_rng(1).integers(0, len(DATA.images), (STEPS, BATCH))


def run(recipe: Recipe, device: str = "vectorized", rate: Any = 0.01, seed: int = 0) -> Any:
    """Parameters, slots and losses after the steps, in float64."""
    parameters = NETWORK.initialise(0, "float64")
    slots = new_slots(NETWORK, recipe, parameters)
    images = DATA.images.astype("float64")
    with Device(device) as place:
        step = Step(NETWORK, BATCH, place, recipe, "float64")
        there = to_device((parameters, slots, images, DATA.labels))
        losses = step.run(*there, ORDER, rate, seed)
        return to_host(there[0]), to_host(there[1]), losses


def torch_run(make: Any, clip: float | None, images: Any = None) -> Any:
    """The same steps in PyTorch; `make` builds the optimizer from groups of parameters."""
    leaves = tensors(NETWORK, NETWORK.initialise(0, "float64"))
    declared = NETWORK.parameters(NETWORK.inputs)
    trained = [path for path, p in declared.items() if p.trained]
    groups = [
        {"params": [leaves[path] for path in trained if declared[path].decays]},
        {"params": [leaves[path] for path in trained if not declared[path].decays],
         "weight_decay": 0.0},
    ]  # fmt: skip
    optimizer = make(groups)
    losses = []
    for rows in ORDER:
        optimizer.zero_grad()
        batch = torch.tensor(DATA.images[rows].astype("float64"))
        loss = training_loss(NETWORK, leaves, batch, torch.tensor(DATA.labels[rows]))
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([leaves[path] for path in trained], clip)
        optimizer.step()
        losses.append(loss.item())
    return {path: leaf.detach().numpy() for path, leaf in leaves.items()}, losses


OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, 0.01, weight_decay=0.1),
    "sgd:0.9": lambda groups: torch.optim.SGD(groups, 0.01, 0.9, weight_decay=0.1),
    "nesterov": lambda groups: torch.optim.SGD(groups, 0.01, 0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda groups: torch.optim.Adam(groups, 0.01, weight_decay=0.1),
    "adamw": lambda groups: torch.optim.AdamW(groups, 0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(("optimizer", "clip"), [(name, None) for name in OPTIMIZERS] + [
    ("sgd:0.9", 0.5), ("adam", 1e-3),
])  # fmt: skip
def test_twenty_steps_are_those_of_torch(device: str, optimizer: str, clip: float | None) -> None:
    recipe = Settings(optimizer=optimizer, decay=0.1, clip=clip).recipe
    parameters, _, losses = run(recipe, device)
    expected, lost = torch_run(OPTIMIZERS[optimizer], clip)
    # Adam divides by the root of its second moment: gradients near 0 have large relative errors.
    close = 1e-6 if "adam" in optimizer else 1e-9
    np.testing.assert_allclose(losses, lost, rtol=close)
    for path, array in expected.items():  # running statistics, too
        np.testing.assert_allclose(parameters[path], array, rtol=close, atol=close, err_msg=path)


def test_clipping_leaves_small_gradients_alone() -> None:
    free, _, _ = run(Settings().recipe)
    wide, _, _ = run(Settings(clip=1e6).recipe)
    tight, _, _ = run(Settings(clip=1e-3).recipe)
    for path in free:
        np.testing.assert_allclose(wide[path], free[path], rtol=1e-12)
    assert not np.allclose(tight["fc.w"], free["fc.w"])


def test_decay_spares_biases_unless_asked() -> None:
    plain, _, _ = run(Settings().recipe)
    some, _, _ = run(Settings(decay=0.5).recipe, rate=1e-5)
    every, _, _ = run(Settings(decay=0.5, decay_biases=True).recipe, rate=1e-5)
    assert not np.allclose(some["fc.w"], plain["fc.w"])
    # The scale of the normalisation starts at 1, so that decay would move it.
    shrunk = 1 - every["norm.scale"]
    assert (shrunk - (1 - some["norm.scale"]) > 5e-5).all()


@pytest.mark.parametrize("device", PLACES)
def test_the_average_is_that_of_the_steps(device: str) -> None:
    recipe = Settings(optimizer="adam", average=0.8).recipe
    found, slots, _ = run(recipe, device)
    parameters = NETWORK.initialise(0, "float64")
    kept = {path: a.copy() for path, a in parameters.items()}
    plain = Settings(optimizer="adam").recipe
    moving = new_slots(NETWORK, plain, parameters)
    step = Step(NETWORK, BATCH, Device("vectorized"), plain, "float64")
    for number, rows in enumerate(ORDER):
        step.run(
            parameters, moving, DATA.images.astype("f8"), DATA.labels, rows[None], 0.01,
            first=number,
        )  # fmt: skip
        kept = {path: 0.8 * kept[path] + 0.2 * a for path, a in parameters.items()}
    for path, array in kept.items():  # of running statistics, too
        np.testing.assert_allclose(slots[f"{AVERAGE}.{path}"], array, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found[path], parameters[path], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("device", PLACES)
def test_frozen_layers_keep_parameters_and_state(device: str) -> None:
    recipe = Settings(optimizer="adam", train_only="fc").recipe
    start = NETWORK.initialise(0, "float64")
    parameters, slots, losses = run(recipe, device)
    for path, array in start.items():
        same = parameters[path].tobytes() == array.tobytes()
        assert same == (not path.startswith("fc.")), path
    assert set(slots) == {f"{slot}.fc.{name}" for slot in ("first", "second") for name in "wb"}
    # The frozen normalisation computes with its running statistics, here mean 0 and variance 1.
    assert losses[0] == pytest.approx(
        float(op.cross_entropy(
            NETWORK(start, DATA.images[ORDER[0]].astype("f8")), DATA.labels[ORDER[0]]
        )), rel=1e-9
    )  # fmt: skip


def test_a_prefix_is_a_whole_name() -> None:
    layers = [nn.Flatten(), nn.Dense(4), *[nn.ReLU()] * 8, nn.Dense(4)]  # layers 1 and 10
    network = Sequential(layers, (1, 8, 8))
    declared = network.parameters(network.inputs)
    assert Settings(train_only="1").recipe.trained(declared) == ("1.w", "1.b")


@pytest.mark.parametrize("device", PLACES)
def test_augmentation_comes_first_with_a_seed_of_its_own(device: str) -> None:
    recipe = Settings(augment="flip,crop:2,cutout:3").recipe
    _, _, losses = run(recipe, device, rate=1e-12, seed=7)
    parameters = NETWORK.initialise(0, "float64")
    for number, rows in enumerate(ORDER):
        (seed,) = dropout_seeds(7, number, 1)
        images = op.augment(DATA.images[rows].astype("f8"), seed, flip=True, crop=2, cutout=3)
        expected = NETWORK.loss(parameters, images, DATA.labels[rows])
        assert losses[number] == pytest.approx(float(expected), rel=1e-9)
    assert not np.allclose(losses, run(recipe, device, rate=1e-12, seed=8)[2])


@pytest.mark.parametrize("device", PLACES)
def test_smoothing_and_weights_are_those_of_the_loss(device: str) -> None:
    settings = Settings(smoothing=0.1, class_weights=(1, 2, 3, 4))
    _, _, losses = run(settings.recipe, device, rate=1e-12)
    parameters = NETWORK.initialise(0, "float64")
    rows = ORDER[0]
    logits = NETWORK(parameters, DATA.images[rows].astype("f8"), training=True)
    expected = torch.nn.functional.cross_entropy(
        torch.tensor(logits), torch.tensor(DATA.labels[rows]),
        torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), label_smoothing=0.1,
    )  # fmt: skip
    assert losses[0] == pytest.approx(expected.item(), rel=1e-9)
