"""Shards of an update: the same bits as updates of whole parameters."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from splitting import IMAGES, WIDE

from pareo.device import Device
from pareo.nn import Sequential
from pareo.parallel.group import sharded_update
from pareo.parallel.group.batch_schedule import shard
from pareo.parallel.group.shared_programs import gradient_layout
from pareo.program import trace
from pareo.training.optimizers import SGD, Adam, AdamW, Lion
from pareo.training.recipe import Recipe
from pareo.training.step import new_slots

pytestmark = pytest.mark.smoke

RECIPES = {
    "adamw": Recipe(AdamW(), decay=0.1),
    "adam": Recipe(Adam(), decay=0.1, decay_biases=True),
    "lion": Recipe(Lion(), decay=0.1),
    "nesterov": Recipe(SGD(0.9, nesterov=True), decay=0.1),
    "plain": Recipe(SGD(), decay=0.1),
    "average": Recipe(AdamW(), decay=0.1, average=0.9),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
@pytest.mark.parametrize("network", [WIDE, IMAGES], ids=["dense", "convolution"])
@pytest.mark.parametrize("device", ["vectorized", "compiled"])
def test_shards_of_an_update_are_the_update(
    device: str, network: Sequential, recipe: Recipe
) -> None:
    place, declared = Device(device, 1), network.parameters(network.inputs)
    layout = gradient_layout(network, 4, "float32", whole=True, recipe=recipe)
    specs = sharded_update.specs(layout, recipe, 4)
    arrays = {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
    named = arrays.__getitem__
    parameters = network.initialise(5)
    sharded_update.fill(named, layout, recipe, parameters)
    slots = new_slots(network, recipe, parameters)
    workers = [
        sharded_update.ShardedUpdate(
            layout, recipe, place, 4, named, shard(layout.length, rank, 3), {}, rank == 0
        )
        for rank in range(3)
    ]
    draw = np.random.default_rng(0)
    for step in range(3):
        gradient = np.zeros(layout.length, np.float32)
        gradients = sharded_update.vector_views(gradient, layout)
        for array in gradients.values():
            array[...] = draw.normal(size=array.shape)
        numbers = recipe.optimizer.numbers(step, 0.01)
        for rank, update in enumerate(workers):
            update.total[...] = gradient[slice(*shard(layout.length, rank, 3))]
            update.step(numbers)
        scalars = tuple(map(np.float32, numbers))
        for path, p in declared.items():
            own = {slot: slots[f"{slot}.{path}"] for slot in recipe.optimizer.slots}
            rule = partial(recipe.optimizer.update, decay=recipe.decay_of(p))
            given = parameters[path], gradients[path], own, scalars
            moved, new = trace(rule, *given).compile(place)(*given)
            parameters[path] = moved.copy()
            slots |= {f"{slot}.{path}": array.copy() for slot, array in new.items()}
            if recipe.average is not None:
                kept = np.float32(recipe.average) * slots[f"average.{path}"]
                share = np.float32(1 - recipe.average)
                slots[f"average.{path}"] = kept + share * parameters[path]
    found: dict[str, Any] = sharded_update.by_path(named, layout, "p")
    for path, array in parameters.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)
    for name, array in sharded_update.slots_by_path(named, layout, recipe).items():
        np.testing.assert_array_equal(array, slots[name], err_msg=name)
