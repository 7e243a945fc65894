"""What a backend is: a table from operator names to kernels, and the fusions that it offers.

A kernel writes its result into `out`, which is C-contiguous, and returns nothing:

    @backend.kernel(in_place=True)
    def add(out, a, b):
        np.add(a, b, out=out)

An operator with several results gets a tuple of arrays as `out`. Attributes come by keyword.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pareo.device import Device, current
from pareo.errors import DeviceError, DtypeError, ShapeError
from pareo.operators.core import Operator, is_array
from pareo.spec import Spec

Scratch = Callable[..., Sequence[Spec]]
ALIGNMENT = 64  # bytes: where the values of a program start, for the widest instructions


@dataclass(frozen=True)
class Kernel:
    """How one backend computes one operator.

    in_place: `out` may be the very memory of an operand of the same shape: of any (True), or,
              result by result, of the operand at this position.
    strided:  operands may have any layout; otherwise they are made C-contiguous first.
    scratch:  from the specs of result and operands to those of the work arrays that the kernel
              wants as `scratch=`, so that a program can plan them.
    """

    function: Callable[..., None]
    in_place: bool | tuple[int, ...] = False
    strided: bool = True
    scratch: Scratch | None = None

    def may_overwrite(self, result: int, operand: int) -> bool:
        """Whether a result, by its position, may lie in the memory of an operand, by its own."""
        if isinstance(self.in_place, tuple):
            return self.in_place[result] == operand
        return self.in_place

    def workspace(self, out: Any, specs: Sequence[Spec], attributes: dict[str, Any]) -> list[Spec]:
        """The specs of the work arrays for one call."""
        return list(self.scratch(out, *specs, **attributes)) if self.scratch else []


@dataclass(frozen=True)
class Fusion:
    """Several instructions that a backend computes as one.

    The pattern is written as the instructions it replaces, one a line: `y = sigmoid(t)`. `inputs`
    are the kernel's operands in order, `gives` its results; everything else stays inside.
    `broadcasts` says that the kernel repeats operands as `add`, `sub`, `hadamard` and `div` do;
    otherwise it is only used where these read operands of their result's shape.
    """

    name: str
    pattern: str
    inputs: tuple[str, ...]
    gives: tuple[str, ...]
    kernel: Kernel
    when: Callable[..., bool] | None = None
    broadcasts: bool = False


@dataclass(frozen=True)
class Step:
    """Something to do on the values of a program.

    reads, writes: the values, by their numbers.
    work:          the work arrays that it writes to on its way.
    """

    run: Callable[[list[Any]], None]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    work: tuple[Any, ...] = ()


@dataclass(eq=False)
class Backend:
    """A table of kernels under the name of a device.

    members: whether a core trains one small network best alone, so that of many each goes through
             its `loop`; otherwise they are one program.
    """

    members: ClassVar[bool] = False
    name: str
    kernels: dict[str, Kernel] = field(default_factory=dict)
    fusions: list[Fusion] = field(default_factory=list)

    def apart(self, nbytes: int) -> int:
        """How many instructions lie at least between those that these bytes serve in turn.

        Where several run at once, the later ones would else wait for the earlier ones only for the
        sake of their memory.
        """
        return 0

    def spares(self, nbytes: int) -> bool:
        """Whether there is memory to lie idle in a plan of so many bytes."""
        return True

    def standing_bytes(self) -> int:
        """What it has come to keep for all programs, which no program's memory tells."""
        return 0

    def lowered(self, program: Any) -> Any:
        """A program rewritten for this backend before fusion; most take it as it is."""
        return program

    def loop(self, program: Any, layout: Any, threads: int) -> Any:
        """Many steps of training as one call, from the gradient program of one image.

        `program` maps (parameters..., image, label) to (loss, gradients...), prepared and planned.
        None where a backend has no such thing, or not for this program; the call gives None, and
        does nothing, where it has none for a batch size. Its `nbytes(batch, momentum)` are those
        that it works in, besides parameters, velocities and data; None likewise.
        """
        return None

    def steps(self, executable: Any, seeds: int) -> Any:
        """Many runs of a compiled training step as one call, on batches that an order picks.

        None where there is nothing better than one call after the other.
        """
        return None

    def in_data(self, program: Any, images: int) -> bool:
        """Whether such steps read their images, an input of the program, where the data lies."""
        return False

    def held(self, array: Any) -> Any:
        """Data that batches will be picked from, where this backend picks fastest."""
        return array

    def kernel(
        self,
        *,
        in_place: bool | tuple[int, ...] = False,
        strided: bool = True,
        scratch: Scratch | None = None,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Enter a function as the kernel of the operator that it is named after."""

        def enter(function: Callable[..., None]) -> Callable[..., None]:
            kernel = Kernel(function, in_place, strided, scratch)
            self.kernels[function.__name__.rstrip("_")] = kernel
            return function

        return enter

    def fusion(
        self,
        pattern: str,
        gives: str,
        *,
        when: Callable[..., bool] | None = None,
        scratch: Scratch | None = None,
        in_place: bool | tuple[int, ...] = False,
        strided: bool = False,
        broadcasts: bool = False,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Enter a function as a kernel for several instructions at once.

        Its positional parameters after `out` are named like the variables of the pattern. `when`
        is asked, with the specs of result and operands and the attributes, whether it applies.
        Whether the kernel repeats smaller operands is `broadcasts` (see `Fusion`).
        """

        def enter(function: Callable[..., None]) -> Callable[..., None]:
            names = [
                parameter.name
                for parameter in inspect.signature(function).parameters.values()
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ]
            kernel = Kernel(function, in_place, strided, scratch)
            results = tuple(gives.split())
            self.fusions.append(
                Fusion(
                    function.__name__, pattern, tuple(names[1:]), results, kernel, when, broadcasts
                )
            )
            return function

        return enter

    def find(self, name: str) -> Kernel:
        """The kernel of an operator."""
        if name not in self.kernels:
            raise DeviceError(f"the device '{self.name}' has no kernel for {name}")
        return self.kernels[name]

    def empty(self, spec: Spec) -> Any:
        """A new array of this spec, its elements not set."""
        return np.empty(spec.shape, spec.dtype)

    def arena(self, nbytes: int) -> Any:
        """Bytes, not set, from a multiple of the alignment on: a program's memory."""
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def admitted(self, name: str, array: Any) -> Any:
        """An operand as the kernels read it, checked."""
        if type(array) is np.ndarray:
            return array
        self.check(name, array)
        return self.plain(array)

    def plain(self, array: Any) -> Any:
        """The same memory without what a subclass of arrays makes of NumPy's functions."""
        return array if type(array) is np.ndarray else np.asarray(array)

    def reads(self, array: Any) -> bool:
        """Whether an array lies where this backend computes."""
        return isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)

    def check(self, name: str, array: Any) -> None:
        """Refuse an array that this backend cannot read."""
        if isinstance(array, np.ma.MaskedArray):
            raise DtypeError(f"{name} expects an array without a mask; fill it first")
        if not self.reads(array):
            raise DeviceError(
                f"{name} on '{self.name}' expects NumPy arrays; got one of "
                f"{type(array).__module__}, and nothing moves between devices unless asked"
            )

    def to_device(self, array: Any) -> Any:
        """An array of the host where this backend computes; itself where it lies there already."""
        return array

    def to_host(self, array: Any) -> Any:
        """The way back: an array of this backend as NumPy's."""
        return array

    def contiguous(self, array: Any) -> Any:
        """The array, C-contiguous; itself where it is already."""
        return np.ascontiguousarray(array).reshape(array.shape)

    def copy(self, target: Any, source: Any) -> None:
        """Write one array's elements over another's."""
        np.copyto(target, source)

    def share(self, a: Any, b: Any) -> bool:
        """Whether two arrays may have memory in common."""
        return np.may_share_memory(a, b)

    def address(self, array: Any) -> int:
        """Where an array's memory starts."""
        return int(array.__array_interface__["data"][0])

    def writable(self, array: Any) -> bool:
        """Whether an array may be written to."""
        return bool(array.flags.writeable)

    def enter(self, device: Device) -> None:
        """Refuse a device of this backend that the machine does not have."""

    def scope(self, device: Device) -> AbstractContextManager[Any]:
        """What must hold while kernels of this backend run on a device."""
        return np.errstate(all="ignore")

    def wait(self) -> None:
        """Wait until everything that was asked of the device is done."""

    def runner(self) -> Callable[[Callable[[], None], Sequence[Any]], None]:
        """What does some work again and again, given the work and the caller's arrays in use.

        A backend may remember what it did for the same arrays, and do it faster.
        """
        return lambda work, arrays: work()

    def perform(self, steps: Sequence[Step], values: list[Any]) -> None:
        """Do the steps of a program, as if one after the other."""
        for step in steps:
            step.run(values)

    def run(
        self,
        operator: Operator,
        out: Any,
        operands: Sequence[Any],
        attributes: dict[str, Any],
        specs: Sequence[Spec],
        result: Any,
    ) -> Any:
        """Compute one operator now, into `out` or into new arrays."""
        with self.scope(current()):
            return self._run(operator, out, operands, attributes, specs, result)

    def _run(
        self,
        operator: Operator,
        out: Any,
        operands: Sequence[Any],
        attributes: dict[str, Any],
        specs: Sequence[Spec],
        result: Any,
    ) -> Any:
        operands = [self.admitted(operator.name, operand) for operand in operands]
        kernel = self.find(operator.name)
        several = isinstance(result, tuple)
        if out is None and not several and kernel.strided and not kernel.scratch:  # as most are
            target = self.empty(result)
            kernel.function(target, *operands, **attributes)
            return target
        results = result if several else (result,)
        wanted = self._wanted(operator.name, out, results)
        places = [None if given is None else self.plain(given) for given in wanted]
        targets = [
            place
            if place is not None and self._fit(place, operands, kernel, position)
            else self.empty(spec)
            for position, (place, spec) in enumerate(zip(places, results, strict=True))
        ]
        if not kernel.strided:
            operands = [self.contiguous(a) for a in operands]
        more: dict[str, Any] = {}
        if kernel.scratch:
            work = kernel.workspace(result, specs, attributes)
            more["scratch"] = tuple(self.empty(spec) for spec in work)
        kernel.function(tuple(targets) if several else targets[0], *operands, **attributes, **more)
        for position, (given, place) in enumerate(zip(wanted, places, strict=True)):
            if place is not None:
                if place is not targets[position]:
                    self.copy(place, targets[position])
                targets[position] = given
        return tuple(targets) if several else targets[0]

    def _wanted(self, name: str, out: Any, results: Sequence[Spec]) -> list[Any]:
        """The arrays that the caller wants the results in, checked; None for a new one."""
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != len(results):
            if out is None:
                return [None] * len(results)
            raise ShapeError(f"{name} expects out to be {len(results)} arrays; got {len(given)}")
        for array, spec in zip(given, results, strict=True):
            if array is None:
                continue
            if not is_array(array):
                raise DtypeError(f"{name} expects out to be an array; got {array!r}")
            self.check(name, array)
            if array.dtype != spec.dtype:
                raise DtypeError(f"{name} expects out of dtype {spec.dtype}; got {array.dtype}")
            if array.shape != spec.shape:
                raise ShapeError(f"{name} expects out of shape {spec.shape}; got {array.shape}")
            if not self.writable(array):
                raise DtypeError(f"{name} expects out to be writable; got a read-only array")
        return given

    def _fit(self, out: Any, operands: Sequence[Any], kernel: Kernel, result: int) -> bool:
        """Whether a kernel may write straight into `out`, or must work beside it first."""
        if not out.flags.c_contiguous:
            return False
        for position, operand in enumerate(operands):
            if self.share(out, operand):
                same = self.address(operand) == self.address(out)
                same = same and operand.strides == out.strides and operand.shape == out.shape
                if not (same and kernel.may_overwrite(result, position)):
                    return False
        return True
