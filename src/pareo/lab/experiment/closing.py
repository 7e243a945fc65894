"""The gate at the end: contestants that were right in two steps, and are not in a hundred.

After the last round every contestant's parameters are compared with those of float64 after the same
steps, if that many are affordable; otherwise it trains STEPS again from the first weights, in calls
like its turns. Where float64 would take too long, contestants are compared with each other.
bfloat16 is judged by what it learns. docs/parity.md explains the bounds.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate import blocks, course, field, seeds
from pareo.lab.experiment.gate.course import FEWEST, LONGEST, STEPS, Course
from pareo.lab.experiment.gate.parity import Exact
from pareo.lab.experiment.running import E, Running
from pareo.lab.experiment.worker import Failed, Worker

SECONDS = 4.0  # that a training of the gate at the end may take
LOOKS = 3  # at most, each on other batches: a difference may be chance where there are kinks
# Of what a step that is left out changes: where rounding may lead further, the end says little.
TELLING = 0.5
OFF = 0.5  # of what losses have gained: the least that a loss must be off to be wrong

T = TypeVar("T")


def keep(running: Running[E]) -> None:
    """Keep the parameters after the last round, if float64 can repeat so many steps."""
    if STEPS <= running.steps <= min(LONGEST, course.affordable(running.task)):
        running.ended = running.ask("parameters", when="after the last round: ")


def close(running: Running[E], judge: Worker, precision: str) -> None:
    """Refuse a contestant whose training is wrong; nothing is done where that takes too long."""
    steps = steps_of(running)
    if steps < FEWEST:
        return
    try:
        if precision == "bfloat16":
            differs = _seeds(running, judge, steps)
        else:
            differs = _courses(running, judge, steps)
    except Failed as failure:
        running.fail(failure, "after the last round: ")
        return
    if running.ok:
        running.entry.parity = {**running.entry.parity, "end_steps": steps}
    if differs:
        running.refuse(differs)


def steps_of(running: Running[Any]) -> int:
    """How many steps are compared with float64: STEPS, or as many as are affordable."""
    return min(STEPS, course.affordable(running.task), in_time(running))


def in_time(running: Running[Any]) -> int:
    """How many steps a contestant takes in SECONDS."""
    each = running.entry.median / running.scale
    return int(min(SECONDS / max(each, 1e-9), 1e6))


def _courses(running: Running[E], judge: Worker, steps: int) -> str:
    """Why it is refused; empty where it is not."""
    error = float(running.entry.parity.get("parameter") or 0.0)
    chance = course.has_kinks(running.task)
    reason = ""
    for look in range(LOOKS):
        taken, first = _ended(running, steps, look)
        exact = _read(Course, _asked(judge, "course", first, len(taken[0]), error))
        differs, share, tells = compared(taken, exact, running.task)
        if not differs and tells:
            running.entry.parity = {**running.entry.parity, "end_share": share}
            return ""
        if differs and not chance:
            return differs
        count = steps // blocks.SIZE
        parts = running.worker.ask("blocks", first, count, blocks.SIZE, patience=running.patience)
        found = _asked(judge, "blocks", first, parts)
        if not found and not differs:
            return ""
        if found in ("", blocks.UNTOLD):
            found = differs
        if not found:
            return ""
        reason = reason or found
    return reason


def _ended(running: Running[E], steps: int, look: int) -> tuple[tuple[list[float], Any], int]:
    """Losses and parameters of a training, and the number of its first step.

    The first look is at the race itself, if it was long enough and float64 can repeat it. Losses of
    a race are not kept.
    """
    if not look and running.ended is not None:
        return ([float("nan")] * running.steps, running.ended), 0
    first = look * STEPS
    return running.worker.ask("replay", first, steps, patience=running.patience), first


def compared(
    taken: tuple[list[float], Mapping[str, Any]], exact: Course, task: Task
) -> tuple[str, float, bool]:
    """What differs at the end of a training, the largest share of a bound, and whether it tells.

    It tells if a step that is left out would be seen in at least one parameter.
    """
    losses, found = taken
    start, steps = task.parameters(), len(losses)
    differs, furthest, tells = "", 0.0, False
    for path, right in exact.parameters.items():
        allowed, length = exact.errors[path], float(np.linalg.norm(right - start[path]))
        tells = tells or allowed < TELLING * exact.left_out[path]
        if allowed > length:  # it says nothing
            continue
        off = float(np.linalg.norm(found[path] - right))
        share = off / allowed
        if not share <= max(furthest, 1.0):
            differs = (
                f"after {steps} steps from the first weights, {path} is {off / length:.1e} of its "
                f"move from float64's, {allowed / length:.0e} allowed"
            )
        furthest = float(np.maximum(furthest, share))
    return differs or _loss_differs(losses, exact), furthest, tells


def _loss_differs(losses: list[float], exact: Course) -> str:
    """Whether the last losses are wrong, whatever rounding makes of parameters."""
    if not losses or not np.isfinite(exact.losses).all() or np.isnan(losses).all():
        return ""
    right, found = course.tail(exact.losses), course.tail(losses)
    gained = max(abs(loss - exact.losses[0]) for loss in exact.losses)
    if abs(found - right) <= max(exact.loss_error, OFF * gained):
        return ""
    return f"after {len(losses)} steps its loss is {found:.4g}, not {right:.4g}"


def _seeds(running: Running[E], judge: Worker, steps: int) -> str:
    return seeds.refusal(_learned(running, judge, steps), _asked(judge, "seeds", steps))


def _learned(running: Running[E], judge: Worker, steps: int) -> list[seeds.Learned]:
    """What a contestant learns from each seed; the judge evaluates its parameters."""
    found = []
    for seed in seeds.SEEDS:
        losses, end = running.worker.ask("seed", seed, steps, patience=running.patience)
        found.append([course.tail(losses), *_asked(judge, "learned", end)])
    return found


def close_field(
    everyone: list[Running[E]], judge: Worker, precision: str, say: Callable[[str], None]
) -> None:
    """Compare contestants of one task with each other, where float64 would take too long."""
    standing = [running for running in everyone if running.ok]
    if len(standing) < field.LEAST or course.affordable(standing[0].task) >= STEPS:
        return
    steps = min([STEPS, *map(in_time, standing)])
    if steps < FEWEST:
        return
    start = standing[0].task.parameters()
    gate = standing[0].task.gate_parameters()
    try:
        errors = _read(Exact, _asked(judge, 0, gate)).errors
    except Failed:  # the first gate has asked for the same: nobody is to blame
        return
    first, second, seeded = {}, {}, {}
    for running in standing:
        name = running.entry.contestant
        say(f"{name}: trains {steps} steps again, to be compared with the others")
        if precision == "bfloat16":
            try:
                seeded[name] = _learned(running, judge, steps)
            except Failed as failure:
                running.fail(failure, "after the last round: ")
            continue
        first[name] = running.ask("replay", 0, steps)
        if running.ok:
            second[name] = running.ask("replay", 0, steps, field.apart(start, errors))
    by_name = {running.entry.contestant: running for running in standing if running.ok}
    if precision == "bfloat16":
        middle = np.median([seeded[name] for name in by_name], axis=0).tolist() if by_name else []
        reasons = {name: seeds.refusal(seeded[name], middle) for name in by_name}
    else:
        reasons = field.refusals(
            start, {name: first[name] for name in by_name}, {name: second[name] for name in by_name}
        )
    for name, running in by_name.items():
        running.entry.parity = {**running.entry.parity, "field_steps": steps}
        if reasons.get(name):
            running.refuse(reasons[name])


def _read(kind: type[T], answer: Any) -> T:
    """An answer as its type: from another process it is a dict of the fields."""
    return kind(**answer) if isinstance(answer, dict) else answer


def _asked(judge: Worker, *question: Any) -> Any:
    """An answer of the judge; its failure is not the contestant's."""
    try:
        return judge.ask(*question)
    except Failed as failure:
        raise Failed(f"no reference to agree with: {failure}") from None
