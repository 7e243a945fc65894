"""Tasks that other tasks compute: losses with their logits, updates with gradients of inputs."""

from dataclasses import replace

from pareo.backends.cuda.grid.dense import in_time, updated_with
from pareo.backends.cuda.grid.plan import LOSSES, Plan, Task, is_first, reads, set_levels, stored
from pareo.backends.cuda.grid.shapes import Product
from pareo.backends.cuda.grid.tiles import MOST_CLASSES, End, Machine, tiles_of


def joined(plan: Plan, machine: Machine) -> Plan:
    """The plan in which a block that has made the logits of some images computes their losses."""
    found = copied(plan)
    makers = {n: task for task in found.tasks for n in task.results}
    for task in found.tasks:
        if task.one.name in LOSSES:
            logits = plan.root(task.one.inputs[-2])
            host = makers.get(logits)
            others = reads(plan, task) - task.results - {logits}
            if (
                host
                and makers.keys().isdisjoint(others)
                and _has_rows(found, host, logits, machine)
            ):
                task.host = host
    if any(task.host for task in found.tasks):
        set_levels(found)
        found.stored = stored(found)
    return found


def paired(plan: Plan) -> Plan:
    """The plan in which gradients of few inputs, and updates by them, are computed together."""
    found = copied(plan)
    for task in found.tasks:
        update = updated_with(found, task)
        if update is None or inside(found, task):
            continue
        update.host = task
        set_levels(found)
        if not in_time(found, update):
            update.host = None
            set_levels(found)
    found.stored = stored(found)
    return found


def copied(plan: Plan) -> Plan:
    """The plan, with tasks whose hosts and levels can change."""
    new = {id(task): replace(task) for task in plan.tasks}
    for task in new.values():
        task.host = new[id(task.host)] if task.host else None
    return replace(plan, tasks=list(new.values()))


def inside(plan: Plan, host: Task) -> list[Task]:
    """The other tasks that a task computes."""
    return [task for task in plan.tasks if task.host is host]


def _has_rows(plan: Plan, host: Task, logits: int, machine: Machine) -> bool:
    """Whether a task makes whole rows of logits."""
    if host.one.name != "dot" or not is_first(host, logits):
        return False
    (m, k), (_, n) = (plan.shape(x) for x in host.one.inputs)
    a, b = (x in plan.transposed for x in host.one.inputs)
    lanes = b and not a  # whose rows are shared by warps
    shape = Product(1, m, n, k, "n")
    return not lanes and n <= MOST_CLASSES and bool(tiles_of(shape, machine, End(), rows=True))
