"""What the PyTorch contestants train: pareo's layers in PyTorch, or the user's own module."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from pareo.lab.contestants import own_layers, torch_operators
from pareo.lab.contestants.losses import loss_in
from pareo.lab.contestants.own_layers import Functions
from pareo.lab.contestants.programs import Operators
from pareo.lab.contestants.task import Array, Task
from pareo.nn.layers import Layer
from pareo.nn.torch_export import layers
from pareo.nn.torch_import.chance import draws, settle, without_chance


class Model(Protocol):
    """A network in PyTorch, at the first weights of a task.

    leaves: its parameters and running statistics, by pareo's paths.
    loss: that of the leaves, images and labels.
    words: what else a reader should know of it.
    """

    leaves: dict[str, Any]
    loss: Callable[..., Any]
    words: str

    def ours(self, path: str, array: Array) -> Array:
        """A leaf's array in pareo's layout."""

    def theirs(self, path: str, array: Array) -> Array:
        """A parameter in the leaf's layout."""


def model_of(task: Task, place: str, last: bool) -> Model:
    """The module that the task's network was imported from; else pareo's layers in PyTorch."""
    if task.original is None:
        return OfLayers(task, place, last)
    return OfModule(task, place, last)


def mean_loss(task: Task, place: str) -> Callable[[Any, Any], Any]:
    """The task's loss, of outputs and labels."""
    loss = loss_in(*_how(task, place))
    return lambda outputs, labels: loss(outputs.float(), labels)


def _how(task: Task, place: str) -> tuple[Task, Operators, Callable[[Array], Any]]:
    operators = torch_operators.load()
    return task, operators, lambda array: torch_operators.constant(array, place)


def _applied(own: Functions, this: Layer, parameters: Mapping[str, Any], x: Any) -> Any:
    """A layer of the user's own, or one of pareo's."""
    function = own.get((this, tuple(x.shape[1:])))
    return function(parameters, x) if function else layers.layer(this, parameters, x)


class OfLayers:
    """pareo's layers, computed by PyTorch's functions."""

    words = ""

    def __init__(self, task: Task, place: str, last: bool) -> None:
        torch = layers.load()
        own = own_layers.functions_in(*_how(task, place))
        apply = partial(_applied, own) if own else None
        self.leaves, self.loss = {}, layers.loss_of(task.network, mean_loss(task, place), apply)
        for path, array in task.parameters().items():
            leaf = torch.from_numpy(array).to(place)
            wide = last and leaf.ndim == 4
            layout = torch.channels_last if wide else torch.contiguous_format
            self.leaves[path] = leaf.contiguous(memory_format=layout)

    def ours(self, path: str, array: Array) -> Array:
        """The array itself."""
        return array

    def theirs(self, path: str, array: Array) -> Array:
        """The array itself."""
        return array


class OfModule:
    """The user's own module in training, without dropout."""

    def __init__(self, task: Task, place: str, last: bool) -> None:
        torch = import_module("torch")
        assert task.original is not None
        self._names, start = task.original.names, task.parameters()
        self._shapes = {path: a.shape for path, a in start.items()}
        module = task.original.load().to("cpu").float().train()
        settle(module)
        images = torch.zeros((2, *task.network.inputs))
        drawing = draws(module, images)
        self.words = ", the module itself" + (", functional dropout patched out" if drawing else "")
        module = module.to(place, memory_format=torch.channels_last) if last else module.to(place)
        inside = {**dict(module.named_buffers()), **dict(module.named_parameters())}
        self.leaves = {path: inside[name.name] for path, name in self._names.items()}
        with torch.no_grad():
            for path, leaf in self.leaves.items():
                leaf.copy_(torch.from_numpy(self.theirs(path, start[path])))
        of_outputs = mean_loss(task, place)

        def loss(leaves: dict[str, Any], x: Any, labels: Any) -> Any:
            with without_chance(torch) if drawing else nullcontext():
                return of_outputs(module(x), labels)

        self.loss = loss

    def ours(self, path: str, array: Array) -> Array:
        """The array in the parameter's shape."""
        return self._names[path].from_torch(array, self._shapes[path])

    def theirs(self, path: str, array: Array) -> Array:
        """The array in the shape that the module has it in."""
        return np.ascontiguousarray(self._names[path].to_torch(array))
