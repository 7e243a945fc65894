"""The judge: one process with all that float64 knows of a task."""

from collections.abc import Callable
from typing import Any

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate import audit, blocks, course, seeds


def judging(exact: Callable[..., Callable[..., Any]], task: Task, *details: Any) -> Any:
    """Answers the questions of the gates: of the end by name, all else as `exact(task, *details)`.

    `Worker(judging, parity.reference, task, precision)` is the process.
    """
    gate = exact(task, *details)
    by_name: dict[str, Callable[..., Any]] = {
        "audit": audit.reference(task),
        "course": course.reference(task, *details[-1:]),
        "blocks": blocks.reference(task, *details[-1:]),
        "seeds": seeds.reference(task),
        "learned": seeds.evaluation(task),
    }

    def answer(question: Any, *asked: Any) -> Any:
        named = by_name.get(question) if isinstance(question, str) else None
        return named(*asked) if named else gate(question, *asked)

    return answer
