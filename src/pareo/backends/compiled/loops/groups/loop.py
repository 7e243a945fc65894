"""Training in one compiled loop over groups of images, for networks whose values fit into a cache.

A readable module is generated from the gradient program of one image. A group of images lies side
by side as the innermost axis of every value, so that all layers of any size are loops over whole
vectors (see `conv`). In every step, each worker runs its groups forward and backward out of
its own cache, and adds up its gradients in batches of images, because a long sum would round away
small terms. Then the workers meet at a barrier, each updates its share of all parameters, and they
continue. The module is stored in the cache directory, beside its machine code.
"""

from collections.abc import Sequence
from functools import cached_property
from types import ModuleType

import numpy as np

from pareo.backends.compiled.conv.register_tiles import LANES as REGISTER
from pareo.backends.compiled.kernels.gradient_sums import GROUP
from pareo.backends.compiled.loops.groups import costs
from pareo.backends.compiled.loops.groups.emit import emit
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported
from pareo.backends.compiled.runtime.generated_module import generated_module
from pareo.backends.threads import run_concurrently
from pareo.program.ir import Program

MAX_BYTES = 8 << 20  # of a group's values; they should fit into a core's share of the caches
MAX_INSTRUCTIONS = 400  # beyond, compilation would take a minute
LINE = 16  # floats of a cache line
GROUPS = (2 * REGISTER, REGISTER)  # how many images lie side by side

TEMPLATE = '''"""Training steps, group by group; by pareo.backends.compiled.loops.groups.loop."""

import numpy as np

from pareo.backends.compiled.kernels import (
    activation_loops, elementwise_loops, gradient_sums, loss,
)
from pareo.backends.compiled.loops.groups import conv, dense, moves, pool
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.spin_barrier import spin_barrier


@jit
def run(
    worker, counter, order, dataset, labels, rate, momentum, decay, losses, shares, sums, groups,
    base, parameters, velocities, sizes,
):
    workers = sums.shape[0]
    images = moves.matrix(dataset, labels.size, {pixels})
    batch = order.shape[1]
    number = (batch + {lanes} - 1) // {lanes}
    first = {lanes} * (number * worker // workers)
    last = min(batch, {lanes} * (number * (worker + 1) // workers))
    share = np.float32(1) / np.float32(batch)
    arrivals = 0
    totals = sums[worker]
    sum_base = totals.ctypes.data
    rows = np.empty(({lanes}, {classes}), np.float32)
    errors = np.empty(({lanes}, {classes}), np.float32)
    chosen_labels = np.empty({lanes}, np.int64)
{before}
    for step in range(order.shape[0]):
        totals[:] = 0
        groups[worker] = 0
        total = 0.0
        chosen = order[step]
{per_step}
        for place in range(first, last, {lanes}):
            if place > first and (place - first) % {flush} == 0:
                gradient_sums.flush(groups[worker], totals)
            valid = min({lanes}, last - place)
            moves.gather({image}, images, chosen, place, last)
            for n in range(valid):
                chosen_labels[n] = labels[chosen[place + n]]
{lines}
        if last - first > {flush}:
            gradient_sums.flush(totals, groups[worker])
{after}
        shares[worker] = total
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
        if worker == 0:
            losses[step] = shares.sum() / batch
        moves.update(
            parameters, velocities, sizes, sums, worker, share, rate, momentum, decay
        )
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
'''


class _Generated:
    """The loop for groups of one size."""

    def __init__(self, program: Program, lanes: int) -> None:
        s = GroupSource(program, lanes)
        emit(s)
        self.floats = s.floats
        image = s.array(s.in_arena(s.image_at), program.specs[s.image].size, lanes)
        self.source = TEMPLATE.format(
            lanes=lanes,
            classes=s.classes,
            before=_indented(s.before, 4),
            per_step=_indented(s.per_step, 8),
            flush=GROUP,
            image=image,
            pixels=program.specs[s.image].size,
            lines=_indented(s.lines, 12),
            after=_indented(s.after, 8),
        )

    @cached_property
    def module(self) -> ModuleType:
        return generated_module(self.source)


class GroupLoop:
    """Steps of training of one network, compiled as a whole.

    Args:
        program: maps (parameters..., image, label) to (loss, gradients...), not fused.
    """

    def __init__(self, program: Program, threads: int) -> None:
        self.program, self.threads = program, threads
        self._sizes = [program.specs[n].size for n in program.inputs[:-2]]
        self._generated = {lanes: _Generated(program, lanes) for lanes in GROUPS}

    @property
    def bytes_of_group(self) -> int:
        """The bytes of the values of the largest group."""
        return 4 * max(generated.floats for generated in self._generated.values())

    def source(self, batch: int) -> str:
        """The text of the module for a batch size."""
        return self._generated[self._lanes(batch)[0]].source

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
        # Read-only arrays would have the loop compiled again.
        labels = np.array(labels, np.int64)
        places, moving = (
            np.array([array.ctypes.data for array in arrays], np.int64)
            for arrays in (parameters, velocities)
        )
        sizes = np.array(self._sizes, np.int64)
        run = generated.module.run

        def work(worker: int) -> None:
            arena = np.zeros(generated.floats + LINE, np.float32)
            base = -(-arena.ctypes.data // (4 * LINE)) * (4 * LINE)
            run(
                worker, counter, order, images.ctypes.data, labels, np.float32(rate),
                np.float32(momentum), np.float32(decay), losses, shares, sums, groups, base,
                places, moving, sizes,
            )  # fmt: skip

        run_concurrently(workers, work)
        return losses

    def nbytes(self, batch: int, momentum: bool) -> int:
        """The bytes of the workers' gradients, and of the values of one group for each."""
        lanes, workers = self._lanes(batch)
        return 4 * workers * (2 * sum(self._sizes) + self._generated[lanes].floats)

    def _lanes(self, batch: int) -> tuple[int, int]:
        """The images of a group and the number of workers for which a batch takes least time."""
        found = []
        for lanes in GROUPS:
            number = -(-batch // lanes)
            workers = max(1, min(self.threads, number))
            found.append((-(-number // workers) * lanes, -lanes, lanes, workers))
        return min(found)[2:]


def loop(program: Program, threads: int) -> tuple[GroupLoop | None, str]:
    """A loop for the gradient program of one image, and why it is used; or None and why not."""
    if any(program.specs[n].dtype != np.float32 for n in program.inputs[:-1]):
        return None, "the loop over groups of images has float32 only"
    found = costs.estimate(program)
    if not found.is_worth_it:
        return None, str(found)
    if len(program.instructions) > MAX_INSTRUCTIONS:
        return None, "the loop over groups of images would take too long to compile"
    try:
        made = GroupLoop(program, threads)
    except Unsupported as reason:
        return None, f"the loop over groups of images does not support {reason}"
    if made.bytes_of_group > MAX_BYTES:
        return (
            None,
            f"a group of images takes {made.bytes_of_group >> 20} MiB, too much for a cache",
        )
    return made, str(found)


def _indented(lines: list[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
