"""What a backend is: a table from operator names to kernels, and the fusions that it offers.

A kernel writes its result into `out`, which is C-contiguous, and returns nothing:

    @backend.kernel(in_place=True)
    def add(out, a, b):
        np.add(a, b, out=out)

An operator with several results gets a tuple of arrays as `out`. Attributes are passed by keyword.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from pareo.array import Array
from pareo.device import Device, current
from pareo.errors import DeviceError, DtypeError, ShapeError
from pareo.operators.core import Operator, is_array
from pareo.program import compiler
from pareo.program.executable import Executable
from pareo.program.ir import Program
from pareo.program.kernel import ALIGNMENT, Attributes, Call, Fusion, Kernel, Results, Scratch
from pareo.program.plan import Plan
from pareo.program.update import Updates
from pareo.spec import Spec

KernelFunction = Callable[..., None]


class TrainingLoop(Protocol):
    """Many steps of training as one call; all arguments have been checked."""

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
        """Update parameters and velocities in place, one step for each row of `order`.

        Returns the losses; None, with nothing done, where there is no loop for this batch size.
        """

    def nbytes(self, batch: int, momentum: bool) -> int | None:
        """The bytes that it works in, besides parameters, velocities and data; None likewise."""


class StepRunner(Protocol):
    """Many runs of a compiled training step as one call, on batches that the rows of order pick."""

    def __call__(
        self,
        parameters: Mapping[str, Array],
        slots: Mapping[str, Array],
        images: Array,
        labels: Array,
        order: Array,
        numbers: Array,
        seeds: Array,
    ) -> Array:
        """Update parameters and slots in place; return the losses.

        `numbers` and `seeds` have a row for each step: what the optimizer and dropout take.
        """

    @property
    def kept_bytes(self) -> int:
        """The bytes that it keeps, besides the memory of the executable and of the caller."""


Seen: TypeAlias = Callable[[int, float, float], object]  # position of a call, start, end


@runtime_checkable
class ClockedRunner(Protocol):
    """A `StepRunner` that can tell how long each call of the program takes, as it is trained."""

    def clocked(self, seen: Seen) -> AbstractContextManager[None]:
        """A scope in which seen(position, start, end) is called for each call of a step."""


@dataclass(eq=False)
class Backend:
    """A table of kernels under the name of a device.

    trains_members_separately: whether the small networks of a population train fastest one by one,
        each in a `training_loop` on one core; otherwise all of them are one program.
    """

    trains_members_separately: ClassVar[bool] = False
    name: str
    kernels: dict[str, Kernel] = field(default_factory=dict)
    fusions: list[Fusion] = field(default_factory=list)

    # Kernels

    def kernel(
        self,
        *,
        in_place: bool | tuple[int, ...] = False,
        strided: bool = True,
        scratch: Scratch | None = None,
        replayable: bool = False,
    ) -> Callable[[KernelFunction], KernelFunction]:
        """Enter a function as the kernel of the operator that it is named after."""

        def enter(function: KernelFunction) -> KernelFunction:
            kernel = Kernel(function, in_place, strided, scratch, replayable)
            self.kernels[function.__name__.rstrip("_")] = kernel
            return function

        return enter

    def fusion(
        self,
        pattern: str,
        outputs: str,
        *,
        when: Callable[..., bool] | None = None,
        scratch: Scratch | None = None,
        in_place: bool | tuple[int, ...] = False,
        strided: bool = False,
        broadcasts: bool = False,
        replayable: bool = False,
    ) -> Callable[[KernelFunction], KernelFunction]:
        """Enter a function as a kernel for several instructions at once (see `Fusion`).

        Its positional parameters after `out` are named like the variables of the pattern. `when` is
        called with the specs of result and operands and the attributes; it returns whether the
        kernel applies.
        """

        def enter(function: KernelFunction) -> KernelFunction:
            names = [
                parameter.name
                for parameter in inspect.signature(function).parameters.values()
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ]
            kernel = Kernel(function, in_place, strided, scratch, replayable)
            results = tuple(outputs.split())
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

    # Programs

    def compile(self, program: Program, device: Device, updates: Updates) -> Executable:
        """The program ready to run on a device of this backend: see `Program.compile`."""
        return Executable(program, device, updates)

    def memory(
        self, program: Program, device: Device, updates: Updates, data: int | None, tight: bool
    ) -> int:
        """The bytes that a run takes on a device of this backend: see `Program.memory`."""
        return compiler.memory(program, device, updates, data, tight)

    def lower(self, program: Program) -> Program:
        """Rewrite a program for this backend before fusion; by default it stays as it is."""
        return program

    def describe_lowering(self, program: Program) -> str:
        """What `lower` makes of a program, and why; empty where it changes nothing."""
        return ""

    def reuse_distance(self, nbytes: int) -> int:
        """Minimum number of instructions before a buffer of this size may be reused.

        Where several instructions run at the same time, a larger distance keeps later ones from
        waiting for earlier ones only because they share memory.
        """
        return 0

    def has_spare_memory(self, nbytes: int) -> bool:
        """Whether there is memory to spare for a plan of so many bytes that is not tight."""
        return True

    def persistent_bytes(self) -> int:
        """The bytes kept for all programs together, which the memory of no program includes."""
        return 0

    def runner(self) -> Callable[[Callable[[], None], Sequence[Array]], None]:
        """A function that does some work, given the work and the caller's arrays in use.

        A backend may record what it did for the same arrays, and replay it faster.
        """
        return lambda work, arrays: work()

    def execute(self, calls: Sequence[Call], values: list[Array]) -> None:
        """Run the calls of a program, with the same effect as one after the other."""
        for call in calls:
            call.run(values)

    # Training

    def training_loop(self, program: Program, plan: Plan, threads: int) -> TrainingLoop | None:
        """Many steps of training as one call; None where there is no such loop for this network.

        `program` is the gradient program of one image, prepared: it maps (parameters..., image,
        label) to (loss, gradients...).
        """
        return None

    def general_loop(
        self, program: Program, threads: int, state: Collection[int] = (), batch: int | None = None
    ) -> tuple[TrainingLoop | None, str]:
        """A loop for networks that `training_loop` does not know, and why it is used or is not.

        `program` is the gradient program of one image, as it was traced. In the place of the
        gradient of a parameter that is state it has the new value; `state` are the positions of
        such parameters. `batch` is the number of images of a step, if that is known.
        """
        return None, f"{self.name} has no loop for this network"

    def step_runner(self, executable: Executable, seeds: int) -> StepRunner | None:
        """Many runs of a compiled training step as one call.

        None where there is nothing better than one call after the other.
        """
        return None

    def has_table(self, program: Program, updates: Updates) -> bool:
        """Whether there is a `step_runner` for a step that is faster than any loop.

        `program` is the step as it was traced. The caller is in the scope of the device.
        """
        return False

    def place_dataset(self, array: Array) -> Array:
        """Copy a dataset to where this backend picks batches from fastest."""
        return array

    def reads_dataset_in_place(self, program: Program, images: int) -> bool:
        """Whether a `step_runner` reads `images`, an input of the program, from the dataset."""
        return False

    def split(self, work: Callable[[int, int, int], object], count: int) -> None:
        """Call work(part, start, stop) for consecutive parts of `count` items, each on a thread."""
        work(0, 0, count)

    def squaring(self, matrix: Array) -> Callable[[], Array]:
        """A function that multiplies a square matrix by itself, to measure the device's peak."""
        out = np.empty_like(matrix)
        return lambda: np.matmul(matrix, matrix, out=out)

    # Arrays

    def empty(self, spec: Spec) -> Array:
        """A new array of this spec, its elements not set."""
        return np.empty(spec.shape, spec.dtype)

    def arena(self, nbytes: int) -> Array:
        """Bytes, not set, that start at a multiple of `ALIGNMENT`: a program's memory."""
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def as_operand(self, name: str, array: Array) -> Array:
        """An operand as the kernels read it, checked; `name` is what errors call it."""
        if type(array) is np.ndarray:
            return array
        self.check(name, array)
        return self.without_subclass(array)

    def without_subclass(self, array: Array) -> Array:
        """The same memory as a plain array: subclasses may redefine NumPy's functions."""
        return array if type(array) is np.ndarray else np.asarray(array)

    def is_local(self, array: Array) -> bool:
        """Whether an array is in memory that this backend computes in."""
        return isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)

    def check(self, name: str, array: Array) -> None:
        """Raise an error for an array that this backend cannot read."""
        if isinstance(array, np.ma.MaskedArray):
            raise DtypeError(f"{name} expects an array without a mask; fill it first")
        if not self.is_local(array):
            raise DeviceError(
                f"{name} on '{self.name}' expects NumPy arrays; got one of "
                f"{type(array).__module__}, and nothing moves between devices unless asked"
            )

    def to_device(self, array: Array) -> Array:
        """A NumPy array copied to this backend's memory; itself where it is there already."""
        return array

    def to_host(self, array: Array) -> Array:
        """An array of this backend as a NumPy array; itself where it is one already."""
        return array

    def contiguous(self, array: Array) -> Array:
        """The array, C-contiguous; itself where it is already."""
        return np.ascontiguousarray(array).reshape(array.shape)

    def copy(self, target: Array, source: Array) -> None:
        """Copy the elements of one array to another."""
        np.copyto(target, source)

    def may_share_memory(self, a: Array, b: Array) -> bool:
        """Whether two arrays may have memory in common."""
        return np.may_share_memory(a, b)

    def address(self, array: Array) -> int:
        """The address of an array's first element."""
        return int(array.__array_interface__["data"][0])

    def is_writable(self, array: Array) -> bool:
        """Whether an array may be written to."""
        return bool(array.flags.writeable)

    # Devices

    def check_available(self, device: Device) -> None:
        """Raise `DeviceError` for a device of this backend that the machine does not have."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        """The context in which kernels of this backend run on a device."""
        return np.errstate(all="ignore")

    def wait(self) -> None:
        """Wait until the device has done everything that was asked of it."""

    # Single operators

    def run(
        self,
        operator: Operator,
        out: Array,
        operands: Sequence[Array],
        attributes: Attributes,
        specs: Sequence[Spec],
        result: Results,
    ) -> Array:
        """Compute one operator now, into `out` or into new arrays."""
        with self.scope(current()):
            return self._run(operator, out, operands, attributes, specs, result)

    def _run(
        self,
        operator: Operator,
        out: Array,
        operands: Sequence[Array],
        attributes: Attributes,
        specs: Sequence[Spec],
        result: Results,
    ) -> Array:
        operands = [self.as_operand(operator.name, operand) for operand in operands]
        kernel = self.find(operator.name)
        if out is None and kernel.strided and not kernel.scratch and isinstance(result, Spec):
            target = self.empty(result)  # the common case, without what follows
            kernel.function(target, *operands, **attributes)
            return target
        several = isinstance(result, tuple)
        results = result if isinstance(result, tuple) else (result,)
        wanted = self._wanted(operator.name, out, results)
        places = [None if given is None else self.without_subclass(given) for given in wanted]
        targets = [
            place
            if place is not None and self._can_write(place, operands, kernel, position)
            else self.empty(spec)
            for position, (place, spec) in enumerate(zip(places, results, strict=True))
        ]
        if not kernel.strided:
            operands = [self.contiguous(a) for a in operands]
        more: Attributes = {}
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

    def _wanted(self, name: str, out: Array, results: Sequence[Spec]) -> list[Array]:
        """The arrays to write the results to, checked; None for a new one."""
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
            if not self.is_writable(array):
                raise DtypeError(f"{name} expects out to be writable; got a read-only array")
        return given

    def _can_write(
        self, out: Array, operands: Sequence[Array], kernel: Kernel, result: int
    ) -> bool:
        """Whether a kernel may write to `out` itself; otherwise its result is copied there."""
        if not out.flags.c_contiguous:
            return False
        for position, operand in enumerate(operands):
            if self.may_share_memory(out, operand):
                same = self.address(operand) == self.address(out)
                same = same and operand.strides == out.strides and operand.shape == out.shape
                if not (same and kernel.may_overwrite(result, position)):
                    return False
        return True
