"""Steps of a population: networks of one shape, each with its own parameters, as one program.

Arrays of a population have a leading axis for the members.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.program import Executable, Program, remove_common, remove_dead, trace
from pareo.program.differentiate import pull_back
from pareo.program.stack import Value, vmap
from pareo.spec import Spec
from pareo.training import arguments
from pareo.training.step import dropout_seeds, parameter_specs, training_loop

Arrays = Mapping[str, Any]


def stacked(network: Sequential, seeds: Sequence[int], dtype: Any = "float32") -> dict[str, Any]:
    """The initial parameters of a population, the same as those of each member alone.

    >>> from pareo.nn import networks
    >>> stacked(networks.mlp([4, 3]), [0, 1, 2])["1.w"].shape
    (3, 4, 3)
    """
    each = [network.initialise(seed, dtype) for seed in seeds]
    return {path: np.stack([one[path] for one in each]) for path in each[0]}


def population_program(
    network: Sequential,
    batch: int,
    momenta: Sequence[float],
    decays: Sequence[float],
    dtype: Any = "float32",
) -> Program:
    """The program of one step of all members.

    It maps (parameters, velocities, images, labels, (rates,), seeds) to (losses, parameters,
    velocities). Images are those of the first member, then of the second, and so on; labels have
    the shape (members, batch). Without momentum there are no velocities.

    >>> from pareo.nn import networks
    >>> program = population_program(networks.mlp([4, 3]), 8, [0, 0], [0, 0])
    >>> [str(program.specs[number]) for number in program.outputs]
    ['float32[2]', 'float32[2, 4, 3]', 'float32[2, 3]']
    """
    members = len(momenta)
    own, label = parameter_specs(network, dtype), Spec((batch,), "int64")
    one = trace(
        network.loss,
        own,
        Spec((batch, *network.inputs), dtype),
        label,
        (Spec((), "int64"),) * network.seeds(),
    )
    many = vmap(one, members)
    each = {path: spec.like((members, *spec.shape)) for path, spec in own.items()}
    moving, decaying = any(momenta), any(decays)

    def broadcastable(values: Any, parameter: Any) -> Any:
        """One number for each member, in a shape that broadcasts with a stacked parameter."""
        shape = (members, *[1] * (parameter.ndim - 1))
        return (
            values.reshape(shape) if isinstance(values, np.ndarray) else op.reshape(values, shape)
        )

    def losses(parameters: Arrays, images: Any, labels: Any, seeds: tuple[Any, ...]) -> Any:
        stacked_images = op.reshape(images, (members, batch, *network.inputs))
        drawn = [Value(tuple(seeds[i :: network.seeds()])) for i in range(network.seeds())]
        given = [*map(Value, parameters.values()), Value(stacked_images), Value(labels), *drawn]
        return many(given)[0].array

    def step(
        parameters: Arrays, velocities: Arrays, images: Any, labels: Any, numbers: Any, seeds: Any
    ) -> Any:
        (rates,) = numbers
        momentum, decay = (np.array(values, dtype) for values in (momenta, decays))
        down = op.scale(-1, rates)
        builder = rates.recorder
        start = len(builder.instructions)
        lost = losses(parameters, images, labels, seeds)
        # A member's loss depends only on its own parameters, so one backward pass serves all.
        # Without momentum it starts from minus the rates, and its results are the updates.
        arriving = np.ones(members, dtype) if moving else down
        found = pull_back(builder, {lost: builder.own(arriving)}, [*parameters.values()], start)
        gradients = dict(zip(parameters, found, strict=True))
        new_parameters: dict[str, Any] = {}
        new_velocities: dict[str, Any] = {}
        for path, parameter in parameters.items():
            if moving:
                new_parameters[path], new_velocities[path] = op.sgd(
                    parameter, gradients[path], velocities[path], broadcastable(rates, parameter),
                    broadcastable(momentum, parameter), broadcastable(decay, parameter),
                )  # fmt: skip
                continue
            if decaying:
                stays = op.add(1, op.hadamard(down, decay))
                parameter = op.hadamard(broadcastable(stays, parameter), parameter)
            new_parameters[path] = op.add(parameter, gradients[path])
        return lost, new_parameters, new_velocities

    program = trace(
        step,
        each,
        each if moving else {},
        Spec((members * batch, *network.inputs), dtype),
        Spec((members, batch), "int64"),
        (Spec((members,), dtype),),
        (Spec((), "int64"),) * (network.seeds() * members),
    )
    return remove_dead(remove_common(program))


class PopulationStep:
    """Compiled steps of a population, which update its parameters (and velocities) in place.

    If the device has a loop for one such network, each core trains its members one after the other,
    each for many steps, so that the weights stay in its cache. Otherwise all members are one
    program.
    """

    def __init__(
        self,
        network: Sequential,
        batch: int,
        device: Device,
        momenta: Sequence[float],
        decays: Sequence[float],
        dtype: Any = "float32",
    ) -> None:
        self._network, self._batch, self._device = network, batch, device
        self._momenta, self._decays, self._dtype = momenta, decays, np.dtype(dtype)
        self._seeds = network.seeds()
        separate = device.backend.trains_members_separately and not self._seeds
        one = Device(str(device), 1, device.precision)
        self._loop: Any = training_loop(network, one, dtype) if separate else None

    @property
    def runs_members_separately(self) -> bool:
        """Whether members run one by one, so that each call should take many steps."""
        return self._loop is not None

    @cached_property
    def executable(self) -> Executable:
        """The step as one compiled program."""
        program = population_program(
            self._network, self._batch, self._momenta, self._decays, self._dtype
        )
        count = len(program.outputs) - 1
        return program.compile(self._device, updates={i + 1: i for i in range(count)})

    @cached_property
    def _many(self) -> Any:
        seeds = self._seeds * len(self._momenta)
        return self._device.backend.step_runner(self.executable, seeds)

    def run(
        self,
        parameters: Arrays,
        velocities: Arrays,
        images: Any,
        labels: Any,
        order: Any,
        rates: Sequence[float],
        seeds: Sequence[int] = (),
        first: int = 0,
    ) -> Any:
        """Take several steps; return the losses (steps, members).

        `order` (steps, members, batch) has the indices of the images. `seeds` are those of the
        members, for dropout. `first` is the number of the first step.
        """
        backend, members = self._device.backend, len(self._momenta)
        each = {
            path: spec.like((members, *spec.shape))
            for path, spec in parameter_specs(self._network, self._dtype).items()
        }
        parameters = arguments.checked_arrays("parameter", each, parameters, backend)
        speeds = velocities if any(self._momenta) else {}  # members with momentum may have left
        velocities = arguments.checked_arrays("velocity", each if speeds else {}, speeds, backend)
        wanted = Spec((self._batch, *self._network.inputs), self._dtype)
        targets = Spec((self._batch,), "int64")
        arguments.check_data(images, labels, wanted, targets, self._network.classes, backend)
        order = arguments.checked_order(order, (members, self._batch), len(images))
        moving = (*parameters.values(), *velocities.values())
        arguments.check_disjoint(moving, (images, labels), backend)
        if self._loop is not None:
            return self._one_by_one(parameters, velocities, images, labels, order, rates)
        numbers = np.array(
            [
                dropout_seeds(seed, first + row, self._seeds)
                for row in range(len(order) if self._seeds else 0)
                for seed in seeds
            ],
            np.int64,
        ).reshape(len(order), -1 if self._seeds else 0)
        rate = np.array(rates, self._dtype)
        flat = order.reshape(len(order), -1)
        if self._many is not None:
            every = np.broadcast_to(rate, (len(order), 1, members))
            return self._many(parameters, velocities, images, labels, flat, every, numbers)
        losses = np.empty(order.shape[:2])
        for row, chosen in enumerate(flat):
            drawn = tuple(np.asarray(number) for number in numbers[row])
            picked = labels[chosen].reshape(order.shape[1:])
            found, _, _ = self.executable(
                parameters, velocities, images[chosen], picked, (rate,), drawn
            )
            losses[row] = found
        return losses

    def _one_by_one(
        self, parameters: Arrays, velocities: Arrays, images: np.ndarray, labels: np.ndarray,
        order: np.ndarray, rates: Sequence[float],
    ) -> np.ndarray:  # fmt: skip
        losses = np.empty(order.shape[:2])

        def train(part: int, start: int, stop: int) -> None:
            for member in range(start, stop):
                moving = velocities if self._momenta[member] else {}
                losses[:, member] = self._loop(
                    [array[member, ...] for array in parameters.values()],
                    [array[member, ...] for array in moving.values()],
                    images, labels, np.ascontiguousarray(order[:, member]), rates[member],
                    self._momenta[member], self._decays[member],
                )  # fmt: skip

        with self._device:
            self._device.backend.split(train, order.shape[1])
        return losses
