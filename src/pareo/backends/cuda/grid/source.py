"""The CUDA source of a kernel whose blocks compute a whole step together, as it is written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pareo.backends.cuda.grid.plan import Plan, Task, Unsupported, places
from pareo.backends.cuda.grid.tiles import BEHIND, LOAD, SHARE, Machine
from pareo.backends.cuda.images.elements import expression
from pareo.program.ir import Instruction

TEMPLATE = """// A forward and backward pass by all blocks together; by pareo.backends.cuda.grid.
const int THREADS = {threads}, BLOCKS = {blocks};
{cluster}
#include "images/block.cuh"
#include "images/functions.cuh"
#include "images/windows.cuh"
#include "images/shapes.cuh"
#include "grid/barrier.cuh"
#include "grid/tasks.cuh"
#include "grid/products.cuh"
#include "grid/windows.cuh"
#include "grid/norms.cuh"

struct Pointers {{ void* at[{count}]; }};
{pointers}

// Each task reads other pointers, and to read each from constant memory takes as long as the task:
// they are copied to shared memory, all at once.
extern "C" __global__ void TOGETHER __launch_bounds__(THREADS) together(
    const __grid_constant__ Pointers given)
{{
    __shared__ float room[{room}];
    __shared__ void* pointers[{count}];
    for (int i = threadIdx.x; i < {count}; i += THREADS) pointers[i] = (&given.at[0])[i];
    __syncthreads();
    unsigned* const word = (unsigned*)pointers[0];
{lines}
}}
"""


@dataclass(frozen=True)
class Work:
    """The code of one tile of a task, how many there are, and the cycles of one."""

    code: str
    tiles: int
    cycles: float


@dataclass
class Source:
    """The kernel of a plan on a machine.

    Its pointers are the word of the barrier, `arguments`, `plan.results`, and the memory between.
    """

    plan: Plan
    machine: Machine
    arguments: list[int] = field(default_factory=list)
    cycles: float = 0.0

    def __post_init__(self) -> None:
        self._room = 2 * self.machine.threads
        self._made = {n for task in self.plan.tasks for n in task.results}
        self._lines: list[str] = []

    def add_level(self, works: Sequence[Work], last: bool) -> None:
        """Write a level: its tasks share the blocks, and then all blocks meet."""
        works = sorted(works, key=lambda work: -work.cycles)
        count = sum(work.tiles for work in works)
        lines = [f"    for (int t = blockIdx.x; t < {count}; t += BLOCKS) {{"]
        start = 0
        for work in works:
            begin = "if" if start == 0 else "else if"
            lines.append(
                f"        {begin} (t < {start + work.tiles}) {{ const int tile = t - {start};"
            )
            lines.append(f"            {work.code} }}")
            start += work.tiles
        lines.append("    }" if last else "    }\n    meet(word);")
        busy = sum(work.tiles * work.cycles for work in works) / self.machine.blocks
        self.cycles += max(busy, *(work.cycles for work in works), 0) + self.machine.barrier
        self._lines += lines

    @property
    def between(self) -> dict[int, int]:
        """Where each value that is neither given nor a result starts in the memory between."""
        found, start = {}, 0
        for n in sorted(self.plan.stored - set(self.plan.results)):
            found[n] = start
            start += -(-self.plan.size(n) // 32) * 32
        return found

    @property
    def floats_between(self) -> int:
        """The size of that memory."""
        starts = self.between
        return max((start + self.plan.size(n) for n, start in starts.items()), default=0) + 32

    @property
    def text(self) -> str:
        """The source."""
        return TEMPLATE.format(
            threads=self.machine.threads, blocks=self.machine.blocks, room=self._room,
            count=2 + len(self.arguments) + len(self.plan.results), lines="\n".join(self._lines),
            cluster="#define CLUSTER" if self.machine.cluster else "",
            pointers="\n".join(self._pointers()),
        )  # fmt: skip

    def _pointers(self) -> list[str]:
        """A name for each pointer."""
        named = [
            f"#define p{n} (({self._type(n)})pointers[{i + 1}])"
            for i, n in enumerate([*self.arguments, *self.plan.results])
        ]
        last = 1 + len(named)
        return named + [f"#define p{n} ((float*)pointers[{last}] + {start})"
                        for n, start in self.between.items()]  # fmt: skip

    def _type(self, n: int) -> str:
        if self.plan.specs[n].dtype.kind in "iu":
            return "const long long*"
        return "float*" if n in self._made else "const float*"

    def read(self, number_: int) -> str:
        """A pointer to a value."""
        root = self.plan.root(number_)
        if root not in self._made and root not in self.arguments:
            self.arguments.append(root)
        return f"p{root}"

    # Tasks

    def value(self, one: Instruction, known: dict[int, str]) -> str:
        """An elementwise instruction at element i; some operands are known by name."""
        at = places(self.plan, one)
        if at is None:
            raise Unsupported(f"{one.name} of other shapes")
        reads = []
        for which, (operand, place) in enumerate(zip(one.inputs, at, strict=True)):
            root = self.plan.root(operand)
            value = known.get(root) or f"{self.read(operand)}[{place}]"
            reads.append(f"{'ab'[which]} = {value}")
        result = expression(one.name, one.attributes)
        return f"[&] {{ const float {', '.join(reads)}; return {result}; }}()"

    def end(self, task: Task) -> str:
        """What happens with result r at element i: stored, and what follows from it."""
        first = task.one.outputs[0]
        known = {first: "r"}
        lines = [f"p{first}[i] = r;"] if first in self.plan.stored else []
        for one in task.chain:
            (result,) = one.outputs
            lines.append(f"const float r{result} = {self.value(one, known)};")
            known[result] = f"r{result}"
            if result in self.plan.stored:
                lines.append(f"p{result}[i] = r{result};")
        return " ".join(lines)

    def ending(self, task: Task) -> str:
        """A function that takes i and r."""
        return f"[&](int i, float r) {{ {self.end(task)} }}"

    def elements(self, task: Task, value: str, each: float, waits: float = 1.0) -> Work:
        count = self.plan.size(task.one.outputs[0])
        code = (
            f"elements<{count}>(tile, [&](int i) {{ const float r = {value}; {self.end(task)} }});"
        )
        each += 12 * len(task.chain)
        cycles = 60 + waits * LOAD + BEHIND * each * self.machine.threads / SHARE
        return Work(code, -(-count // self.machine.threads), cycles)

    def room(self, floats: int) -> None:
        """Take that much shared memory."""
        self._room = max(self._room, floats)
