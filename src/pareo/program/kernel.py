"""What a program knows of kernels: the functions that a backend runs instructions with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pareo.array import Array
from pareo.spec import Spec

ALIGNMENT = 64  # bytes: values of a program start at multiples of it, for the widest instructions
Attribute: TypeAlias = Any  # an argument of an operator that is not an array, such as a tuple
Attributes: TypeAlias = dict[str, Attribute]
Scratch: TypeAlias = Callable[..., Sequence[Spec]]
Results: TypeAlias = Spec | tuple[Spec, ...]  # one spec, or a tuple of them for several results


@dataclass(frozen=True)
class Kernel:
    """How one backend computes one operator.

    in_place: `out` may be the memory of an operand of the same shape. True means any operand; a
              tuple names, for each result, the position of the one operand it may overwrite.
    strided:  operands may have any layout; otherwise they are made C-contiguous first.
    scratch:  a function from the specs of result and operands to the specs of the work arrays that
              the kernel takes as `scratch=`, so that a program can plan them.
    replayable: all that it does to arrays, it does by calls that its backend can record and repeat
              without it.
    """

    function: Callable[..., None]
    in_place: bool | tuple[int, ...] = False
    strided: bool = True
    scratch: Scratch | None = None
    replayable: bool = False

    def may_overwrite(self, result: int, operand: int) -> bool:
        """Whether the result at one position may use the memory of the operand at another."""
        if isinstance(self.in_place, tuple):
            return self.in_place[result] == operand
        return self.in_place

    def workspace(self, out: Results, specs: Sequence[Spec], attributes: Attributes) -> list[Spec]:
        """The specs of the work arrays for one call."""
        return list(self.scratch(out, *specs, **attributes)) if self.scratch else []


@dataclass(frozen=True)
class Fusion:
    """Several instructions that a backend computes with one kernel.

    The pattern is written as the instructions it replaces, one on each line: `y = sigmoid(t)`.
    `inputs` are the kernel's operands in order, `outputs` its results; all other values stay
    inside. `broadcasts` says that the kernel repeats operands as `add`, `sub`, `hadamard` and `div`
    do; otherwise it is only used where the operands of these have the shape of their result.
    """

    name: str
    pattern: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kernel: Kernel
    when: Callable[..., bool] | None = None
    broadcasts: bool = False


@dataclass(frozen=True)
class Call:
    """One kernel call of a compiled program; everything but the values is filled in.

    reads, writes: the values, by their numbers.
    scratch:       the work arrays that the kernel writes to.
    replayable:    whether the kernel is (see `Kernel`).
    """

    run: Callable[[list[Array]], None]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scratch: tuple[Array, ...] = ()
    replayable: bool = False
