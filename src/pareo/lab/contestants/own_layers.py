"""Layers of the user's own in a framework: what their programs do, by the framework's functions."""

from collections.abc import Callable, Mapping
from typing import Any

from pareo.lab.contestants.programs import Operators, function_in, unknown_to
from pareo.lab.contestants.task import Array, Task
from pareo.nn.containers import Container
from pareo.nn.layers import Context, Layer, Shape
from pareo.program import Program, remove_common, remove_dead, trace
from pareo.spec import Spec

FRAMEWORKS = ("torch", "jax")  # whose adapters call the functions
# By a layer and the shape of one input: a function of its parameters, by name, and of the input.
Functions = Mapping[tuple[Layer, Shape], Callable[[Mapping[str, Any], Any], Any]]


def own_layers(task: Task) -> dict[tuple[Layer, Shape], str]:
    """The layers of the user's own, with the shapes of their inputs: the names of their classes.

    >>> from pareo.nn import networks
    >>> own_layers(Task(networks.papers_cnn(), batch=2))
    {}
    """
    return {
        (layer, shape): type(layer).__name__
        for _, layer, shape in task.network.walk(task.network.inputs)
        if not type(layer).__module__.startswith("pareo.")
    }


def refusal(task: Task, framework: str) -> str:
    """Why a framework cannot train the task's own layers; empty where it can."""
    for (layer, shape), name in own_layers(task).items():
        declared = layer.parameters(shape).values()
        drawn = layer.seeds() or not all(one.trained for one in declared)
        if framework not in FRAMEWORKS or isinstance(layer, Container) or drawn:
            return f"it has no {name}, a layer of your own"
        if unknown := unknown_to(framework, program_of(layer, shape, task.batch)):
            return f"it has no {', '.join(unknown)} for {name}, a layer of your own"
    return ""


def program_of(layer: Layer, shape: Shape, batch: int) -> Program:
    """What a layer computes in training, from its parameters and a batch."""
    declared = layer.parameters(shape)

    def applied(*given: Any) -> Any:
        own = dict(zip(declared, given, strict=False))
        return layer.apply(own, given[-1], Context(True, iter(())))

    specs = [Spec(one.shape, "float32") for one in declared.values()]
    traced = trace(applied, *specs, Spec((batch, *shape), "float32"))
    return remove_dead(remove_common(traced))


def functions_in(task: Task, operators: Operators, constant: Callable[[Array], Any]) -> Functions:
    """The task's own layers as functions of a framework's arrays."""
    return {
        (layer, shape): _function(layer, shape, task.batch, operators, constant)
        for layer, shape in own_layers(task)
    }


def _function(
    layer: Layer, shape: Shape, batch: int, operators: Operators, constant: Callable[[Array], Any]
) -> Callable[[Mapping[str, Any], Any], Any]:
    function = function_in(program_of(layer, shape, batch), operators, constant)
    names = list(layer.parameters(shape))

    def applied(parameters: Mapping[str, Any], x: Any) -> Any:
        return function(*[parameters[name] for name in names], x)

    return applied
