"""Delays tasks that nobody waits for to levels in which blocks are idle."""

from functools import cache

from pareo.backends.cuda.grid.joined import copied
from pareo.backends.cuda.grid.plan import Plan, Task, awaited, levels
from pareo.backends.cuda.grid.sharing import shared
from pareo.backends.cuda.grid.source import Source

ROUNDS = 3  # over all tasks
FAR = 8  # levels that a task is delayed at once, at most
WORTH = 20  # cycles that a delay must save


def delayed(source: Source) -> Plan | None:
    """The plan of a kernel in which some tasks run later; None if that saves nothing."""
    plan = copied(source.plan)
    numbers = {id(task): number for number, task in enumerate(plan.tasks)}
    here = levels(plan)
    options = {
        numbers[id(task)]: ways
        for tasks, found in zip(here, source.tasks, strict=True)
        for task, ways in zip(tasks, found, strict=True)
    }
    after = _waiting(plan)

    @cache
    def cycles(tasks: frozenset[int]) -> float:
        return shared([options[one] for one in sorted(tasks)], source.machine.blocks).cycles

    at = [frozenset(numbers[id(task)] for task in tasks) for tasks in here]
    moved = 0
    for _ in range(ROUNDS):
        before = moved
        for number in sorted(options, reverse=True):
            task, one = plan.tasks[number], frozenset([number])
            level = task.level - 1
            saved = cycles(at[level]) - cycles(at[level] - one)
            if saved < WORTH or at[level] == one:
                continue
            last = min((other.level for other in after[id(task)]), default=len(at) + 1) - 2
            costs = {
                place: cycles(at[place] | one) - cycles(at[place])
                for place in range(level + 1, min(last, level + FAR) + 1)
            }
            place = min(costs, key=lambda place: costs[place], default=level)
            if place != level and costs[place] + WORTH < saved:
                at[level], at[place] = at[level] - one, at[place] | one
                task.level, moved = place + 1, moved + 1
        if moved == before:
            break
    for task in plan.tasks:
        task.level = task.host.level if task.host else task.level
    return plan if moved else None


def _waiting(plan: Plan) -> dict[int, list[Task]]:
    """The tasks that wait for a task, or for one that it computes, by its id."""
    found: dict[int, list[Task]] = {id(task): [] for task in plan.tasks}
    before = awaited(plan)
    for task in plan.tasks:
        own = task.host or task
        for one in before[id(task)]:
            other = one.host or one
            if other is not own:
                found[id(other)].append(own)
    return found
