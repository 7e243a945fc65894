"""The CUDA source of a kernel whose blocks compute a whole step together, as it is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pareo.backends.cuda.grid.functions import Functions
from pareo.backends.cuda.grid.memory import lives, starts
from pareo.backends.cuda.grid.plan import Plan, Task, Unsupported, levels, places, reads
from pareo.backends.cuda.grid.sharing import Level, Options, Work, shared
from pareo.backends.cuda.grid.tiles import BUSY, LOAD, SHARE, End, Machine
from pareo.backends.cuda.images.elements import expression, number
from pareo.program.ir import Instruction

NOTHING: Mapping[str, str] = {}
CACHED = 40e6  # bytes between the tasks that stay in the L2 cache
DRAM = 2000  # bytes of a cycle, that all blocks read from memory or write to it
TEMPLATE = """// {title} by all blocks together; by pareo.backends.cuda.grid.
const int THREADS = {threads}, BLOCKS = {blocks}, ROOM = {room};
{cluster}
#include "images/block.cuh"
#include "images/functions.cuh"
#include "images/windows.cuh"
#include "images/shapes.cuh"
#include "grid/barrier.cuh"
#include "grid/async.cuh"
#include "kernels/rules.cuh"
#include "grid/held.cuh"
#include "grid/tasks.cuh"
#include "grid/products.cuh"
#include "grid/copied.cuh"
#include "grid/mma.cuh"
#include "grid/tensors.cuh"
#include "grid/dense.cuh"
#include "grid/direct.cuh"
#include "grid/windows.cuh"
#include "grid/pools.cuh"
#include "grid/lrn.cuh"
#include "grid/norms.cuh"
#include "grid/channels.cuh"

struct Pointers {{ void* at[{count}]; }};
{functions}
{names}

// Each task reads other pointers, and to read each from constant memory takes as long as the task:
// they are copied to shared memory, all at once.
extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) together(
    const __grid_constant__ Pointers given{more})
{{
    extern __shared__ __align__(16) float room[];
    __shared__ void* pointers[{count}];
    for (int i = threadIdx.x; i < {count}; i += THREADS) pointers[i] = (&given.at[0])[i];
    __syncthreads();
    Barrier all((unsigned*)pointers[0]);
{body}
}}
"""


@dataclass
class Source:
    """The kernel of a plan on a machine.

    Its pointers are the word of the barrier, `arguments`, `plan.results`, and the memory between.
    """

    plan: Plan
    machine: Machine
    arguments: list[int] = field(default_factory=list)
    tasks: list[list[Options]] = field(default_factory=list)  # by level

    def __post_init__(self) -> None:
        self._made = {n for task in self.plan.tasks for n in task.results}

    @cached_property
    def levels(self) -> list[Level]:
        """The tasks of each level, as the blocks share them."""
        return [self._shared(tasks) for tasks in self.tasks]

    def _shared(self, tasks: Sequence[Options]) -> Level:
        return shared(tasks, self.machine.blocks)

    @cached_property
    def cycles(self) -> float:
        """What the kernel is expected to take."""
        taken = [level.cycles for level in self.levels]
        if 4 * self.floats_between > CACHED:
            moved = [4 * self._floats(tasks) / DRAM for tasks in levels(self.plan)]
            taken = [max(pair) for pair in zip(taken, moved, strict=True)]
        return sum(taken) + self.machine.barrier * len(taken)

    def _floats(self, tasks: Sequence[Task]) -> int:
        """What the tasks of a level read and write, each value once."""
        values = {n for task in tasks for n in reads(self.plan, task)}
        values |= {n for task in tasks for n in task.results & self.plan.stored}
        return sum(self.plan.size(n) for n in values)

    @cached_property
    def between(self) -> dict[int, int]:
        """Where each value that is neither given nor a result starts in the memory between."""
        return starts({n: one for n, one in lives(self.plan).items() if n not in self._outside})

    @property
    def _outside(self) -> set[int]:
        return set(self.plan.results)

    @property
    def floats_between(self) -> int:
        """The size of that memory."""
        starts = self.between
        return max((start + self.plan.size(n) for n, start in starts.items()), default=0) + 32

    @property
    def text(self) -> str:
        """The source."""
        body = self.body  # before the pointers, which it asks for
        names = self.names
        return TEMPLATE.format(
            title=self.title, more=self.more, threads=self.machine.threads,
            blocks=self.machine.blocks, room=self.shared_bytes // 4, count=self.pointers, body=body,
            cluster="#define CLUSTER" if self.machine.cluster else "",
            functions=self.functions.text,
            names="\n".join(f"#define p{n} ({name})" for n, name in names.items()),
        )  # fmt: skip

    @cached_property
    def shared_bytes(self) -> int:
        """The shared memory of a block besides its pointers."""
        works = [work for level in self.levels for work in level.works]
        return 4 * max(2 * self.machine.threads, *(work.room for work in works))

    title, more = "A forward and backward pass", ""

    @property
    def body(self) -> str:
        """All levels; between them all blocks meet."""
        return "\n    all.meet();\n".join(map(self.written, self.levels))

    def written(self, level: Level) -> str:
        """The code of a level."""
        start, lines = 0, []
        for work, blocks in zip(level.works, level.blocks or [0] * len(level.works), strict=True):
            end = start + (blocks or work.tiles)
            begin = "else if" if start else "if"
            if blocks:
                lines.append(f"    {begin} (this_block() < {end}) {{")
                count = f"tile < {work.tiles}; tile += {blocks}"
                lines.append(f"        for (int tile = this_block() - {start}; {count}) {{")
                lines.append(f"            {self.functions.called(work.write())} }} }}")
            else:
                lines.append(f"        {begin} (t < {end}) {{ const int tile = t - {start};")
                lines.append(f"            {self.functions.called(work.write())} }}")
            start = end
        if not level.blocks:
            every = f"    for (int t = this_block(); t < {start}; t += BLOCKS) {{"
            lines = [every, *lines, "    }"]
        return "\n".join(lines)

    @cached_property
    def functions(self) -> Functions:
        """What some of its tasks have in common."""
        return Functions(work.write() for level in self.levels for work in level.works)

    @property
    def pointers(self) -> int:
        """How many pointers the kernel is given."""
        return 2 + len(self.arguments) + len(self.plan.results)

    @property
    def names(self) -> dict[int, str]:
        """The pointer to each value."""
        given = [*self.arguments, *self.plan.results]
        names = {n: f"global<{self._type(n)}>(pointers[{i + 1}])" for i, n in enumerate(given)}
        return names | {n: self._at(start) for n, start in self.between.items()}

    def _at(self, start: int | str) -> str:
        """A place in the memory between, which is the last pointer."""
        return f"global<float>(pointers[{self.pointers - 1}]) + {start}"

    def _type(self, n: int) -> str:
        if self.plan.specs[n].dtype.kind in "iu":
            return "const long long"
        return "float" if n in self._made else "const float"

    def read(self, number_: int) -> str:
        """A pointer to a value."""
        root = self.plan.root(number_)
        if root not in self._made and root not in self.arguments:
            self.arguments.append(root)
        return f"p{root}"

    # Tasks

    def value(self, one: Instruction) -> str:
        """An elementwise instruction at element i, with operands from memory."""
        return self._value(one, lambda operand, place: f"{self.read(operand)}[{place}]")

    def _value(self, one: Instruction, element: Callable[[int, str], str]) -> str:
        at = places(self.plan, one)
        if at is None:
            raise Unsupported(f"{one.name} of other shapes")
        reads = [
            f"{'ab'[which]} = {element(operand, place)}"
            for which, (operand, place) in enumerate(zip(one.inputs, at, strict=True))
        ]
        result = expression(one.name, one.attributes)
        return f"[&] {{ const float {', '.join(reads)}; return {result}; }}()"

    def _end(
        self, task: Task, kept: int | None = None, at: str = "", names: Mapping[str, str] = NOTHING
    ) -> tuple[list[str], str]:
        """What happens with result r at element i, and what it reads from memory.

        It is stored, and what follows from it is computed. What it reads is `given.at[...]`. The
        value `kept` is written to a place of shared memory, too. `names` are places that have a
        shorter name there.
        """
        first, given = task.one.outputs[0], list[str]()
        known = {first: "r"}

        def element(operand: int, place: str) -> str:
            root = self.plan.root(operand)
            if root in known:
                return known[root]
            given.append(f"{self.read(operand)}[{names.get(place, place)}]")
            return f"given.at[{len(given) - 1}]"

        is_update = task.one.name == "update"
        lines = [f"p{first}[i] = r;"] if first in self.plan.stored and not is_update else []
        for one in (task.one, *task.chain) if is_update else task.chain:
            if one.name == "update":
                lines.append(self._update(one, element))
                continue
            (result,) = one.outputs
            lines.append(f"const float r{result} = {self._value(one, element)};")
            known[result] = f"r{result}"
            if result in self.plan.stored:
                lines.append(f"p{result}[i] = r{result};")
        if kept is not None:
            lines.append(f"{at} = {known[kept]};")
        return given, " ".join(lines)

    def _update(self, one: Instruction, element: Callable[[int, str], str]) -> str:
        """Move a parameter, and what is kept for it, in place."""
        gradient, parameter, *slots = (element(n, "i") for n in one.inputs)
        constants = self.plan.program.constants
        numbers = (
            number(float(constants[n])) if n in constants else element(n, "0")
            for n in one.attributes["numbers"]
        )
        kept = [*slots, "0", "0"][:2]
        new, *places_ = (f"p{n}[i]" for n in one.outputs)
        stores = "".join(f" {place} = kept{k};" for k, place in enumerate(places_))
        return (
            f"{{ float kept0 = {kept[0]}, kept1 = {kept[1]}; "
            f"const float numbers[7] = {{{', '.join(numbers)}}}; "
            f"{new} = moved<{one.attributes['rule']}>"
            f"({parameter}, {gradient}, kept0, kept1, numbers);{stores} }}"
        )

    def end(self, task: Task) -> str:
        """What happens with result r at element i."""
        given, code = self._end(task)
        return f"const auto given = {_given(given)}; {code}" if given else code

    def ending(self, task: Task) -> str:
        """A function that takes i and r."""
        return f"[&](int i, float r) {{ {self.end(task)} }}"

    def ending_of(self, task: Task, result: int) -> str:
        """The same for a result of a task in plan.SUMS that is not the first."""
        given = list[str]()

        def element(operand: int, place: str) -> str:
            if self.plan.root(operand) == result:
                return "r"
            given.append(f"{self.read(operand)}[{place}]")
            return f"given.at[{len(given) - 1}]"

        lines = [f"p{result}[i] = r;"] if result in self.plan.stored else []
        moves = [one for one in task.moves if self.plan.root(one.inputs[0]) == result]
        lines += [self._update(one, element) for one in moves]
        return f"[&](int i, float r) {{ const auto given = {_given(given)}; {' '.join(lines)} }}"

    def early_and_end(
        self, task: Task, place: str, parameters: str, kept: int | None = None, at: str = "",
        names: Mapping[str, str] = NOTHING,
    ) -> tuple[str, str, End]:  # fmt: skip
        """What is read from memory before r is known, and what happens then, as functions.

        And what the end costs for each element.
        """
        given, code = self._end(task, kept, at, names)
        early = f"[&]({parameters}) {{ const int i = {place}; return {_given(given)}; }}"
        taken = f"const Given<{len(given)}>& given"
        end = f"[&]({parameters}, float r, {taken}) {{ const int i = {place}; {code} }}"
        floats = sum("[i]" in one for one in given) + code.count("[i] =")
        return early, end, End(floats, 10 * len(task.chain))

    def elements(
        self, task: Task, value: str, each: float, waits: float = 1.0, most: int = 4
    ) -> Options:
        """Elements by a thread each, or by one for `most`; for twice as many if there are many."""
        count, threads = self.plan.size(task.one.outputs[0]), self.machine.threads
        early, end, cost = self.early_and_end(task, "e", "int e")
        each = BUSY * (each + cost.cycles) * threads / SHARE
        ways: list[Work] = []
        several = count > 4 * most * threads * self.machine.blocks
        for many in {1, most, 2 * most if several else most}:
            given = f"tile, [&](int i) {{ return {value}; }}, {early}, {end}"
            code = f"elements<{count}, {many}>({given});"
            ways += one_way(code, -(-count // (many * threads)), 60 + waits * LOAD + many * each)
        return ways


def _given(values: Sequence[str]) -> str:
    return f"Given<{len(values)}>{{{{{', '.join(values)}}}}}" if values else "Given<0>{}"


def one_way(code: str, tiles: int, cycles: float) -> Options:
    """A task that can be computed in one way."""
    return [Work(lambda: code, tiles, cycles)]
