"""Training in one compiled loop over groups of images, for networks whose values fit into a cache.

A readable module is generated from the gradient program of one image. A group of images lies side
by side as the innermost axis of every value, so that all layers of any size are loops over whole
vectors (see `conv`). In every step, each worker runs its groups forward and backward out of
its own cache, and adds up its gradients in batches of images, because a long sum would round away
small terms. Where images depend on each other the program is cut into segments: a worker runs all
its groups through one segment, meets the others at a barrier, and enters the next. At the end of a
step each worker updates its share of all parameters, and they continue. The module is stored in the
cache directory, beside its machine code.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from types import ModuleType

import numpy as np

from pareo.backends.compiled.kernels.gradient_sums import GROUP
from pareo.backends.compiled.loops.groups import costs
from pareo.backends.compiled.loops.groups.emitters.table import emit
from pareo.backends.compiled.loops.groups.segments import Segments, segments
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported, indented
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.generated_module import generated_module
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.backends.threads import run_concurrently
from pareo.program.ir import Program

MAX_BYTES = 16 << 20  # of a group's values; they should fit into a core's share of the caches
MAX_INSTRUCTIONS = 600  # beyond, compilation would take more than a minute
MANY = 128  # images of a step, where the number is not known
LINE = 16  # floats of a cache line
GROUPS = (16, 8, 1) if registers.IS_X86 else (8, 4, 1)  # how many images lie side by side
# The time of an image in a group of its own, relative to that of one in a full group.
ALONE = 3.0 if registers.HAS_AVX512 else 1.3
# The same if a group of eight fits into a core's caches, so that groups need not wait for memory: 4
# to 17 on networks drawn by five seeds, with AVX-512 only. Elsewhere it was not measured.
ALONE_IN_CACHE, CACHE_BYTES = (5.0, 2 << 20) if registers.HAS_AVX512 else (ALONE, 0)

TEMPLATE = '''"""Training steps, group by group; by pareo.backends.compiled.loops.groups.loop."""

import numpy as np

from pareo.backends.compiled.kernels import (
    activation_loops, elementwise_loops, gradient_sums, loss,
)
from pareo.backends.compiled.loops.groups.kernels import (
    batch_norm, channels, columns, conv, dense, filter_gradient, moves, pool, row,
)
from pareo.backends.compiled.loops.matrices import small_batch
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.spin_barrier import spin_barrier


@jit
def run(
    worker, counter, order, dataset, labels, rate, momentum, decay, losses, shares, sums, groups,
    moments, merged, base, store, parameters, trained, velocities, sizes,
):
    workers = sums.shape[0]
    images = moves.matrix(dataset, labels.size, {pixels})
    batch = order.shape[1]
    number = (batch + {lanes} - 1) // {lanes}
    first = {lanes} * (number * worker // workers)
    last = min(batch, {lanes} * (number * (worker + 1) // workers))
    share = np.float32(1) / np.float32(batch)
    arrivals = 0
    totals, own_groups = sums[worker], groups[worker]
    sum_base = totals.ctypes.data
    rows = np.empty(({lanes}, {classes}), np.float32)
    errors = np.empty(({lanes}, {classes}), np.float32)
    chosen_labels = np.empty({lanes}, np.int64)
{before}
    for step in range(order.shape[0]):
        total = 0.0
        chosen = order[step]
{per_step}
{segments}
        if last - first > {flush}:
            gradient_sums.flush(totals, own_groups)
{after}
        shares[worker] = total
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
        if worker == 0:
            losses[step] = shares.sum() / batch
        moves.update(trained, velocities, sizes, sums, worker, share, rate, momentum, decay)
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
'''
SEGMENT = """for place in range(first, last, {lanes}):
    if place > first and (place - first) % {flush} == 0:
        gradient_sums.flush(own_groups, totals)
    valid = min({lanes}, last - place)
    here = store + {stride} * ((place - first) // {lanes})
{lines}"""
BETWEEN = """arrivals += workers
spin_barrier(counter.ctypes.data, arrivals)"""


class _Generated:
    """The loop for groups of one size."""

    def __init__(self, program: Program, parts: Segments, lanes: int) -> None:
        s = GroupSource(program, parts, lanes)
        emit(s)
        self.arena, self.store = s.arena.floats, s.store.floats
        self.moments, self.merged = s.moments, s.merged
        self.bytes = 4 * (self.arena + self.store)  # of one group
        lines = []
        for body, end in zip(s.bodies, s.ends, strict=True):
            whole = SEGMENT.format(
                lanes=lanes, flush=GROUP, stride=4 * self.store, lines=indented(body, 4)
            )
            lines += [*whole.splitlines(), *(BETWEEN.splitlines() if end else []), *end]
        self.source = TEMPLATE.format(
            lanes=lanes,
            classes=s.classes,
            before=indented(s.before, 4),
            per_step=indented(s.per_step, 8),
            flush=GROUP,
            pixels=program.specs[s.image].size,
            segments=indented(lines, 8),
            after=indented(s.after, 8),
        )

    @cached_property
    def module(self) -> ModuleType:
        return generated_module(self.source)


class GroupLoop:
    """Steps of training of one network, compiled as a whole.

    Args:
        program: maps (parameters..., image, label) to (loss, gradients...), not fused.
        state: the positions of parameters that are state. Their new values are in the places of
            gradients.
    """

    def __init__(self, program: Program, threads: int, state: Collection[int] = ()) -> None:
        self.program, self.threads = program, threads
        count = len(program.inputs) - 2
        self._trained = [position for position in range(count) if position not in state]
        self._sizes = [program.specs[program.inputs[n]].size for n in self._trained]
        self._image_seconds = costs.estimate(program, MANY).in_groups
        parts = segments(program, state)
        self._generated = {lanes: _Generated(program, parts, lanes) for lanes in GROUPS}

    @property
    def bytes_of_group(self) -> int:
        """The bytes of the values of the smallest group."""
        return min(made.bytes for made in self._generated.values())

    def split(self, batch: int) -> costs.Split:
        """How a batch is divided, and how much of the workers' time that takes."""
        time, _, lanes, workers = min(self._times(batch, self.threads))
        return costs.Split(lanes, workers, self.threads, time / batch)

    def lanes(self, batch: int) -> int:
        """How many images of a batch are in a group."""
        return self._lanes(batch)[0]

    def source(self, batch: int) -> str:
        """The text of the module for a batch size."""
        return self._generated[self._lanes(batch)[0]].source

    @flushed
    def __call__(
        self,
        parameters: Sequence[np.ndarray],
        velocities: Sequence[np.ndarray],
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        rate: float,
        momentum: float,
        decay: float,
    ) -> np.ndarray:
        """Update parameters (and velocities) in place, one step for each row of order; the losses.

        The caller has checked all arguments (see `training.arguments`).
        """
        lanes, workers = self._lanes(order.shape[1])
        generated = self._generated[lanes]
        losses, shares = np.zeros(len(order)), np.zeros(workers)
        sums, groups = np.zeros((2, workers, sum(self._sizes)), np.float32)
        counter = np.zeros(1, np.int64)
        moments = np.zeros(workers * generated.moments)
        # Read-only arrays would have the loop compiled again.
        labels = np.array(labels, np.int64)
        places, moving = (
            np.array([array.ctypes.data for array in arrays], np.int64)
            for arrays in (parameters, velocities)
        )
        trained = places[self._trained]
        sizes = np.array(self._sizes, np.int64)
        run = generated.module.run

        def work(worker: int) -> None:
            arena = np.zeros(generated.arena + LINE, np.float32)
            merged = np.empty(generated.merged)
            store = np.empty(generated.store * self._most(order.shape[1]) + LINE, np.float32)
            run(
                worker, counter, order, images.ctypes.data, labels, np.float32(rate),
                np.float32(momentum), np.float32(decay), losses, shares, sums, groups,
                moments.ctypes.data, merged.ctypes.data, _aligned(arena), _aligned(store), places,
                trained, moving, sizes,
            )  # fmt: skip

        run_concurrently(workers, work)
        return losses

    def nbytes(self, batch: int, momentum: bool) -> int:
        """The bytes of the workers' gradients, of the values of one group, and of all groups'."""
        lanes, workers = self._lanes(batch)
        made = self._generated[lanes]
        each = 2 * sum(self._sizes) + made.arena + made.store * self._most(batch)
        return workers * (4 * each + 8 * made.moments)

    def _most(self, batch: int) -> int:
        """How many groups a worker has at most."""
        lanes, workers = self._lanes(batch)
        number = -(-batch // lanes)
        return -(-number // workers)

    def _lanes(self, batch: int) -> tuple[int, int]:
        """The images of a group and the number of workers for which a batch takes least time."""
        return min(self._times(batch, self.threads))[2:]

    @property
    def _alone(self) -> float:
        """The time of an image in a group of its own."""
        return ALONE_IN_CACHE if self._generated[8].bytes <= CACHE_BYTES else ALONE

    def _times(self, batch: int, threads: int) -> list[tuple[float, int, int, int]]:
        """For each size of group: how many images take as long, the size, and the workers."""
        found = []
        for lanes, made in self._generated.items():
            if made.bytes > max(MAX_BYTES, self.bytes_of_group):
                continue
            number = -(-batch // lanes)
            each = ALONE * lanes if lanes == 1 else max(lanes, 0.9 * registers.LANES)
            slower = self._alone / ALONE if lanes == 1 else 1.0
            for workers in {1, max(1, min(threads, number))}:
                time = -(-number // workers) * each
                if workers > 1:
                    time += costs.RATES.shared / self._image_seconds
                found.append((slower * time, -lanes, lanes, workers))
        return found


def _aligned(array: np.ndarray) -> int:
    """The first address in an array that is a multiple of a cache line."""
    return int(-(-array.ctypes.data // (4 * LINE)) * (4 * LINE))


def loop(
    program: Program, threads: int, state: Collection[int] = (), batch: int = MANY
) -> tuple[GroupLoop | None, str]:
    """A loop for the gradient program of one image, and why it is used; or None and why not."""
    if any(program.specs[n].dtype != np.float32 for n in program.inputs[:-1]):
        return None, "the loop over groups of images has float32 only"
    if len(program.instructions) > MAX_INSTRUCTIONS:
        return None, "the loop over groups of images would take too long to compile"
    try:
        made = GroupLoop(program, threads, state)
    except Unsupported as reason:
        return None, f"the loop over groups of images does not support {reason}"
    if made.bytes_of_group > MAX_BYTES:
        return None, f"an image takes {made.bytes_of_group >> 20} MiB, too much for a cache"
    found = costs.estimate(program, batch, made.split(batch))
    return made if found.is_worth_it else None, str(found)
