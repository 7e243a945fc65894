"""The instructions of a training step as tasks, and the levels in which they can run."""

from dataclasses import dataclass, field

import numpy as np

from pareo.backends.cuda.grid.steps import in_steps
from pareo.backends.cuda.images.elements import place
from pareo.backends.cuda.images.rows import ELEMENTWISE, POOLS
from pareo.backends.cuda.images.updates import update_of
from pareo.program.ir import Instruction, Program
from pareo.spec import Spec

PRODUCTS = {"dot", "conv", "conv_input_gradient", "conv_weight_gradient"}
PARTS = {"batch_moments", "batch_norm_of_parts", "batch_sums", "batch_norm_back_of_parts"}
NORMS = {"batch_norm", "batch_norm_gradient", "layer_norm", "layer_rows", "layer_sums"}
LOCAL = {"lrn", "lrn_gradient"}
TOTALS = {"sum", "part_sums", "mean", "add_parts"}
LOSSES = {"row_losses", "cross_entropy_gradient"}
MOVES = {"concat", "part", "part_gradient"}
TASKS = PRODUCTS | NORMS | LOCAL | PARTS | LOSSES | MOVES | POOLS | ELEMENTWISE | TOTALS
# Updates can follow from each of their results: no other block reads what is updated.
SUMS = {"layer_sums", "batch_norm_gradient"}


class Unsupported(Exception):
    """A program that cannot be computed this way, and why."""


@dataclass(eq=False)
class Task:
    """An instruction that starts from memory, and what follows from its results, one by one.

    chain: elementwise instructions on its first result, and updates by them.
    moves: updates by other results, or by the first one of `layer_sums`.
    host:  the task whose blocks compute this one right behind it, in the same level; if any.
    """

    one: Instruction
    level: int
    chain: list[Instruction] = field(default_factory=list)
    moves: list[Instruction] = field(default_factory=list)
    host: "Task | None" = None

    @property
    def every(self) -> list[Instruction]:
        """All of its instructions."""
        return [self.one, *self.chain, *self.moves]

    @property
    def results(self) -> set[int]:
        """What it makes."""
        return {n for one in self.every for n in one.outputs}

    @property
    def ended(self) -> set[int]:
        """The results that something can follow from without their being stored."""
        own = self.one.outputs if self.one.name in SUMS else self.one.outputs[:1]
        return {*own, *(n for one in self.chain for n in one.outputs)}


@dataclass
class Plan:
    """The tasks of a program, and what runs after them.

    specs:      those of the program, and of values that only tasks read.
    aliases:    values that are another one's memory, in another shape: of which value.
    transposed: matrices that are read as another one's columns: of which value.
    stored:     results that are written to memory.
    over:       arguments whose memory is that of a result, and which one.
    """

    program: Program
    specs: dict[int, Spec]
    tasks: list[Task] = field(default_factory=list)
    after: list[Instruction] = field(default_factory=list)
    aliases: dict[int, int] = field(default_factory=dict)
    transposed: dict[int, int] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)
    over: dict[int, int] = field(default_factory=dict)

    def root(self, number: int) -> int:
        """The value whose memory this one is."""
        while number in self.aliases:
            number = self.aliases[number]
        return number

    def shape(self, number: int) -> tuple[int, ...]:
        return self.specs[number].shape

    def size(self, number: int) -> int:
        return self.specs[number].size

    @property
    def results(self) -> list[int]:
        """What is read outside: by the instructions after it, or by the caller."""
        made = {n for task in self.tasks for n in task.results}
        wanted = {n for one in self.after for n in one.inputs} | set(self.program.outputs)
        return sorted(made & {self.root(n) for n in wanted})


def planned(program: Program) -> Plan:
    """The tasks of a training step in float32.

    Raises:
        Unsupported: an instruction is not known, or has shapes that are not.
    """
    if not all(spec.size for spec in program.specs.values()):
        raise Unsupported("empty arrays")
    inner, after = _without_updates(program)
    specs = dict(program.specs)
    plan = Plan(program, specs, after=after)
    inner = in_steps(inner, specs)
    makers: dict[int, Task] = {}  # by root
    for one in inner:
        if _is_view(plan, one):
            continue
        _check(plan, one)
        task = _host(plan, one, makers)
        if task is None:
            levels = [makers[n].level for n in roots(plan, one) if n in makers]
            task = Task(one, 1 + max(levels, default=0))
            plan.tasks.append(task)
        else:
            task.chain.append(one)
        makers.update((n, task) for n in one.outputs)
    plan.stored = stored(plan)
    return plan


def _without_updates(program: Program) -> tuple[list[Instruction], list[Instruction]]:
    """The instructions that are not updates of parameters, and those that are."""
    made = {n: one for one in program.instructions for n in one.outputs}
    read = {n for one in program.instructions for n in one.inputs}
    last = [one for one in program.instructions if read.isdisjoint(one.outputs)]
    updates = [one for one in last if update_of(program, made, one) is not None]
    scales = {id(made[one.inputs[1]]) for one in updates if one.name == "sub"}
    outside = scales | {id(one) for one in updates}
    inner = [one for one in program.instructions if id(one) not in outside]
    if any(id(made[n]) in scales for one in inner for n in one.inputs if n in made):
        raise Unsupported("a step that reads what it adds to parameters")
    return inner, [one for one in program.instructions if id(one) in outside]


def _is_view(plan: Plan, one: Instruction) -> bool:
    """Note a view, if it is one that needs no memory."""
    if one.name == "reshape":
        if one.inputs[0] in plan.transposed:
            raise Unsupported("a transposed matrix in another shape")
        plan.aliases[one.outputs[0]] = one.inputs[0]
        return True
    if one.name == "transpose":
        if one.attributes["axes"] != (1, 0) or one.inputs[0] in plan.transposed:
            raise Unsupported("a transposed array")
        plan.transposed[one.outputs[0]] = one.inputs[0]
        return True
    return False


def _check(plan: Plan, one: Instruction) -> None:
    specs = plan.specs
    if one.name not in TASKS:
        raise Unsupported(one.name)
    if one.name != "dot" and any(n in plan.transposed for n in one.inputs):
        raise Unsupported(f"{one.name} of a transposed matrix")
    for number in (*one.inputs, *one.outputs):
        integer = specs[number].dtype.kind in "iu"
        if specs[number].dtype != np.float32 and not (integer and one.name in LOSSES):
            raise Unsupported(f"{one.name} in {specs[number].dtype}")
        if specs[number].size >= 2**31 or not specs[number].size:
            raise Unsupported(f"{one.name} of {specs[number].size} elements")
    if one.name in LOSSES and specs[one.inputs[-1]].ndim != 1:
        raise Unsupported(f"{one.name} of stacks")
    if one.name == "dot" and any(specs[n].ndim != 2 for n in one.inputs):
        raise Unsupported("dot of other shapes")


def roots(plan: Plan, one: Instruction) -> list[int]:
    """The roots of what an instruction reads."""
    return [plan.root(plan.transposed.get(n, n)) for n in one.inputs]


def reads(plan: Plan, task: Task) -> set[int]:
    """The roots of what a task reads, its own results among them."""
    return {n for one in task.every for n in roots(plan, one)}


def _host(plan: Plan, one: Instruction, makers: dict[int, Task]) -> Task | None:
    """The task that can compute an elementwise instruction on its own result, element by element.

    All other operands must be in memory by then: made in an earlier level.
    """
    if one.name not in ELEMENTWISE or places(plan, one) is None:
        return None
    shape = plan.shape(one.outputs[0])
    aligned = {plan.root(n) for n in one.inputs if plan.shape(n) == shape}
    found = [makers[n] for n in aligned if n in makers and is_first(makers[n], n)]
    for task in sorted(found, key=lambda task: -task.level):
        others = [n for n in roots(plan, one) if n in makers and makers[n].level >= task.level]
        if all(makers[n] is task and n in aligned and is_first(task, n) for n in others):
            return task
    return None


def is_first(task: Task, number: int) -> bool:
    """Whether a chain can go on with a value: a task's first result, or what follows from it."""
    if number == task.one.outputs[0]:
        return task.one.name != "layer_sums"  # which does not end it by itself
    return any(number in one.outputs for one in task.chain)


def places(plan: Plan, one: Instruction) -> list[str] | None:
    """Where each operand has what belongs to element i of the result; None if some has not."""
    shape = plan.shape(one.outputs[0])
    found = []
    for which, operand in enumerate(one.inputs):
        dims = plan.shape(operand)
        if one.name == "add_bias" and which == 1:
            dims = (*dims, *(1,) * (len(shape) - 2))
        at = place((1,) * (len(shape) - len(dims)) + dims, shape)
        if at is None:
            return None
        found.append(at)
    return found


def stored(plan: Plan) -> set[int]:
    """The results that other tasks or the outside read."""
    makers = {n: task for task in plan.tasks for n in task.results}
    found = set(plan.results)
    for task in plan.tasks:
        for number in reads(plan, task):
            maker = makers.get(number)
            known = maker is task and number in task.ended
            if maker is not None and not known and maker is not task.host:
                found.add(number)
        found.update(set(task.one.outputs[1:]) - task.ended)
    return found


def awaited(plan: Plan) -> dict[int, list[Task]]:
    """The tasks that must run in a level before that of a task, by its id; its own among them.

    They make what it reads, or read what it replaces.

    Raises:
        Unsupported: a parameter becomes a view of another value.
    """
    makers = {n: task for task in plan.tasks for n in task.results}
    readers: dict[int, list[Task]] = {}
    for task in plan.tasks:
        for n in reads(plan, task):
            readers.setdefault(n, []).append(task)
    found = {id(task): [makers[n] for n in reads(plan, task) if n in makers] for task in plan.tasks}
    for argument, result in plan.over.items():
        if result not in makers:
            raise Unsupported("a parameter that becomes a view of another value")
        found[id(makers[result])] += readers.get(argument, [])
    return found


def set_levels(plan: Plan) -> None:
    """Give each task the first level in which everything that it reads is there.

    What is written over an argument waits for everything else that reads that.

    Raises:
        Unsupported: two tasks read what the other one replaces.
    """
    before = awaited(plan)
    for task in plan.tasks:
        task.level = 0
    changed, rounds = True, 0
    while changed:
        changed, rounds = False, rounds + 1
        if rounds > len(plan.tasks) + 1:
            raise Unsupported("values that replace each other")
        for task in plan.tasks:
            others = [one.level for one in before[id(task)] if one is not task]
            level = task.host.level if task.host else 1 + max(others, default=0)
            changed |= level != task.level
            task.level = level


def levels(plan: Plan) -> list[list[Task]]:
    """The tasks of each level."""
    own = [task for task in plan.tasks if task.host is None]
    most = max((task.level for task in own), default=0)
    return [[task for task in own if task.level == level + 1] for level in range(most)]
