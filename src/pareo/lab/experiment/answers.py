"""The border: whatever comes from a contestant's process is checked here, before anything uses it.

What is wrong becomes a `Failed`, hence the contestant's own row, and the others race on.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment.worker import PATIENCE, Failed, Worker
from pareo.lab.kernels.events import Profile

TEXT = ("precision", "layout", "mode", "version")  # of the ledger
NUMBERS = ("threads", "peak_memory_bytes")
LONGEST = 300  # characters of a text


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
        self._task, self._question = task, ""

    def put(self, *question: Any) -> None:
        """Ask, and let it work on the answer, which `get` gives."""
        self._question = str(question[0])
        super().put(*question)

    def get(self, patience: float = PATIENCE) -> Any:
        """The answer to what was put, checked; Failed with the reason where there is none."""
        answer = super().get(patience)
        if self._question == "agree":
            steps = [_several(step, 2, "a step") for step in _kind(answer, list, "its steps")]
            return [(_real(loss, "a loss"), parameters(after, self._task)) for loss, after in steps]
        if self._question == "parameters":
            return parameters(answer, self._task)
        return CHECKS[self._question](answer)


class Wrong(Failed):
    """An answer that is none: what is wrong with it, in a sentence."""


def parameters(answer: Any, task: Task) -> dict[str, Any]:
    """All parameters of the task's network, each an array of its shape, and nothing else."""
    found = _kind(answer, dict, "parameters()")
    known = task.network.parameters(task.network.inputs)
    for path, parameter in known.items():
        if path not in found:
            raise Wrong(f"parameters() lacks {path}")
        array = found[path]
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            raise Wrong(f"parameters() has {path} as {_shown(array)}, not as an array of floats")
        if array.shape != tuple(parameter.shape):
            raise Wrong(f"{path} has the shape {array.shape}, not {tuple(parameter.shape)}")
    return {path: found[path] for path in known}


def turn(answer: Any) -> dict[str, Any]:
    """What a turn of the contestant is, as `turns.Turn` has it."""
    found = _kind(answer, dict, "its turn")
    for name in ("steps", "opening"):
        _count(found.get(name), f"the {name} of its turn")
    for name in ("fixed", "share"):
        _or_none(_seconds, found.get(name), f"the {name} cost of its turn")
    return {**found, "apart": bool(found.get("apart"))}


def ran(answer: Any) -> tuple[float, float | None, float]:
    """A turn that was timed: seconds a step, seconds of the opening step, the mean loss."""
    seconds, opening, loss = _several(answer, 3, "a turn")
    if _seconds(seconds, "the time of a step") <= 0:
        raise Wrong(f"the time of a step is {seconds} s")
    return (
        float(seconds),
        _or_none(_seconds, opening, "the time of the opening step"),
        _real(loss, "the mean loss"),
    )


def ledger(answer: Any) -> dict[str, Any]:
    """What a reader may ask, in values that JSON has."""
    found = {_key(name): value for name, value in _kind(answer, dict, "facts()").items()}
    for name in TEXT:
        _or_none(_text, found.get(name), f"{name} in facts()")
    for name in NUMBERS:
        found[name] = _or_none(_seconds, found.get(name), f"{name} in facts()")
    if found["peak_memory_bytes"] is not None:
        found["peak_memory_bytes"] = int(found["peak_memory_bytes"])
    if found["threads"] is not None:
        found["threads"] = int(found["threads"])
    gradient = found.get("first_layer_data_gradient")
    if gradient is not None and not isinstance(gradient, bool | np.bool_):
        raise Wrong(f"first_layer_data_gradient in facts() is {_shown(gradient)}, not a bool")
    return {name: plain(value, f"{name} in facts()") for name, value in found.items()} | {
        "settings_tried": []
    }


def plain(value: Any, name: str, depth: int = 8) -> Any:
    """A value as JSON has it.

    >>> plain({"a": (1, np.float32(0.5), float("nan"))}, "facts()")
    {'a': [1, 0.5, None]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, name)
    if isinstance(value, np.generic):
        return plain(value.item(), name, depth)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, list | tuple) and depth:
        return [plain(one, name, depth - 1) for one in value]
    if isinstance(value, dict) and depth:
        return {_key(key): plain(one, name, depth - 1) for key, one in value.items()}
    raise Wrong(f"{name} is {_shown(value)}, which JSON does not have")


def audited(answer: Any) -> dict[str, Any]:
    """What became of the turns of an audit."""
    found = _kind(answer, dict, "the audit")
    losses = _kind(found.get("losses"), list, "the losses of the audit")
    return {"moved": bool(found.get("moved")), "losses": [_real(one, "a loss") for one in losses]}


def sizes(answer: Any) -> dict[str, int | None]:
    """Bytes by their names."""
    found = _kind(answer, dict, "its memory")
    return {_key(name): _bytes(size, f"{name} of its memory") for name, size in found.items()}


def judgement(answer: Any) -> tuple[str, dict[str, float]]:
    """What differs at the gate, and by how much."""
    differs, error = _several(answer, 2, "the gate")
    found = _kind(error, dict, "the gate's errors")
    return _text(differs, "the gate"), {_key(n): _real(e, "an error") for n, e in found.items()}


def profiles(answer: Any) -> list[Profile]:
    """What an instrument saw: something, in some time."""
    found = _kind(answer, list, "its profiles")
    for one in found:
        _kind(one, Profile, "a profile")
        if not _seconds(one.seconds, "the time of a profile") > 0:
            raise Wrong("the time of a profile is 0 s")
    if not found:
        raise Wrong("the instrument saw nothing")
    return list(found)


def _kind(value: Any, kind: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise Wrong(f"{name} is {_shown(value)}, not a {kind.__name__}")
    return value


def _several(value: Any, count: int, name: str) -> Any:
    if not isinstance(value, tuple | list) or len(value) != count:
        raise Wrong(f"{name} is {_shown(value)}, not {count} values")
    return value


def _real(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise Wrong(f"{name} is {_shown(value)}, not a number")
    return float(value)


def _seconds(value: Any, name: str) -> float:
    """Seconds, or whatever is finite and not negative."""
    if not (math.isfinite(_real(value, name)) and value >= 0):
        raise Wrong(f"{name} is {value}")
    return float(value)


def _count(value: Any, name: str) -> int:
    return int(_seconds(value, name))


def _bytes(value: Any, name: str) -> int | None:
    return None if value is None else int(_seconds(value, name))


def _or_none(check: Callable[[Any, str], Any], value: Any, name: str) -> Any:
    return None if value is None else check(value, name)


def _text(value: Any, name: str) -> str:
    return str(_kind(value, str, name))[:LONGEST].encode("utf-8", "replace").decode()


def _key(value: Any) -> str:
    return _text(value, "a name")


def _nothing(answer: Any) -> None:
    return None


def _shown(value: Any) -> str:
    """A value in an error, by its kind and its beginning.

    >>> _shown({1, 2}), _shown("two")
    ('a set', "'two'")
    """
    return repr(value)[:40] if isinstance(value, str | int | float) else f"a {type(value).__name__}"


# By the method of a Runner, or of one of its kind; "agree" and "parameters" need the task.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "audit": audited,
    "first_call": lambda answer: _seconds(answer, "the time of the first call"),
    "footprint": sizes,
    "gate_judgement": judgement,
    "gate_steps": _nothing,
    "ledger": ledger,
    "load": _nothing,
    "memory": lambda answer: _bytes(answer, "peak_bytes()"),
    "predicted": lambda answer: _bytes(answer, "its predicted memory"),
    "profile": profiles,
    "ready": turn,
    "restart": _nothing,
    "run": ran,
}
