"""Training steps in one cooperative launch of a kernel generated for a network and a batch size.

For a small network each block computes an image (`source`): it keeps all parameters in shared
memory and computes the gradients of its image. Then each block sums a slice of the gradients of all
images, in a fixed order, and updates its slice of the parameters, which all blocks read before the
next step. Blocks communicate by words that carry the number of their step (`messages.cuh`), not by
barriers.

For dense layers with more parameters each block computes tiles of matrix products (`tiled`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.epoch import tiled
from pareo.backends.cuda.epoch.emit import rounded
from pareo.backends.cuda.epoch.layers import Layer, UnsupportedNetwork, layers_of
from pareo.backends.cuda.epoch.source import PerImageKernel
from pareo.backends.cuda.runtime import memory, source
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.operators.loss import check_labels
from pareo.program.ir import Program

MOST_PARAMETERS = 1 << 14  # each block reads all of them in every step
LEAST_SHARED = 64 * 1024
MASK = 0xFFFFFFFF  # stamps and counts wrap around, as in the kernel


class PerImageRunner:
    """The kernel with an image for each block (`source`), compiled and with its memory."""

    def __init__(
        self, layers: list[Layer], batch: int, momentum: bool, exact: bool, processors: int
    ) -> None:
        """It computes in float32 even if `exact` is False: arithmetic is not its bottleneck."""
        self.kernel = PerImageKernel(layers, batch, blocks_for(batch, processors), momentum)
        self._function = _compiled(self.kernel)
        self._messages = cupy.zeros(self.kernel.message_words, np.uint64)
        self._stamp = 1
        speeds = sum(layer.parameters for layer in layers) if momentum else 0
        self.nbytes = self._messages.nbytes + 4 * speeds

    def run(self, parameters: Sequence[Array], velocities: Sequence[Array], *more: Array) -> None:
        *data, losses = more
        speeds = cupy.concatenate([v.ravel() for v in velocities]) if velocities else losses
        end = losses, self._messages, np.uint32(self._stamp & MASK)
        _launch(self._function, self.kernel, (*parameters, speeds, *data, *end))
        self._stamp += losses.size
        start = 0
        for velocity in velocities:
            velocity[...] = speeds[start : start + velocity.size].reshape(velocity.shape)
            start += velocity.size


class TiledRunner:
    """The kernel with tiles of products for each block (`tiled`), compiled and with its memory."""

    def __init__(
        self, layers: list[Layer], batch: int, momentum: bool, exact: bool, processors: int
    ) -> None:
        self.kernel = tiled.TiledKernel(layers, batch, processors, momentum, exact)
        self._function = _compiled(self.kernel)
        self._work = cupy.zeros(sum(map(rounded, self.kernel.work.values())), np.float32)
        self._count = cupy.zeros(1, np.uint32)
        self._goal = 0
        self.nbytes = self._work.nbytes + self._count.nbytes

    def run(self, parameters: Sequence[Array], velocities: Sequence[Array], *more: Array) -> None:
        end = self._work, self._count, np.uint32(self._goal & MASK)
        _launch(self._function, self.kernel, (*parameters, *velocities, *more, *end))
        self._goal += more[-1].size * self.kernel.barriers * self.kernel.blocks


def _compiled(kernel: PerImageKernel | tiled.TiledKernel) -> Any:
    if kernel.shared > cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]:
        raise UnsupportedNetwork("more shared memory than this GPU has")
    module = source.module(kernel.text, cooperative=True)
    # The limit without opting in includes static arrays, so opt in to at least LEAST_SHARED.
    return module.function("epoch", shared=max(kernel.shared, LEAST_SHARED))


def _launch(
    function: Any, kernel: PerImageKernel | tiled.TiledKernel, arguments: tuple[Any, ...]
) -> None:
    function((kernel.blocks,), (kernel.threads,), arguments, shared_mem=kernel.shared)


class Loop:
    """Training steps of one network, any number of them in one launch."""

    def __init__(
        self, layers: list[Layer], kind: type[PerImageRunner] | type[TiledRunner], exact: bool
    ) -> None:
        self.layers = layers
        self._kind, self._exact = kind, exact
        self._ready: dict[tuple[int, bool], PerImageRunner | TiledRunner | None] = {}

    def __call__(
        self,
        parameters: Sequence[Array],
        velocities: Sequence[Array],
        images: Array,
        labels: Array,
        order: Array,
        rate: float,
        momentum: float,
        decay: float,
    ) -> Array | None:
        """Update parameters (and velocities) in place, one step for each row of `order`.

        All arrays but `order` are on the GPU. Returns the losses, or None where the batch is too
        large for a kernel or no kernel can read an array's layout.
        """
        steps, batch = order.shape
        if steps == 0:
            return np.empty(0)
        made = self._made(batch, bool(velocities))
        if made is None or not all(map(_whole, (*parameters, *velocities, images, labels))):
            return None
        there = memory.to_device(order).astype(np.int64, copy=False)
        losses = cupy.empty(steps)
        made.run(
            parameters, velocities, images, labels, there, np.int32(steps),
            np.float32(rate), np.float32(momentum), np.float32(decay), losses,
        )  # fmt: skip
        found = memory.to_host(losses)
        if np.isnan(found).any():  # perhaps because of a wrong label
            check_labels(labels, self.layers[-1].outputs)
        return found

    def nbytes(self, batch: int, momentum: bool) -> int | None:
        """Bytes of work memory of the kernel for a batch size; None where there is no kernel."""
        made = self._made(batch, momentum)
        return None if made is None else int(made.nbytes)

    def _made(self, batch: int, momentum: bool) -> PerImageRunner | TiledRunner | None:
        """The kernel for a batch size, compiled on first use; None where there is none."""
        if (batch, momentum) not in self._ready:
            attributes = cupy.cuda.Device().attributes
            try:
                processors = attributes["MultiProcessorCount"]
                made = self._kind(self.layers, batch, momentum, self._exact, processors)
            except UnsupportedNetwork:
                made = None
            self._ready[batch, momentum] = made
        return self._ready[batch, momentum]


def _whole(array: Array) -> bool:
    """Whether an array is contiguous, and aligned for loads of four floats."""
    return bool(array.flags.c_contiguous) and array.data.ptr % 16 == 0


def blocks_for(batch: int, most: int) -> int:
    """The fewest blocks that process a batch in the fewest rounds.

    >>> blocks_for(128, 132), blocks_for(256, 132), blocks_for(1, 132)
    (128, 128, 1)
    """
    rounds = -(-batch // most)
    return -(-batch // rounds)


def loop(program: Program, exact: bool = True) -> Loop | None:
    """A loop for the gradient program of one image, or None where there is no kernel for it.

    With `exact`, products are computed in float32; otherwise their factors may be rounded to TF32.
    """
    count = sum(program.specs[n].size for n in program.inputs[:-2])
    if any(program.specs[n].dtype != np.float32 for n in program.inputs[:-1]):
        return None
    try:
        layers = layers_of(program)
        if count <= MOST_PARAMETERS:
            PerImageKernel(layers, 1, 1)
            return Loop(layers, PerImageRunner, exact)
        tiled.TiledKernel(layers, 1, 1)
        return Loop(layers, TiledRunner, exact)
    except UnsupportedNetwork:
        return None
