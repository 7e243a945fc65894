"""The same training in all contestants, compared with each other where float64 takes too long.

The median of all contestants stands for the right end. How far a right one may be from it is
measured by the contestants themselves: each trains again from weights that are off by what the
first gate allows in one step, which shows how an error grows; the errors of n steps, in random
directions, add up to sqrt(n) times that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pareo.lab.experiment.gate.course import tail
from pareo.lab.experiment.gate.parity import TINY, stored

LEAST = 3  # contestants: of two that differ none is right by majority
TELLING = 0.5  # of a move: a parameter whose bound is wider tells nothing
OFF = 0.5  # of what losses have gained: the least that a loss must be off to be wrong

Ended = tuple[list[float], dict[str, Any]]  # the losses of all steps, and the last parameters


def apart(parameters: Mapping[str, Any], errors: Mapping[str, float]) -> dict[str, Any]:
    """Parameters that are off by these distances, in random directions, always the same.

    >>> off = apart({"w": np.zeros((3, 4), np.float32)}, {"w": 2.0})["w"]
    >>> round(float(np.linalg.norm(off)), 5)
    2.0
    >>> type(apart({"b": np.zeros((), np.float32)}, {"b": 1.0})["b"])
    <class 'numpy.ndarray'>
    """
    drawn = np.random.default_rng(0)
    found = {}
    for path, a in parameters.items():
        noise = drawn.standard_normal(a.shape)
        far = errors[path] / max(float(np.linalg.norm(noise)), TINY)
        found[path] = np.asarray(a + far * noise, a.dtype)  # of no dimension, too
    return found


def refusals(
    start: Mapping[str, Any], first: Mapping[str, Ended], second: Mapping[str, Ended]
) -> dict[str, str]:
    """Why contestants are refused, by name.

    first: the trainings of all, from `start`. second: the same from weights that are `apart`.
    """
    if len(first) < LEAST:
        return {}
    steps = len(next(iter(first.values()))[0])
    found: dict[str, str] = {}
    for path, begun in start.items():
        middle = np.median([ended[path] for _, ended in first.values()], axis=0)
        grown = np.median([_far(first[name][1], second[name][1], path) for name in second])
        allowed = float(grown) * steps**0.5 + stored(middle)
        length = float(np.linalg.norm(middle - begun))
        if allowed > TELLING * length:
            continue
        for name, (_, ended) in first.items():
            off = float(np.linalg.norm(ended[path] - middle))
            if not off <= allowed:
                found.setdefault(
                    name,
                    f"after {steps} steps from the first weights, {path} is {off / length:.1e} of "
                    f"its move from the other contestants', {allowed / length:.0e} allowed",
                )
    return found or _by_losses(first, second)


def _by_losses(first: Mapping[str, Ended], second: Mapping[str, Ended]) -> dict[str, str]:
    ends = {name: tail(losses) for name, (losses, _) in first.items()}
    middle = float(np.median(list(ends.values())))
    grown = float(np.median([abs(tail(second[name][0]) - ends[name]) for name in second]))
    steps = len(next(iter(first.values()))[0])
    gained = float(np.median([_gained(losses) for losses, _ in first.values()]))
    allowed = max(grown * steps**0.5, OFF * gained)
    return {
        name: f"after {steps} steps its loss is {end:.3g}, that of the other contestants "
        f"{middle:.3g}"
        for name, end in ends.items()
        if not abs(end - middle) <= allowed
    }


def _gained(losses: Sequence[float]) -> float:
    return abs(tail(losses) - float(np.mean(losses[: max(1, len(losses) // 4)])))


def _far(some: Mapping[str, Any], others: Mapping[str, Any], path: str) -> float:
    return float(np.linalg.norm(some[path] - others[path]))
