"""The judge: one process with all that float64 knows of a task."""

from collections.abc import Callable
from typing import Any

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate import audit


def judging(exact: Callable[..., Callable[..., Any]], task: Task, *details: Any) -> Any:
    """Answers "audit" with the losses that an audit expects, all else as `exact(task, *details)`.

    `Worker(judging, parity.reference, task, precision)` is the process.
    """
    gate, losses = exact(task, *details), audit.reference(task)
    return lambda *asked: losses(asked[1]) if asked[0] == "audit" else gate(*asked)
