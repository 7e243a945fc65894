"""Whether a contestant's first steps are right: each is compared with float64's."""

from typing import Any

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate.parity import Exact, by_chance, parity
from pareo.lab.experiment.runner import GATE
from pareo.lab.experiment.worker import PATIENCE, Failed, Worker

ATTEMPTS = 3  # at GATE exact steps


def agreement(
    task: Task, worker: Worker, judge: Worker, patience: float = PATIENCE
) -> tuple[str, dict[str, float]]:
    """What differs in the first steps, which the worker was asked for, and how exact they were.

    GATE steps must be exact. A step may be off by chance: rounding fell on the other side of a kink
    where it did not in float64. Then more steps follow, from where it stands, until as many are
    exact: kinks lie elsewhere then, and a gradient that is wrong is wrong in every step.
    """
    error: dict[str, float] = {"steps": 0}

    def exact(step: int, parameters: dict[str, Any]) -> Any:
        try:
            found = judge.ask(step, parameters)
            return Exact(**found) if isinstance(found, dict) else found
        except Failed as failure:  # which is not the contestant's
            raise Failed(f"no reference to agree with: {failure}") from None

    refusals: list[str] = []
    before = task.gate_parameters()
    steps = worker.get(patience)
    for attempt in range(ATTEMPTS):
        if attempt:
            steps = worker.ask("agree", patience=patience)
        for loss, after in steps:
            number = int(error["steps"])
            error["steps"] += 1
            found: dict[str, float] = {}
            differs = parity(task, [(loss, after)], exact, found, number, before)
            for name, value in found.items():
                error[name] = max(error.get(name, 0.0), value)
            before = after
            if differs and not by_chance(found):
                return differs, error
            refusals += [differs] if differs else []
        if error["steps"] - len(refusals) >= GATE:
            return "", error
    return f"{refusals[0]}; {len(refusals)} of {error['steps']:g} steps are not exact", error
