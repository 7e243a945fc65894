"""The table of instructions of lowered programs.

All of them take images as (N, H, W, C), in the working precision: float32, or bfloat16 where that
is the device's precision. What the optimiser reads and writes stays float32.
"""

from collections.abc import Callable

from pareo.program.kernel import Fusion, Kernel, Scratch

Function = Callable[..., None]

INSTRUCTIONS: dict[str, Fusion] = {}
NO_OPERAND = -1  # for `in_place`: this result overwrites no operand


def instruction(
    scratch: Scratch | None = None,
    in_place: bool | tuple[int, ...] = False,
    strided: bool = False,
) -> Callable[[Function], Function]:
    """Enter a function as the kernel of the instruction that has its name."""

    def enter(function: Function) -> Function:
        name = function.__name__
        INSTRUCTIONS[name] = Fusion(name, "", (), (), Kernel(function, in_place, strided, scratch))
        return function

    return enter
