"""Training in one compiled loop over images, for networks so small that calls dominate the time.

A readable module is generated from the gradient program of one image. In every step, each worker
runs its share of the batch image by image, so that all values stay in the fastest cache. It adds up
its gradients in groups, and then the groups, because a long sum would round away small terms. Then
the workers meet at a barrier, one of them updates the parameters, and they continue. The module is
stored in the cache directory, beside its machine code.
"""

from collections.abc import Sequence

import numpy as np

from pareo.backends.compiled.kernels.gradient_sums import GROUP
from pareo.backends.compiled.loops.emit import emit
from pareo.backends.compiled.loops.source import LoopSource, Unsupported, indented
from pareo.backends.compiled.runtime.generated_module import generated_module
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.backends.threads import run_concurrently
from pareo.program.ir import Program
from pareo.program.plan import Plan

MAX_PARAMETERS = 1 << 14
MAX_BYTES = 1 << 18  # of one image's values, which must fit into a core's own cache

TEMPLATE = '''"""Training steps, image by image; by pareo.backends.compiled.loops.network."""

import numpy as np

from pareo.backends.compiled.conv import register_tiles
from pareo.backends.compiled.kernels import elementwise_loops, gradient_sums, loss
from pareo.backends.compiled.loops import narrow_matvec, window_rows
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.spin_barrier import spin_barrier
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
    arrivals = 0
{views}
    for step in range(order.shape[0]):
        sums[worker] = 0
        total = 0.0
        for place in range(first, last):
            if place > first and (place - first) % {group} == 0:
                gradient_sums.flush(groups[worker], sums[worker])
            chosen = order[step, place]
            {image} = images[chosen : chosen + 1]
            {label} = labels[chosen : chosen + 1]
{lines}
            total += {loss}
        if last - first > {group}:
            gradient_sums.flush(sums[worker], groups[worker])
        shares[worker] = total
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
        if worker == 0:
            share = {one} / {one_of}(batch)
            gradient_sums.add_workers(sums)
            losses[step] = shares.sum() / batch
{updates}
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
'''


class NetworkLoop:
    """Steps of training of one network, compiled as a whole.

    Args:
        program: maps (parameters..., image, label) to (loss, gradients...), fused.
        plan: where its values lie in memory.
    """

    def __init__(self, program: Program, plan: Plan, threads: int) -> None:
        self.program = program
        self.threads = threads
        self._count = len(program.inputs) - 2
        self._sizes = [program.specs[n].size for n in program.inputs[: self._count]]
        self._plan = plan
        self.source = self._source()
        self._module = generated_module(self.source)

    def _source(self) -> str:
        program = self.program
        parameters, (image, label) = program.inputs[: self._count], program.inputs[-2:]
        results = dict(zip(program.outputs[1:], range(self._count), strict=True))
        if len(results) != self._count:
            raise Unsupported("parameters that share a gradient")
        source = LoopSource(program, self._plan, {n: f"s{k}" for n, k in results.items()})
        emit(source)
        loss = source.flat(program.outputs[0])
        own = list(self._plan.offsets)
        names = [f"v{n}" for n in parameters] + [f"m{k}" for k in range(self._count)]
        names += [f"v{n}" for n in own] + [f"v{n}" for n in program.constants]
        views, start = [], 0
        updates = []
        for n, size in zip(parameters, self._sizes, strict=True):
            k = parameters.index(n)
            shape = program.specs[n].shape
            views.append(f"s{k} = sums[worker, {start} : {start + size}].reshape({shape})")
            updates.append(
                f"gradient_sums.update(v{n}.reshape(-1), m{k}.reshape(-1), "
                f"sums[0, {start} : {start + size}], share, rate, momentum, decay)"
            )
            start += size
        return TEMPLATE.format(
            functions="\n".join(source.functions),
            names=", ".join(names),
            views=indented(views + source.before, 4),
            image=f"v{image}",
            label=f"v{label}",
            lines=indented(source.lines, 12),
            loss=f"{loss}[0]",
            group=GROUP,
            one=f"v{parameters[0]}.dtype.type(1)",
            one_of=f"v{parameters[0]}.dtype.type",
            updates=indented(updates, 12),
        )

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
        kind = parameters[0].dtype.type
        workers = self._workers(order.shape[1])
        losses, shares = np.zeros(len(order)), np.zeros(workers)
        sums, groups = np.zeros((2, workers, sum(self._sizes)), parameters[0].dtype)
        counter = np.zeros(1, np.int64)
        empty = [np.zeros(0, parameters[0].dtype)] * self._count

        def work(worker: int) -> None:
            arena = np.zeros(self._plan.bytes, np.uint8)
            own = [
                arena[offset : offset + self.program.specs[n].nbytes]
                .view(self.program.specs[n].dtype)
                .reshape(self.program.specs[n].shape)
                for n, offset in self._plan.offsets.items()
            ]
            self._module.run(
                worker, counter, order, images, labels, kind(rate), kind(momentum), kind(decay),
                losses, shares, sums, groups, *parameters, *(velocities or empty), *own,
                *self.program.constants.values(),
            )  # fmt: skip

        run_concurrently(workers, work)
        return losses

    def nbytes(self, batch: int, momentum: bool) -> int:
        """The bytes of the workers' gradients, and of the values of one image for each."""
        each = 2 * 4 * sum(self._sizes) + int(self._plan.bytes)
        return self._workers(batch) * each

    def _workers(self, batch: int) -> int:
        return max(1, min(self.threads, batch // 4))


def loop(program: Program, plan: Plan, threads: int) -> NetworkLoop | None:
    """A loop for the gradient program of one image; None if it is too large or not supported."""
    count = sum(program.specs[n].size for n in program.inputs[:-2])
    single = all(program.specs[n].dtype == np.float32 for n in program.inputs[:-1])
    if count > MAX_PARAMETERS or plan.bytes > MAX_BYTES or not single:
        return None
    try:
        return NetworkLoop(program, plan, threads)
    except Unsupported:
        return None
