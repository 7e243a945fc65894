"""Training over images in one cooperative launch: a block for each image of a batch.

The kernel is written for a network and a batch size (`writer`). Every block keeps the parameters in
shared memory and takes one image at a time from pixels to gradients. Then each block adds up a
slice of all gradients, in a fixed order, and moves its parameters; all read them, and go on. Blocks
tell each other by words that carry the number of their step (`mail.cuh`), not by barriers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.backends.cuda import source
from pareo.backends.cuda.epoch.layers import Unsuited, layers_of
from pareo.backends.cuda.epoch.writer import Kernel
from pareo.operators.loss import check_labels

MOST_PARAMETERS = 1 << 14


@dataclass
class _Ready:
    """A kernel on the card, with the mail of its blocks."""

    kernel: Kernel
    function: Any
    mail: Any
    stamp: int = 1


class Loop:
    """Steps of training on one network, a launch for any number of them."""

    def __init__(self, program: Any) -> None:
        """`program` maps (parameters..., image, label) to (loss, gradients...)."""
        self.layers = layers_of(program)
        self._ready: dict[tuple[int, bool], _Ready] = {}

    def suits(self, batch: int, momentum: bool) -> bool:
        """Whether there is a kernel for a batch size."""
        try:
            Kernel(self.layers, batch, min(batch, 128), momentum)
        except Unsuited:
            return False
        return True

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

        All but `order` lie on the card already.
        """
        import cupy

        steps, batch = order.shape
        if steps == 0:
            return np.empty(0)
        ready = self._made(batch, bool(velocities))
        speeds = cupy.concatenate([v.ravel() for v in velocities]) if velocities else images
        losses = cupy.empty(steps)
        ready.function(
            (ready.kernel.blocks,), (ready.kernel.threads,),
            (
                *parameters, speeds, images, labels, cupy.asarray(order, np.int64), np.int32(steps),
                np.float32(rate), np.float32(momentum), np.float32(decay),
                losses, ready.mail, np.uint32(ready.stamp & 0xFFFFFFFF),
            ),
            shared_mem=ready.kernel.shared,
        )  # fmt: skip
        ready.stamp += steps
        start = 0
        for velocity in velocities:
            velocity[...] = speeds[start : start + velocity.size].reshape(velocity.shape)
            start += velocity.size
        found = losses.get()
        if np.isnan(found).any():  # which a wrong label makes it, too
            check_labels(labels, self.layers[-1].outputs)
        return found

    def _made(self, batch: int, momentum: bool) -> _Ready:
        """The kernel for a batch size, compiled when it is first asked for."""
        import cupy

        if (batch, momentum) not in self._ready:
            most = cupy.cuda.Device().attributes["MultiProcessorCount"]
            kernel = Kernel(self.layers, batch, blocks_for(batch, most), momentum)
            compiled = source.module(kernel.text, cooperative=True)
            function = compiled.function("epoch", shared=kernel.shared)
            mail = cupy.zeros(kernel.mail, np.uint64)
            self._ready[batch, momentum] = _Ready(kernel, function, mail)
        return self._ready[batch, momentum]


def blocks_for(batch: int, most: int) -> int:
    """As few blocks as take a batch in the fewest rounds.

    >>> blocks_for(128, 132), blocks_for(256, 132), blocks_for(1, 132)
    (128, 128, 1)
    """
    rounds = -(-batch // most)
    return -(-batch // rounds)


def loop(program: Any) -> Loop | None:
    """A loop for the gradient program of one image, or None where it would not pay or not work."""
    count = sum(program.specs[n].size for n in program.inputs[:-2])
    single = all(program.specs[n].dtype == np.float32 for n in program.inputs[:-1])
    if count > MOST_PARAMETERS or not single:
        return None
    try:
        return Loop(program)
    except Unsuited:
        return None
