"""Training over images in one compiled loop, for networks so small that calls would cost the most.

From the gradient program of one image a module is generated that you can read: for every step, each
worker runs its share of the batch image by image, with all that is in between in the nearest cache,
and adds up its gradients, in groups, and then those: a long sum rounds away what is added to it.
Then the workers meet, one of them moves the parameters, and they go on. The module lies in the
cache folder beside the machine code that Numba makes of it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.backends.compiled.loops.emit import write
from pareo.backends.compiled.loops.source import Unsuited, Writer
from pareo.backends.compiled.loops.templates import GROUP
from pareo.backends.compiled.runtime.generated import generated
from pareo.backends.threads import run_concurrently

MOST_PARAMETERS = 1 << 14
MOST_BYTES = 1 << 18  # of one image's values: what a core's own cache holds

TEMPLATE = '''"""Training steps, image by image; by pareo.backends.compiled.loops.network."""

import numpy as np

from pareo.backends.compiled.kernels import elementwise_loops as loops
from pareo.backends.compiled.kernels import loss
from pareo.backends.compiled.kernels import narrow_matvec as narrow
from pareo.backends.compiled.kernels import window_rows as windows
from pareo.backends.compiled.loops import runtime as parts
from pareo.backends.compiled.conv import register_tiles as tiles
from pareo.backends.compiled.runtime.jit import jit
{functions}

@jit
def run(
    worker, counter, order, images, labels, rate, momentum, decay, losses, shares, sums, groups,
    {names},
):
    workers = sums.shape[0]
    batch = order.shape[1]
    first = batch * worker // workers
    last = batch * (worker + 1) // workers
    met = 0
{views}
    for step in range(order.shape[0]):
        sums[worker] = 0
        total = 0.0
        for place in range(first, last):
            if place > first and (place - first) % {group} == 0:
                parts.move(groups[worker], sums[worker])
            chosen = order[step, place]
            {image} = images[chosen : chosen + 1]
            {label} = labels[chosen : chosen + 1]
{lines}
            total += {loss}
        if last - first > {group}:
            parts.move(sums[worker], groups[worker])
        shares[worker] = total
        met += workers
        parts.wait_for_all(counter.ctypes.data, met)
        if worker == 0:
            share = {one} / {one_of}(batch)
            parts.gather(sums)
            losses[step] = shares.sum() / batch
{updates}
        met += workers
        parts.wait_for_all(counter.ctypes.data, met)
'''


class Loop:
    """Steps of training on one network, compiled as a whole."""

    def __init__(self, program: Any, layout: Any, threads: int) -> None:
        """`program` maps (parameters..., image, label) to (loss, gradients...), fused."""
        self.program = program
        self.threads = threads
        self._count = len(program.inputs) - 2
        self._sizes = [program.specs[n].size for n in program.inputs[: self._count]]
        self._layout = layout
        self.source = self._write()
        self._run = generated(self.source).run

    def _write(self) -> str:
        program = self.program
        parameters, (image, label) = program.inputs[: self._count], program.inputs[-2:]
        results = dict(zip(program.outputs[1:], range(self._count), strict=True))
        if len(results) != self._count:
            raise Unsuited("parameters that share a gradient")
        writer = Writer(program, self._layout, {n: f"s{k}" for n, k in results.items()})
        write(writer)
        loss = writer.flat(program.outputs[0])
        own = list(self._layout.offsets)
        names = [f"v{n}" for n in parameters] + [f"m{k}" for k in range(self._count)]
        names += [f"v{n}" for n in own] + [f"v{n}" for n in program.constants]
        views, start = [], 0
        updates = []
        for n, size in zip(parameters, self._sizes, strict=True):
            k = parameters.index(n)
            shape = program.specs[n].shape
            views.append(f"s{k} = sums[worker, {start} : {start + size}].reshape({shape})")
            updates.append(
                f"parts.update(v{n}.reshape(-1), m{k}.reshape(-1), "
                f"sums[0, {start} : {start + size}], share, rate, momentum, decay)"
            )
            start += size
        return TEMPLATE.format(
            functions="\n".join(writer.functions),
            names=", ".join(names),
            views=_indented(views + writer.before, 4),
            image=f"v{image}",
            label=f"v{label}",
            lines=_indented(writer.lines, 12),
            loss=f"{loss}[0]",
            group=GROUP,
            one=f"v{parameters[0]}.dtype.type(1)",
            one_of=f"v{parameters[0]}.dtype.type",
            updates=_indented(updates, 12),
        )

    def __call__(
        self,
        parameters: Sequence[Any],
        velocities: Sequence[Any],
        images: Any,
        labels: Any,
        order: Any,
        rate: float,
        momentum: float,
        decay: float,
    ) -> Any:
        """Move parameters (and velocities) in place, one step for each row of order; the losses.

        Whoever calls has checked everything (`training.arguments`).
        """
        kind = parameters[0].dtype.type
        workers = self._workers(order.shape[1])
        losses, shares = np.zeros(len(order)), np.zeros(workers)
        sums, groups = np.zeros((2, workers, sum(self._sizes)), parameters[0].dtype)
        counter = np.zeros(1, np.int64)
        empty = [np.zeros(0, parameters[0].dtype)] * self._count

        def work(worker: int) -> None:
            arena = np.zeros(self._layout.bytes, np.uint8)
            own = [
                arena[offset : offset + self.program.specs[n].nbytes]
                .view(self.program.specs[n].dtype)
                .reshape(self.program.specs[n].shape)
                for n, offset in self._layout.offsets.items()
            ]
            self._run(
                worker, counter, order, images, labels, kind(rate), kind(momentum), kind(decay),
                losses, shares, sums, groups, *parameters, *(velocities or empty), *own,
                *self.program.constants.values(),
            )  # fmt: skip

        run_concurrently(workers, work)
        return losses

    def nbytes(self, batch: int, momentum: bool) -> int:
        """What the workers have: gradients, and the values of one image each."""
        each = 2 * 4 * sum(self._sizes) + int(self._layout.bytes)
        return self._workers(batch) * each

    def _workers(self, batch: int) -> int:
        return max(1, min(self.threads, batch // 4))


def loop(program: Any, layout: Any, threads: int) -> Loop | None:
    """A loop for the gradient program of one image, or None where it would not pay or not work."""
    count = sum(program.specs[n].size for n in program.inputs[:-2])
    single = all(program.specs[n].dtype == np.float32 for n in program.inputs[:-1])
    if count > MOST_PARAMETERS or layout.bytes > MOST_BYTES or not single:
        return None
    try:
        return Loop(program, layout, threads)
    except Unsuited:
        return None


def _indented(lines: list[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
