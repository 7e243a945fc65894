"""The table of instructions that lowered programs are made of.

Images are (N, H, W, C) in all of them, in the working precision: float32, or bfloat16 where the
device computes in it. What the optimiser reads and writes stays in float32.
"""

from typing import Any

import numpy as np

from pareo.program.kernel import Fusion, Kernel

INSTRUCTIONS: dict[str, Fusion] = {}
NOTHING = np.uint64(0)  # for a kernel, no array
NOT = -1  # the operand that a result may overwrite, where there is none


def offer(scratch: Any = None, in_place: Any = False, strided: bool = False) -> Any:
    """Enter a function as the kernel of an instruction of its name."""

    def enter(function: Any) -> Any:
        name = function.__name__
        INSTRUCTIONS[name] = Fusion(name, "", (), (), Kernel(function, in_place, strided, scratch))
        return function

    return enter
