"""The CUDA source of a kernel that computes one image in each block, and its memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from pareo.backends.cuda.images import tiles
from pareo.backends.cuda.images.arena import Arena
from pareo.backends.cuda.images.rows import VIEWS, Split
from pareo.backends.cuda.images.tiles import ROOM, THREADS
from pareo.program.ir import Instruction

MOST_STAGED = 16384  # weights of a layer that are copied to shared memory
SHARED = (56 << 10) - ROOM  # floats of a block for values

TEMPLATE = """// Forward and backward pass of an image in each block; by pareo.backends.cuda.images.
const int THREADS = {threads};
#include "images/block.cuh"
#include "images/functions.cuh"
#include "images/phases.cuh"
#include "images/conv.cuh"
#include "images/pool.cuh"
#include "images/rows.cuh"

struct Pointers {{ void* at[{count}]; }};

extern "C" __global__ void __launch_bounds__(THREADS) images(const Pointers given)
{{
    extern __shared__ float arena[];
    const int image = blockIdx.x;
{declarations}
{lines}
}}
"""


@dataclass
class Source:
    """The kernel as far as it is written."""

    split: Split
    lines: list[str] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)  # values outside, by their numbers
    parts: dict[int, int] = field(default_factory=dict)  # where each total begins in the parts
    moments: list[tuple[Instruction, int]] = field(default_factory=list)  # likewise
    width: int = 0  # of the parts of one image
    cycles: float = 0.0

    def __post_init__(self) -> None:
        self._shared, self._spilled = Arena(SHARED), Arena(1 << 40)
        self._places: dict[int, tuple[str, int]] = {}  # memory and start of a value
        self._alias: dict[int, tuple[int, int]] = {}  # a view: of which value, from where
        self._last: dict[int, int] = {}
        self._room = 0

    @property
    def text(self) -> str:
        """The source."""
        spilled = max(self._spilled.most, 1)
        declarations = [
            f"    {self._type(n)} const v{n} = ({self._type(n)})given.at[{i}]"
            + (f" + image * {self.split.size(n)}LL;" if n in self.split.rows else ";")
            for i, n in enumerate(self.arguments)
        ]
        count = len(self.arguments)
        declarations += [
            f"    float* const parts = (float*)given.at[{count}] + image * {max(self.width, 1)}LL;",
            f"    float* const room = arena + {self._shared.most};",
        ]
        if self._spilled.most:
            declarations.append(
                f"    float* const spilled = (float*)given.at[{count + 1}] + image * {spilled}LL;"
            )
        for i, n in enumerate(self.split.saved):
            start = f"(float*)given.at[{count + 2 + i}]"
            declarations.append(
                f"    float* const s{n} = {start} + image * {self.split.size(n)}LL;"
            )
        return TEMPLATE.format(
            threads=THREADS, count=count + 2 + len(self.split.saved),
            declarations="\n".join(declarations), lines="\n".join(self.lines),
        )  # fmt: skip

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory."""
        return 4 * (self._shared.most + self._room)

    @property
    def spilled_floats(self) -> int:
        """Floats of each image that do not fit into shared memory."""
        return max(self._spilled.most, 1)

    def _type(self, number_: int) -> str:
        integer = self.split.program.specs[number_].dtype.kind in "iu"
        return "const long long*" if integer else "const float*"

    # Values

    def prepare(self) -> None:
        """Note the last reader of each value, views included."""
        views: dict[int, int] = {}
        for position, one in enumerate(self.split.inside):
            if one.name in VIEWS:
                views[one.outputs[0]] = one.inputs[0]
            for read in one.inputs:
                root: int | None = read
                while root is not None:
                    self._last[root] = position
                    root = views.get(root)
        for number_ in self.split.saved:
            root = number_
            while root is not None:
                self._last[root] = max(self._last.get(root, 0), self._made_at(number_))
                root = views.get(root)

    def _made_at(self, number_: int) -> int:
        return next(i for i, one in enumerate(self.split.inside) if number_ in one.outputs)

    def read(self, number_: int) -> str:
        """A pointer to a value."""
        if number_ in self._alias:
            root, offset = self._alias[number_]
            return self.read(root) + (f" + {offset}" if offset else "")
        if number_ in self._places:
            memory, start = self._places[number_]
            return f"{memory} + {start}"
        if number_ not in self.arguments:
            self.arguments.append(number_)
        if number_ in self.split.rows and self.split.program.specs[number_].dtype.kind == "f":
            return self._copied(number_)
        return f"v{number_}"

    def _copied(self, number_: int) -> str:
        """Rows that were made before, in shared memory if they fit there."""
        count = self.split.size(number_)
        start = self._shared.take(count)
        if start is None:
            return f"v{number_}"
        self._places[number_] = "arena", start
        cycles = tiles.cycles(count // 4, 10, 2, tiles.L2)
        self.add(f"copy<{count}>(arena + {start}, v{number_});", cycles)
        return f"arena + {start}"

    def view(self, number_: int, of: int, offset: int) -> None:
        """Let a value be a part of another one's memory."""
        self._alias[number_] = of, offset

    def make(self, number_: int, position: int, over: tuple[int, ...] = ()) -> str:
        """A pointer to memory for a new value.

        It is that of an operand in `over` which is not read again, if there is one.
        """
        count = self.split.size(number_)
        for operand in over:
            dies = self._last.get(operand) == position and operand in self._places
            if dies and self.split.size(operand) == count and not self._is_viewed(operand):
                self._places[number_] = self._places.pop(operand)
                return self.read(number_)
        start = self._shared.take(count)
        memory = "arena" if start is not None else "spilled"
        if start is None:
            start = self._spilled.take(count)
        assert start is not None
        self._places[number_] = memory, start
        return self.read(number_)

    def _is_viewed(self, number_: int) -> bool:
        return any(root == number_ for root, _ in self._alias.values())

    def release(self, position: int) -> None:
        """Free the memory of values that no later instruction reads."""
        for number_ in [n for n in self._places if self._last.get(n, -1) <= position]:
            memory, start = self._places.pop(number_)
            (self._shared if memory == "arena" else self._spilled).free(start)

    @contextmanager
    def staged(self, weights: int) -> Iterator[tuple[str, int]]:
        """A pointer to filters, in shared memory if they fit there, and the cycles of a load."""
        count, pointer = self.split.program.specs[weights].size, self.read(weights)
        start = self._shared.take(count) if count <= MOST_STAGED else None
        if start is None:
            taps = prod(self.split.program.specs[weights].shape[2:])
            yield pointer, tiles.L2 if taps > 1 else tiles.L2 // 4  # more loads are under way
            return
        self.add(
            f"copy<{count}>(arena + {start}, {pointer});", tiles.cycles(count // 4, 10, 2, tiles.L2)
        )
        yield f"arena + {start}", tiles.L1
        self._shared.free(start)

    def total(self, number_: int) -> str:
        """A pointer to this image's part of a total."""
        self.parts[number_] = self.width
        self.width += self.split.program.specs[number_].size
        return f"parts + {self.parts[number_]}"

    def room(self, count: int, parts: int) -> int:
        """Take room for `count` sums in as many parts, or in fewer; returns the parts."""
        parts = max(1, min(parts, ROOM // count))
        self._room = max(self._room, count * parts if parts > 1 else 0)
        return parts

    def add(self, line: str, cycles: float = 0.0) -> None:
        self.lines.append(f"    {line}")
        self.cycles += cycles
