"""The loss of a task in a framework: what its program does, by the framework's own functions."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pareo.lab.contestants.task import Array, Task
from pareo.program import Program, remove_common, remove_dead, trace
from pareo.spec import Spec
from pareo.training.losses import BinaryCrossEntropy, CrossEntropy
from pareo.training.own_loss import name_of

Operators = Mapping[str, Callable[..., Any]]
# The modules of frameworks with functions for pareo's operators; others know the cross-entropy.
TABLES = {
    name: f"pareo.lab.contestants.{name}_operators" for name in ("torch", "jax", "tensorflow")
}
# What is written alike in every framework.
COMMON: Operators = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "hadamard": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "scale": lambda alpha, a: alpha * a,
    "dot": lambda a, b: a @ b,
    "add_bias": lambda a, b: a + (b[:, None, None] if len(a.shape) == 4 else b),
    "part": lambda a, axis, between: a[(slice(None),) * axis + (slice(*between),)],
}


def refusal(task: Task, framework: str) -> str:
    """Why a framework cannot train with the task's loss; empty where it can.

    >>> from pareo import nn
    >>> refusal(Task(nn.Sequential([nn.Dense(3)], (4,)), batch=2), "tinygrad")
    ''
    """
    if task.loss == CrossEntropy():
        return ""
    if framework not in TABLES:
        return f"its adapter knows the cross-entropy alone, not the loss {name_of(task.loss)}"
    known = import_module(TABLES[framework]).OPERATORS
    if _whole(task) in known:
        return ""
    unknown = sorted({one.name for one in program_of(task).instructions} - known.keys())
    return f"it has no {', '.join(unknown)} for the loss {name_of(task.loss)}" if unknown else ""


def program_of(task: Task) -> Program:
    """What the task's loss computes from the outputs and the labels of a batch."""
    classes = task.network.classes
    outputs = Spec((task.batch, classes), "float32")
    traced = trace(task.loss, outputs, task.loss.targets(task.batch, classes))
    return remove_dead(remove_common(traced))


def loss_in(
    task: Task, operators: Operators, constant: Callable[[Array], Any]
) -> Callable[[Any, Any], Any]:
    """The task's loss as a function of a framework's outputs and labels.

    operators: its functions, by pareo's names. constant: makes one of its arrays.
    """
    if whole := operators.get(_whole(task)):
        return whole
    program = program_of(task)
    constants = {
        number: constant(array) if array.ndim else array.item()
        for number, array in program.constants.items()
    }
    # Plain tuples, which torch.compile follows.
    calls = [
        (operators[one.name], one.inputs, one.outputs, dict(one.attributes))
        for one in program.instructions
    ]
    first, second = program.inputs
    (last,) = program.outputs

    def loss(outputs: Any, labels: Any) -> Any:
        values = {**constants, first: outputs, second: labels}
        for function, inputs, results, attributes in calls:
            made = function(*[values[number] for number in inputs], **attributes)
            several = made if len(results) > 1 else [made]
            for number, value in zip(results, several, strict=True):
                values[number] = value
        return values[last]

    return loss


def _whole(task: Task) -> str:
    """The name of a loss for which frameworks have one function, beside those with an operator."""
    return task.loss.name if task.loss == BinaryCrossEntropy() else ""


def over(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction that leaves an array without axes to reduce as it is."""
    return lambda a, axis, keepdims: reduce(a, axis, keepdims) if axis else a
