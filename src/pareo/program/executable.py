"""A program bound to a device and to its memory, ready to run any number of times."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.device import Device
from pareo.errors import DtypeError, OutOfMemory, PareoError, ShapeError
from pareo.operators.core import Operator, as_array
from pareo.program import tree
from pareo.program.compiler import memory, prepared_with
from pareo.program.ir import Instruction, Program
from pareo.program.kernel import Attributes, Call
from pareo.program.plan import fitting_plan, kernel_of, plan
from pareo.program.target import Target
from pareo.program.update import Updates
from pareo.spec import Spec

_Run = Callable[[list[Array]], None]
Execute = Callable[[Sequence[Call], list[Array]], None]  # see `Target.execute`


class Executable:
    """A compiled program: call it with arrays to get its results.

    The results are in memory that the executable owns and overwrites at the next call: copy what
    you want to keep. For the same reason it serves one thread at a time: compile one for each.
    """

    def __init__(self, program: Program, device: Device, updates: Updates | None = None) -> None:
        self.device = device
        self.updates: Updates = updates or {}
        self._updated = set(self.updates.values())
        self._target: Target = device.backend
        target = self._target
        with device, target.scope(device):  # the work arrays depend on its threads, or its GPU
            self.program, self._over = prepared_with(program, self.updates, target)
            self.plan = fitting_plan(self.program, target, self._over)
        self._lock = threading.Lock()
        self._values: list[Array] = [None] * (max(self.program.specs, default=0) + 1)
        with device, target.scope(device):
            self._arena = self._allocated()
            for number, array in self.program.constants.items():
                here = target.contiguous(target.to_device(array))
                self._values[number] = target.as_operand("a constant", here)
            for number, offset in self.plan.offsets.items():
                self._values[number] = self._placed(self.program.specs[number], offset)
            self._views: dict[int, _Run] = {}  # how to make each view of the caller's memory
            self._calls = self._bound()
            self._borrowed = (*self.program.inputs, *self._over, *self._views)
            self._runner = target.runner()

    def _allocated(self) -> Array:
        """Memory for the plan, or for a tighter one where there is not enough."""
        arena = self._target.arena
        try:
            with suppress(OutOfMemory):
                return arena(self.plan.bytes)
            self.plan = plan(self.program, self._target, self._over, tight=True)
            return arena(self.plan.bytes)
        except OutOfMemory as error:
            needed = memory(self.program, self.device, self.updates)
            raise error.with_prediction(needed) from error

    @property
    def nbytes(self) -> int:
        """The bytes that this executable allocated for values and work arrays."""
        return int(self._arena.nbytes)

    @property
    def over(self) -> Mapping[int, int]:
        """The results that are written over an argument, with the argument: values by number."""
        return self._over

    def array(self, number: int) -> Array:
        """The memory of a value that is the executable's own; None for the caller's."""
        return None if number in self._borrowed else self._values[number]

    def scratch(self, position: int) -> tuple[Array, ...]:
        """The work arrays of the instruction at a position of the program."""
        return tuple(self._placed(*piece) for piece in self.plan.scratch.get(position, ()))

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """A scope in which this thread alone uses the executable and its memory."""
        if not self._lock.acquire(blocking=False):
            raise PareoError("this executable is running in another thread: compile one for each")
        try:
            with self.device, self._target.scope(self.device):
                yield
        finally:
            self._lock.release()

    def __call__(self, *arrays: object) -> Any:
        with self.claimed():
            return self._run(self._checked(arrays))

    @property
    def calls(self) -> Sequence[Call]:
        """One call for each instruction that is no view, in their order."""
        return self._calls

    @property
    def called(self) -> Sequence[Instruction]:
        """The instruction of each call."""
        return [i for i in self.program.instructions if i.outputs[0] not in self.plan.views]

    def bind(self, *arrays: object, execute: Execute | None = None) -> Callable[[], list[Array]]:
        """A function that runs the program on these arrays each time and returns the flat results.

        The caller enters the device's scope, and calls it from one thread at a time. `execute` runs
        the calls in place of the backend.
        """
        self._take(self._checked(arrays))

        def run() -> list[Array]:
            self._work(execute)
            return self._results()

        return run

    def _run(self, arrays: list[Array]) -> Any:
        self._take(arrays)
        self._runner(self._work, arrays)
        results = self._results()
        self.release()
        return tree.unflatten(self.program.result, results)

    def _results(self) -> list[Array]:
        """The flat results; one that replaced an argument is that argument."""
        inputs, updates = self.program.inputs, self.updates
        return [
            self._values[inputs[updates[position]] if position in updates else number]
            for position, number in enumerate(self.program.outputs)
        ]

    def release(self) -> None:
        """Drop the references to the caller's arrays and to views of them."""
        for number in self._borrowed:
            self._values[number] = None

    def _take(self, arrays: list[Array]) -> None:
        values = self._values
        for number, array in zip(self.program.inputs, arrays, strict=True):
            values[number] = array
        for number, argument in self._over.items():
            values[number] = values[argument]
        for make_view in self._views.values():
            make_view(values)

    def _work(self, execute: Execute | None = None) -> None:
        """Run every instruction, then the updates that could not be made in place."""
        values = self._values
        (execute or self._target.execute)(self._calls, values)
        for result, given in self.updates.items():
            number, argument = self.program.outputs[result], self.program.inputs[given]
            if number not in self._over and number != argument:
                self._target.copy(values[argument], values[number])

    def _checked(self, arrays: tuple[object, ...]) -> list[Array]:
        """The arguments as the program reads them: of the right shape and dtype, contiguous."""
        target = self._target
        numbers = self.program.inputs
        given = tree.leaves_like(self.program.arguments, arrays)
        if len(given) != len(numbers):
            raise TypeError(f"the program expects {len(numbers)} arrays; got {len(given)}")
        found = []
        for position, (number, value) in enumerate(zip(numbers, given, strict=True)):
            spec = self.program.specs[number]
            if isinstance(value, (int, float)):
                value = _number(f"argument {position}", spec, value)
            array = np.asarray(value) if isinstance(value, np.generic) else value
            given_as, array = array, target.as_operand(f"argument {position}", array)
            if array.dtype != spec.dtype:
                raise DtypeError(f"argument {position} must be {spec}; got {array.dtype}")
            if array.shape != spec.shape:
                raise ShapeError(f"argument {position} must be {spec}; got shape {array.shape}")
            if position in self._updated:
                if not (array.flags.c_contiguous and target.is_writable(given_as)):
                    raise DtypeError(
                        f"argument {position} is updated: it must be contiguous and writable"
                    )
                if target.may_share_memory(array, self._arena):
                    raise PareoError(
                        f"argument {position} is updated, but is in this executable's own "
                        "memory: copy the result first"
                    )
            elif not array.flags.c_contiguous or target.may_share_memory(array, self._arena):
                array = array.copy()
            found.append(array)
        return self._unaliased(found) if self.updates else found

    def _unaliased(self, arrays: list[Array]) -> list[Array]:
        """The arguments, with copies of those that share memory with an updated one."""
        address = self._target.address
        updated = self._updated
        spans = sorted(
            (start, start + a.nbytes, position)
            for position, a in enumerate(arrays)
            if position in updated and a.nbytes
            for start in (address(a),)
        )
        for (_, end, one), (start, _, other) in pairwise(spans):
            if start < end:
                raise PareoError(
                    f"arguments {min(one, other)} and {max(one, other)} are both updated, but "
                    "share memory"
                )
        starts = [start for start, _, _ in spans]
        unaliased = list(arrays)
        for position, array in enumerate(arrays):
            if position in updated or not array.nbytes:
                continue
            first = address(array)
            before = bisect_left(starts, first + array.nbytes)
            if before and spans[before - 1][1] > first:
                unaliased[position] = array.copy()
        return unaliased

    def _placed(self, spec: Spec, offset: int) -> Array:
        piece = self._arena[offset : offset + spec.nbytes]
        return piece.view(spec.dtype).reshape(spec.shape)

    def _bound(self) -> list[Call]:
        """One call for each instruction, with everything that is already known filled in.

        Views of the caller's memory are no calls: `_take` makes them again for each run.
        """
        calls: list[Call] = []
        for position, instruction in enumerate(self.program.instructions):
            attributes = dict(instruction.attributes)
            if instruction.outputs[0] in self.plan.views:
                assert isinstance(instruction.operator, Operator)
                assert instruction.operator.view_function is not None
                source, result = instruction.inputs[0], instruction.outputs[0]
                make = _view(instruction.operator.view_function, source, result, attributes)
                if self._values[source] is not None:
                    make(self._values)
                else:
                    self._views[result] = make
                continue
            kernel = kernel_of(instruction, self._target)
            if kernel.scratch:
                attributes["scratch"] = self.scratch(position)
            if self._over.keys().isdisjoint(instruction.outputs):
                results = tuple(self._values[number] for number in instruction.outputs)
                out = results if len(results) > 1 else results[0]
                run = _call(kernel.function, out, instruction.inputs, attributes)
            else:
                run = _update(kernel.function, instruction, attributes)
            scratch = attributes.get("scratch", ())
            calls.append(
                Call(run, instruction.inputs, instruction.outputs, scratch, kernel.replayable)
            )
        return calls


def _number(name: str, spec: Spec, value: float) -> Array:
    """A Python number as an argument; for an integer dtype it must be an int within its range."""
    if isinstance(value, bool) or (spec.dtype.kind in "iu" and not isinstance(value, int)):
        raise DtypeError(f"{name} must be {spec}; got {value!r}")
    try:
        return as_array(value, spec.dtype)
    except OverflowError:
        raise DtypeError(f"{name} must be {spec}; got {value!r}, which is too large") from None


def _call(
    function: Callable[..., None], out: Array, inputs: tuple[int, ...], attributes: Attributes
) -> _Run:
    def run(values: list[Array]) -> None:
        function(out, *[values[number] for number in inputs], **attributes)

    return run


def _update(
    function: Callable[..., None], instruction: Instruction, attributes: Attributes
) -> _Run:
    """A call that writes over the caller's argument, which is known only when it runs."""
    outputs, inputs = instruction.outputs, instruction.inputs

    def run(values: list[Array]) -> None:
        results = tuple(values[number] for number in outputs)
        out = results if len(results) > 1 else results[0]
        function(out, *[values[number] for number in inputs], **attributes)

    return run


def _view(function: Callable[..., Array], source: int, result: int, attributes: Attributes) -> _Run:
    def run(values: list[Array]) -> None:
        values[result] = function(values[source], **attributes)

    return run
