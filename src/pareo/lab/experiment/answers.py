"""The border: what comes from a contestant's process is checked before anything uses it.

An answer must fit the type that the asked method of its `Runner` declares. What does not fit
becomes a `Failed`, hence the note of the contestant's own entry, and the others go on.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, get_type_hints

import msgspec
import numpy as np

from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment.bounds import Natural
from pareo.lab.experiment.results import number, sentence
from pareo.lab.experiment.worker import PATIENCE, Failed, Worker

LONGEST = 300  # characters of a text
FACTS: dict[str, Any] = {  # that a reader asks for; an adapter may report more
    "precision": str | None,
    "layout": str | None,
    "mode": str | None,
    "version": str | None,
    "first_layer_data_gradient": bool | None,
    "threads": Natural | None,
    "peak_memory_bytes": Natural | None,
}


class Entrant(Worker):
    """A contestant's process, asked by the names of a `Runner`'s methods; answers are checked."""

    def __init__(
        self,
        runner: Callable[..., Any],
        contestant: Contestant,
        task: Task,
        threads: int | None = None,
        memory: int | None = None,
    ) -> None:
        super().__init__(runner, contestant, task, threads=threads, memory=memory)
        self._runner, self._task, self._question = runner, task, ""

    def put(self, *question: Any) -> None:
        """Ask, and let it work on the answer, which `get` returns."""
        self._question = str(question[0])
        super().put(*question)

    def get(self, patience: float = PATIENCE) -> Any:
        """The answer to what was put, checked; Failed with the reason where there is none."""
        answer = super().get(patience)
        if self._question == "agree":
            return steps(answer, self._task)
        if self._question == "parameters":
            return parameters(answer, self._task)
        if self._question in ("replay", "seed"):
            return training(answer, self._task)
        if self._question == "blocks":
            taken = answer if isinstance(answer, list) else [answer]
            return [parameters(one, self._task) for one in taken]
        if self._question == "ledger":
            return ledger(answer)
        return fitting(answer, _declared(self._runner, self._question), self._question)


class Wrong(Failed):
    """An answer that does not fit: what is wrong with it, in a sentence."""


def fitting(answer: Any, declared: Any, name: str) -> Any:
    """The answer to a question of this name, as the declared type.

    >>> fitting(np.float32(0.5), float, "first_call")
    0.5
    >>> fitting("soon", float, "first_call")
    Traceback (most recent call last):
    pareo.lab.experiment.answers.Wrong: first_call(): expected a number; got 'soon'
    """
    try:
        return msgspec.convert(msgspec.to_builtins(answer, enc_hook=number), declared)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Wrong(f"{name}(): {sentence(str(error), answer)}") from None


def steps(answer: Any, task: Task) -> list[tuple[float, dict[str, Any]]]:
    """The steps that must agree: each one's loss, and the parameters after it."""
    pairs = isinstance(answer, list) and all(isinstance(one, tuple) for one in answer)
    if not pairs or any(len(one) != 2 for one in answer):
        raise Wrong("agree(): expected a list of losses with parameters")
    return [(fitting(loss, float, "run"), parameters(after, task)) for loss, after in answer]


def training(answer: Any, task: Task) -> tuple[list[float], dict[str, Any]]:
    """A training of several steps: the losses of all, and the parameters after the last."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise Wrong("replay(): expected losses and parameters")
    return fitting(answer[0], list[float], "replay"), parameters(answer[1], task)


def parameters(answer: Any, task: Task) -> dict[str, Any]:
    """All parameters of the task's network, each an array of its shape, and nothing else."""
    if not isinstance(answer, dict):
        raise Wrong(f"parameters() is a {type(answer).__name__}, not a dict")
    known = task.network.parameters(task.network.inputs)
    for path, parameter in known.items():
        if path not in answer:
            raise Wrong(f"parameters() lacks {path}")
        array = answer[path]
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            kind = type(array).__name__
            raise Wrong(f"parameters() has {path} as a {kind}, not as an array of floats")
        if array.shape != tuple(parameter.shape):
            raise Wrong(f"{path} has the shape {array.shape}, not {tuple(parameter.shape)}")
    return {path: answer[path] for path in known}


def ledger(answer: Any) -> dict[str, Any]:
    """What a reader may ask, in values that JSON has."""
    if not isinstance(answer, dict):
        raise Wrong(f"facts(): expected a dict; got {answer!r:.40}")
    found = {_text(name): plain(value, f"{name} in facts()") for name, value in answer.items()}
    for name, declared in FACTS.items():
        found[name] = fitting(found.get(name), declared, f"{name} in facts")
    return {**found, "settings_tried": []}


def plain(value: Any, name: str, depth: int = 8) -> Any:
    """A value as JSON has it.

    >>> plain({"a": (1, np.float32(0.5), float("nan"))}, "facts()")
    {'a': [1, 0.5, None]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, np.generic):
        return plain(value.item(), name, depth)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, list | tuple) and depth:
        return [plain(one, name, depth - 1) for one in value]
    if isinstance(value, dict) and depth:
        return {_text(key): plain(one, name, depth - 1) for key, one in value.items()}
    raise Wrong(f"{name} is a {type(value).__name__}, which JSON does not have")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"facts(): expected names as text; got {value!r:.40}")
    return str(value)[:LONGEST].encode("utf-8", "replace").decode()


@cache
def _declared(runner: Any, question: str) -> Any:
    """What a method of a runner says that it returns."""
    return get_type_hints(getattr(runner, question), include_extras=True)["return"]
