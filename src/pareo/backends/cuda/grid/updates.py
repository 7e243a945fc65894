"""A whole training step as tasks: the updates of parameters belong to those of their gradients.

A parameter is written over in place, so its update runs in a later level than every other task that
reads it. A gradient that only an update reads is never stored.
"""

from collections.abc import Iterator

from pareo.backends.cuda.grid.plan import (
    SUMS,
    Plan,
    Task,
    Unsupported,
    is_first,
    roots,
    set_levels,
    stored,
)
from pareo.backends.cuda.grid.steps import UPDATE
from pareo.backends.cuda.images.rows import ELEMENTWISE
from pareo.backends.cuda.images.updates import update_of
from pareo.program.ir import Instruction


def _replaced(plan: Plan) -> dict[int, int]:
    """The results that replace arguments, by argument: a step has both in the same order.

    Raises:
        Unsupported: one is no value that the tasks make.
    """
    program, found = plan.program, dict[int, int]()
    pairs = zip(program.outputs[1:], program.inputs[: len(program.outputs) - 1], strict=True)
    for result, argument in pairs:
        if result != argument:
            if plan.root(result) != result or result in (*program.inputs, *found.values()):
                raise Unsupported("a parameter that becomes a view of another value")
            found[argument] = result
    return found


def with_updates(plan: Plan) -> Plan:
    """The plan of whole steps.

    Raises:
        Unsupported: an update, or what it reads, is not known.
    """
    tasks = [Task(task.one, task.level, [*task.chain]) for task in plan.tasks]
    whole = Plan(plan.program, plan.specs, tasks, [], plan.aliases, plan.transposed)
    makers = {n: task for task in tasks for n in task.results}
    for update in _updates(plan):
        gradient = plan.root(update.inputs[0])
        host = makers.get(gradient)
        if host is None or _others_read(whole, host, update):
            tasks.append(Task(update, 0))
        elif is_first(host, gradient):
            host.chain.append(update)
        elif gradient in host.ended:
            host.moves.append(update)
        else:
            tasks.append(Task(update, 0))
    whole.over = _replaced(plan)
    set_levels(whole)
    whole.stored = stored(whole)
    return whole


def _others_read(plan: Plan, host: Task, update: Instruction) -> bool:
    """Whether blocks that compute a gradient read elements that another one of them replaces."""
    replaced = {plan.root(n) for n in update.inputs[1 : 1 + len(update.outputs)]}
    own = host.one.name in SUMS | ELEMENTWISE  # each element, or channel, is that of one block
    return not own and not replaced.isdisjoint(roots(plan, host.one))


def _updates(plan: Plan) -> Iterator[Instruction]:
    """The updates of parameters; their operands are a gradient, the parameter and its slots."""
    program = plan.program
    made = {n: one for one in program.instructions for n in one.outputs}
    known = {*program.inputs, *program.constants}
    for one in plan.after:
        found = update_of(program, made, one)
        if found is None:  # the scaled gradient that the next instruction subtracts
            continue
        (rule, numbers), (parameter, gradient, *slots) = found
        if gradient in plan.transposed or not known.issuperset(numbers):
            raise Unsupported("an update by what another instruction makes")
        how = {"rule": rule, "numbers": numbers}
        inputs = gradient, parameter, *slots
        yield Instruction(UPDATE, inputs, one.outputs, how, one.flops, one.bytes)
