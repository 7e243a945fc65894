"""Steps of a population: networks of one shape, each with its own parameters, as one program.

Arrays of a population have a leading axis for the members.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.group.shared_programs import replaced_state
from pareo.parallel.trials.population.update import StackedUpdate
from pareo.program import Executable, Program, remove_common, remove_dead, trace
from pareo.program.differentiate import pull_back
from pareo.program.stack import Value, vmap
from pareo.spec import Spec
from pareo.training import arguments
from pareo.training.recipe import AVERAGE, Recipe
from pareo.training.step import (
    dropout_seeds,
    new_slots,
    parameter_specs,
    slot_specs,
    training_loop,
)

Arrays = Mapping[str, Any]


def stacked(network: Sequential, seeds: Sequence[int], dtype: Any = "float32") -> dict[str, Any]:
    """The initial parameters of a population, the same as those of each member alone.

    >>> from pareo.nn import networks
    >>> stacked(networks.mlp([4, 3]), [0, 1, 2])["1.w"].shape
    (3, 4, 3)
    """
    each = [network.initialise(seed, dtype) for seed in seeds]
    return {path: np.stack([one[path] for one in each]) for path in each[0]}


def widest(recipes: Sequence[Recipe]) -> Recipe:
    """The recipe of the member with most slots: members may be with momentum and without."""
    return max(recipes, key=lambda recipe: len(recipe.optimizer.slots))


def stacked_slots(
    network: Sequential, recipes: Sequence[Recipe], parameters: Arrays
) -> dict[str, Any]:
    """The slots of a population before its first step, by SLOT.PATH."""
    return new_slots(network, widest(recipes), parameters)


def population_program(
    network: Sequential, batch: int, recipes: Sequence[Recipe], dtype: Any = "float32"
) -> Program:
    """The program of one step of all members, each with its own recipe.

    It maps (parameters, slots, images, labels, numbers, seeds) to (losses, parameters, slots).
    Images are those of the first member, then of the second, and so on; labels have the shape
    (members, batch). `numbers` are the optimizer's, each an array (members,). The recipes may
    differ in numbers, but not in the kind of optimizer, the loss, augmentation or `train_only`,
    nor in whether they clip and average.

    >>> from pareo.nn import networks
    >>> program = population_program(networks.mlp([4, 3]), 8, [Recipe(), Recipe()])
    >>> [str(program.specs[number]) for number in program.outputs]
    ['float32[2]', 'float32[2, 4, 3]', 'float32[2, 3]']
    """
    members, recipe = len(recipes), widest(recipes)
    recipe.check(network)
    own, declared = parameter_specs(network, dtype), network.parameters(network.inputs)
    trained, fixed = recipe.trained(declared), recipe.fixed(declared)
    label = recipe.loss.targets(batch, network.classes, dtype)
    count, replaced = network.seeds() + recipe.seeds, replaced_state(network, recipe)

    def alone(parameters: Arrays, images: Any, labels: Any, seeds: Any) -> Any:
        if recipe.augment is not None:
            *seeds, last = seeds
            images = recipe.augment(images, last)
        total, state = network.loss_and_state(parameters, images, labels, seeds, recipe.loss, fixed)
        return total, [state[path] for path in replaced]

    one = trace(
        alone, own, Spec((batch, *network.inputs), dtype), label, (Spec((), "int64"),) * count
    )
    many = vmap(one, members)

    def together(spec: Spec) -> Spec:
        return Spec((members, *spec.shape), spec.dtype)

    def forward(parameters: Arrays, images: Any, labels: Any, seeds: tuple[Any, ...]) -> Any:
        stacked_images = op.reshape(images, (members, batch, *network.inputs))
        drawn = [Value(tuple(seeds[i::count])) for i in range(count)]
        given = [*map(Value, parameters.values()), Value(stacked_images), Value(labels), *drawn]
        lost, *state = (value.array for value in many(given))
        return lost, dict(zip(replaced, state, strict=True))

    updates = StackedUpdate(recipes, dtype)

    def step(
        parameters: Arrays, slots: Arrays, images: Any, labels: Any, numbers: Any, seeds: Any
    ) -> Any:
        builder = numbers[0].recorder
        down = op.scale(-1, numbers[0])
        start = len(builder.instructions)
        lost, state = forward(parameters, images, labels, seeds)
        # A member's loss depends only on its own parameters, so one backward pass serves all.
        # In plain gradient descent it starts from minus the rates, and its results are the updates.
        arriving = down if updates.plain else np.ones(members, dtype)
        wrt = [parameters[path] for path in trained]
        found = pull_back(builder, {lost: builder.own(arriving)}, wrt, start)
        gradients = updates.clipped(dict(zip(trained, found, strict=True)))
        moved: dict[str, Any] = {**parameters, **state}
        changed: dict[str, Any] = {}
        for path in trained:
            before = {slot: slots[f"{slot}.{path}"] for slot in recipe.optimizer.slots}
            moved[path], new = updates(
                parameters[path], gradients[path], before, numbers, declared[path]
            )
            changed |= {f"{slot}.{path}": array for slot, array in new.items()}
        if recipe.average is not None:
            for path, array in moved.items():
                name = f"{AVERAGE}.{path}"
                changed[name] = updates.averaged(slots[name], array)
        return lost, moved, {name: changed[name] for name in slots}

    slots = slot_specs(network, recipe, dtype)
    program = trace(
        step,
        {path: together(spec) for path, spec in own.items()},
        {name: together(spec) for name, spec in slots.items()},
        Spec((members * batch, *network.inputs), dtype),
        together(label),
        (Spec((members,), dtype),) * recipe.optimizer.count,
        (Spec((), "int64"),) * (count * members),
    )
    return remove_dead(remove_common(program))


class PopulationStep:
    """Compiled steps of a population, which update its parameters and slots in place.

    If the device has a loop for one such network, each core trains its members one after the other,
    each for many steps, so that the weights stay in its cache. Otherwise all members are one
    program.
    """

    def __init__(
        self,
        network: Sequential,
        batch: int,
        device: Device,
        recipes: Sequence[Recipe],
        dtype: Any = "float32",
    ) -> None:
        self._network, self._batch, self._device = network, batch, device
        self._recipes, self._dtype = tuple(recipes), np.dtype(dtype)
        self._seeds = network.seeds() + self._recipes[0].seeds
        declared = network.parameters(network.inputs)
        loops = all(recipe.loops(declared) for recipe in self._recipes)
        separate = device.backend.trains_members_separately and loops
        one = Device(str(device), 1, device.precision)
        self._loop: Any = training_loop(network, one, dtype) if separate else None
        self._decays = [
            max((recipe.decay_of(p) for p in declared.values()), default=0.0)
            for recipe in self._recipes
        ]

    @property
    def runs_members_separately(self) -> bool:
        """Whether members run one by one, so that each call should take many steps."""
        return self._loop is not None

    @cached_property
    def executable(self) -> Executable:
        """The step as one compiled program."""
        program = population_program(self._network, self._batch, self._recipes, self._dtype)
        count = len(program.outputs) - 1
        return program.compile(self._device, updates={i + 1: i for i in range(count)})

    @cached_property
    def _many(self) -> Any:
        seeds = self._seeds * len(self._recipes)
        return self._device.backend.step_runner(self.executable, seeds)

    def run(
        self,
        parameters: Arrays,
        slots: Arrays,
        images: Any,
        labels: Any,
        order: Any,
        rates: Any,
        seeds: Sequence[int] = (),
        first: int = 0,
    ) -> Any:
        """Take several steps; return the losses (steps, members).

        `order` (steps, members, batch) has the indices of the images. `rates` are those of the
        members (members,), or of each step (steps, members). `seeds` are those of the members, for
        dropout and augmentation. `first` is the number of the first step. Slots that these members
        do not have are ignored: members that had them may have left.
        """
        backend, members = self._device.backend, len(self._recipes)
        recipe, network = widest(self._recipes), self._network

        def together(specs: Mapping[str, Spec]) -> dict[str, Spec]:
            return {name: spec.like((members, *spec.shape)) for name, spec in specs.items()}

        each = together(parameter_specs(network, self._dtype))
        parameters = arguments.checked_arrays("parameter", each, parameters, backend)
        kept = together(slot_specs(network, recipe, self._dtype))
        slots = {name: array for name, array in slots.items() if name in kept}
        slots = arguments.checked_arrays("slot", kept, slots, backend)
        wanted = Spec((self._batch, *network.inputs), self._dtype)
        targets = recipe.loss.targets(self._batch, network.classes, self._dtype)
        arguments.check_data(images, labels, wanted, targets, network.classes, backend)
        order = arguments.checked_order(order, (members, self._batch), len(images))
        moving = (*parameters.values(), *slots.values())
        arguments.check_disjoint(moving, (images, labels), backend)
        rates = np.broadcast_to(np.asarray(rates, np.float64), (len(order), members))
        if self._loop is not None:
            return self._one_by_one(parameters, slots, images, labels, order, rates)
        drawn = np.array(
            [
                dropout_seeds(seed, first + row, self._seeds)
                for row in range(len(order) if self._seeds else 0)
                for seed in seeds
            ],
            np.int64,
        ).reshape(len(order), -1 if self._seeds else 0)
        numbers = self._numbers(rates, first)
        flat = order.reshape(len(order), -1)
        if self._many is not None:
            return self._many(parameters, slots, images, labels, flat, numbers, drawn)
        losses = np.empty(order.shape[:2])
        for row, chosen in enumerate(flat):
            own = tuple(np.asarray(number) for number in drawn[row])
            picked = labels[chosen].reshape(*order.shape[1:], *labels.shape[1:])
            found, _, _ = self.executable(
                parameters, slots, images[chosen], picked, tuple(numbers[row]), own
            )
            losses[row] = found
        return losses

    def _numbers(self, rates: np.ndarray, first: int) -> np.ndarray:
        """The optimizers' numbers of some steps: (steps, count, members)."""
        found = [
            [
                r.optimizer.numbers(step, float(rate))
                for r, rate in zip(self._recipes, row, strict=True)
            ]
            for step, row in enumerate(rates, first)
        ]
        shape = (len(rates), len(self._recipes), self._recipes[0].optimizer.count)
        every = np.array(found, self._dtype).reshape(shape)
        return np.ascontiguousarray(every.swapaxes(1, 2))

    def _one_by_one(
        self, parameters: Arrays, slots: Arrays, images: np.ndarray, labels: np.ndarray,
        order: np.ndarray, rates: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        losses = np.empty(order.shape[:2])
        every = rates.astype(self._dtype)
        # The loop takes one rate in each call.
        changes = np.flatnonzero((every[1:] != every[:-1]).any(axis=1)) + 1
        ends = [0, *changes.tolist(), len(order)]

        def train(part: int, start: int, stop: int) -> None:
            for member in range(start, stop):
                momentum = self._recipes[member].momentum
                moving = slots if momentum else {}
                for first, last in pairwise(ends):
                    losses[first:last, member] = self._loop(
                        [array[member, ...] for array in parameters.values()],
                        [array[member, ...] for array in moving.values()],
                        images, labels, np.ascontiguousarray(order[first:last, member]),
                        float(every[first, member]), momentum, self._decays[member],
                    )  # fmt: skip

        with self._device:
            self._device.backend.split(train, order.shape[1])
        return losses
