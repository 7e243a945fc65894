"""The table of the `compiled` device, which the family modules fill."""

from typing import Any

import numpy as np

from pareo.backends.base import Backend


class _Compiled(Backend):
    """The backend whose kernels Numba compiles."""

    members = True

    def admitted(self, name: str, array: Any) -> Any:
        """An operand; a read-only one through a second view that does not say so.

        Numba would compile every kernel anew for read-only arrays, and no kernel writes operands.
        """
        array = super().admitted(name, array)
        return array if array.flags.writeable else np.asarray(_Lent(array))

    def loop(self, program: Any, layout: Any, threads: int) -> Any:
        """A loop over batches for dense layers, over images for other very small networks."""
        from pareo.backends.compiled.loops import dense, network

        return dense.loop(program, threads) or network.loop(program, layout, threads)


class _Lent:
    """The memory of an array, kept alive, without its mark against writing."""

    def __init__(self, array: Any) -> None:
        self.array = array
        shown = array.__array_interface__
        self.__array_interface__ = {**shown, "data": (shown["data"][0], False)}


backend = _Compiled("compiled")

# Waking a worker costs some 30 microseconds; a stretch of this many cheap elements takes as long.
GRAIN = 1 << 16
