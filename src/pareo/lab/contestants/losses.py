"""The loss of a task in a framework: what its program does, by the framework's own functions."""

from collections.abc import Callable
from typing import Any

from pareo.lab.contestants.programs import TABLES, Operators, function_in, unknown_to
from pareo.lab.contestants.task import Array, Task
from pareo.program import Program, remove_common, remove_dead, trace
from pareo.spec import Spec
from pareo.training.losses import BinaryCrossEntropy, CrossEntropy
from pareo.training.own_loss import name_of


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
    if _whole(task):
        return ""
    unknown = unknown_to(framework, program_of(task))
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
    return function_in(program_of(task), operators, constant)


def _whole(task: Task) -> str:
    """The name of a loss for which frameworks have one function, beside those with an operator."""
    return task.loss.name if task.loss == BinaryCrossEntropy() else ""
