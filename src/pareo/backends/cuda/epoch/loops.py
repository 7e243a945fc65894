"""Training over images in one cooperative launch, written for a network and a batch size.

A small network has an image a block (`writer`): every block keeps the parameters in shared memory
and takes its image from pixels to gradients. Then each block adds up a slice of all gradients, in a
fixed order, and moves its parameters; all read them, and go on. Blocks tell each other by words
that carry the number of their step (`mail.cuh`), not by barriers.

Dense layers with more parameters than that have a tile of a product a block (`tiled`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.backends.cuda.epoch import tiled
from pareo.backends.cuda.epoch.emit import rounded
from pareo.backends.cuda.epoch.layers import Unsuited, layers_of
from pareo.backends.cuda.epoch.source import Kernel
from pareo.backends.cuda.runtime import memory, source
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.operators.loss import check_labels

MOST_PARAMETERS = 1 << 14  # that every block reads in every step
LEAST_SHARED = 64 * 1024
MASK = 0xFFFFFFFF  # stamps and counts wrap around, as they do in the kernel


class Images:
    """The kernel that gives an image a block (`writer`), on the card."""

    def __init__(
        self, layers: list[Any], batch: int, momentum: bool, exact: bool, processors: int
    ) -> None:
        """Float32 whatever is asked for: what it computes is not its limit."""
        self.kernel = Kernel(layers, batch, blocks_for(batch, processors), momentum)
        self._function = _compiled(self.kernel)
        self._mail = cupy.zeros(self.kernel.mail, np.uint64)
        self._stamp = 1
        speeds = sum(layer.parameters for layer in layers) if momentum else 0
        self.nbytes = self._mail.nbytes + 4 * speeds

    def run(self, parameters: Sequence[Any], velocities: Sequence[Any], *more: Any) -> None:
        *data, losses = more
        speeds = cupy.concatenate([v.ravel() for v in velocities]) if velocities else losses
        end = losses, self._mail, np.uint32(self._stamp & MASK)
        _launch(self._function, self.kernel, (*parameters, speeds, *data, *end))
        self._stamp += losses.size
        start = 0
        for velocity in velocities:
            velocity[...] = speeds[start : start + velocity.size].reshape(velocity.shape)
            start += velocity.size


class Tiles:
    """The kernel that gives a tile of a product a block (`tiled`), on the card."""

    def __init__(
        self, layers: list[Any], batch: int, momentum: bool, exact: bool, processors: int
    ) -> None:
        self.kernel = tiled.Kernel(layers, batch, processors, momentum, exact)
        self._function = _compiled(self.kernel)
        self._work = cupy.zeros(sum(map(rounded, self.kernel.work.values())), np.float32)
        self._count = cupy.zeros(1, np.uint32)
        self._goal = 0
        self.nbytes = self._work.nbytes + self._count.nbytes

    def run(self, parameters: Sequence[Any], velocities: Sequence[Any], *more: Any) -> None:
        end = self._work, self._count, np.uint32(self._goal & MASK)
        _launch(self._function, self.kernel, (*parameters, *velocities, *more, *end))
        self._goal += more[-1].size * self.kernel.barriers * self.kernel.blocks


def _compiled(kernel: Any) -> Any:
    if kernel.shared > cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]:
        raise Unsuited("more shared memory than this card has")
    module = source.module(kernel.text, cooperative=True)
    # What a kernel has without asking includes its static arrays, so it asks in any case.
    return module.function("epoch", shared=max(kernel.shared, LEAST_SHARED))


def _launch(function: Any, kernel: Any, arguments: tuple[Any, ...]) -> None:
    function((kernel.blocks,), (kernel.threads,), arguments, shared_mem=kernel.shared)


class Loop:
    """Steps of training on one network, a launch for any number of them."""

    def __init__(self, layers: list[Any], kind: type[Images] | type[Tiles], exact: bool) -> None:
        self.layers = layers
        self._kind, self._exact = kind, exact
        self._ready: dict[tuple[int, bool], Images | Tiles | None] = {}

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

        All but `order` lie on the card already. None where a batch is too large for a kernel, or an
        array lies as none can read it.
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
        if np.isnan(found).any():  # which a wrong label makes it, too
            check_labels(labels, self.layers[-1].outputs)
        return found

    def nbytes(self, batch: int, momentum: bool) -> int | None:
        """What the kernel for a batch size works in; None where there is none."""
        made = self._made(batch, momentum)
        return None if made is None else int(made.nbytes)

    def _made(self, batch: int, momentum: bool) -> Images | Tiles | None:
        """The kernel for a batch size, compiled when it is first asked for; None: there is none."""
        if (batch, momentum) not in self._ready:
            card = cupy.cuda.Device().attributes
            try:
                processors = card["MultiProcessorCount"]
                made = self._kind(self.layers, batch, momentum, self._exact, processors)
            except Unsuited:
                made = None
            self._ready[batch, momentum] = made
        return self._ready[batch, momentum]


def _whole(array: Any) -> bool:
    """Whether an array lies in one piece, where four floats can be read at once."""
    return bool(array.flags.c_contiguous) and array.data.ptr % 16 == 0


def blocks_for(batch: int, most: int) -> int:
    """As few blocks as take a batch in the fewest rounds.

    >>> blocks_for(128, 132), blocks_for(256, 132), blocks_for(1, 132)
    (128, 128, 1)
    """
    rounds = -(-batch // most)
    return -(-batch // rounds)


def loop(program: Any, exact: bool = True) -> Loop | None:
    """A loop for the gradient program of one image, or None where there is no kernel for it.

    `exact` is float32; else products may round what they multiply to TF32.
    """
    count = sum(program.specs[n].size for n in program.inputs[:-2])
    if any(program.specs[n].dtype != np.float32 for n in program.inputs[:-1]):
        return None
    try:
        layers = layers_of(program)
        if count <= MOST_PARAMETERS:
            Kernel(layers, 1, 1)
            return Loop(layers, Images, exact)
        tiled.Kernel(layers, 1, 1)
        return Loop(layers, Tiles, exact)
    except Unsuited:
        return None
