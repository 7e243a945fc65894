"""A program bound to a device and to its memory, ready to run again and again."""

import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from pareo.backends.base import Step
from pareo.device import Device
from pareo.errors import DtypeError, OutOfMemory, PareoError, ShapeError
from pareo.operators.core import Operator, as_array
from pareo.program import tree
from pareo.program.ir import Instruction, Program
from pareo.program.plan import fitting, kernel_of, plan
from pareo.program.update import Updates, prepared_with
from pareo.spec import Spec

_Run = Callable[[list[Any]], None]


class Executable:
    """A compiled program: call it with arrays, get its results.

    The results lie in memory that the executable owns and overwrites at the next call: copy what
    you want to keep. For the same reason it serves one thread at a time: compile one for each.
    """

    def __init__(self, program: Program, device: Device, updates: Updates | None = None) -> None:
        self.device = device
        self.updates: Updates = updates or {}
        backend = device.backend
        with device, backend.scope(device):  # the work arrays depend on its threads, or its card
            self.program, self._over = prepared_with(program, self.updates, backend)
            self.plan = fitting(self.program, backend, self._over)
        self._lock = threading.Lock()
        self._values: list[Any] = [None] * (max(self.program.specs, default=0) + 1)
        with device, backend.scope(device):
            self._arena = self._allocated()
            for number, array in self.program.constants.items():
                here = backend.contiguous(backend.to_device(array))
                self._values[number] = backend.admitted("a constant", here)
            for number, offset in self.plan.offsets.items():
                self._values[number] = self._placed(self.program.specs[number], offset)
            self._looks: dict[int, _Run] = {}  # by value: how it looks at the caller's memory
            self._steps = self._bound()
            self._borrowed = (*self.program.inputs, *self._over, *self._looks)
            self._runner = backend.runner()

    def _allocated(self) -> Any:
        """Memory for the plan, or for a tighter one where there is not enough."""
        arena = self.device.backend.arena
        try:
            with suppress(OutOfMemory):
                return arena(self.plan.bytes)
            self.plan = plan(self.program, self.device.backend, self._over, tight=True)
            return arena(self.plan.bytes)
        except OutOfMemory as error:
            needed = self.program.memory(on=self.device, updates=self.updates)
            raise error.predicted_by(needed) from error

    @property
    def nbytes(self) -> int:
        """The bytes of memory that this executable allocated for values and work arrays."""
        return int(self._arena.nbytes)

    def __call__(self, *arrays: Any) -> Any:
        if not self._lock.acquire(blocking=False):
            raise PareoError("this executable is running in another thread: compile one for each")
        try:
            with self.device, self.device.backend.scope(self.device):
                return self._run(self._checked(arrays))
        finally:
            self._lock.release()

    def bind(self, *arrays: Any) -> Callable[[], list[Any]]:
        """A run on these very arrays, to be made again and again; it gives the flat results.

        Who calls it sees to the device's scope, and to one thread at a time.
        """
        self._take(self._checked(arrays))

        def run() -> list[Any]:
            self._work()
            return self._results()

        return run

    def _run(self, arrays: list[Any]) -> Any:
        self._take(arrays)
        self._runner(self._work, arrays)
        results = self._results()
        self.release()
        return tree.filled(self.program.result, results)

    def _results(self) -> list[Any]:
        """The flat results; one that replaced an argument is that argument."""
        inputs, updates = self.program.inputs, self.updates
        return [
            self._values[inputs[updates[position]] if position in updates else number]
            for position, number in enumerate(self.program.outputs)
        ]

    def release(self) -> None:
        """Keep the caller's arrays alive no longer, nor what only looks at them."""
        for number in self._borrowed:
            self._values[number] = None

    def _take(self, arrays: list[Any]) -> None:
        values = self._values
        for number, array in zip(self.program.inputs, arrays, strict=True):
            values[number] = array
        for number, argument in self._over.items():
            values[number] = values[argument]
        for look in self._looks.values():
            look(values)

    def _work(self) -> None:
        """Every instruction, then the updates that could not be made in place."""
        values = self._values
        self.device.backend.perform(self._steps, values)
        for result, given in self.updates.items():
            number, argument = self.program.outputs[result], self.program.inputs[given]
            if number not in self._over and number != argument:
                self.device.backend.copy(values[argument], values[number])

    def _checked(self, arrays: tuple[Any, ...]) -> list[Any]:
        """The arguments as the program reads them: right in shape and dtype, and contiguous."""
        backend = self.device.backend
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
            given_as, array = array, backend.admitted(f"argument {position}", array)
            if array.dtype != spec.dtype:
                raise DtypeError(f"argument {position} must be {spec}; got {array.dtype}")
            if array.shape != spec.shape:
                raise ShapeError(f"argument {position} must be {spec}; got shape {array.shape}")
            if position in self.updates.values():
                if not (array.flags.c_contiguous and backend.writable(given_as)):
                    raise DtypeError(
                        f"argument {position} is updated: it must be contiguous and writable"
                    )
                if backend.share(array, self._arena):
                    raise PareoError(
                        f"argument {position} is updated, but lies in this executable's own "
                        "memory: copy the result first"
                    )
            elif not array.flags.c_contiguous or backend.share(array, self._arena):
                array = array.copy()
            found.append(array)
        return self._kept_apart(found) if self.updates else found

    def _kept_apart(self, arrays: list[Any]) -> list[Any]:
        """The arguments with copies of those that would change with another that is updated."""
        backend = self.device.backend
        updated = set(self.updates.values())
        spans = sorted(
            (backend.address(a), backend.address(a) + a.nbytes, position)
            for position, a in enumerate(arrays)
            if position in updated and a.nbytes
        )
        for (_, end, one), (start, _, other) in pairwise(spans):
            if start < end:
                raise PareoError(
                    f"arguments {min(one, other)} and {max(one, other)} are both updated, but "
                    "share memory"
                )
        starts = [start for start, _, _ in spans]
        apart = list(arrays)
        for position, array in enumerate(arrays):
            if position in updated or not array.nbytes:
                continue
            first = backend.address(array)
            before = bisect_left(starts, first + array.nbytes)
            if before and spans[before - 1][1] > first:
                apart[position] = array.copy()
        return apart

    def _placed(self, spec: Spec, offset: int) -> Any:
        piece = self._arena[offset : offset + spec.nbytes]
        return piece.view(spec.dtype).reshape(spec.shape)

    def _bound(self) -> list[Step]:
        """Each thing to do, with everything that is known already filled in.

        Views of the caller's memory are no steps: `_take` makes them again for each call.
        """
        steps: list[Step] = []
        for position, instruction in enumerate(self.program.instructions):
            attributes = dict(instruction.attributes)
            if instruction.outputs[0] in self.plan.views:
                assert isinstance(instruction.operator, Operator)
                assert instruction.operator.look is not None
                source, result = instruction.inputs[0], instruction.outputs[0]
                look = _look(instruction.operator.look, source, result, attributes)
                if self._values[source] is not None:
                    look(self._values)
                else:
                    self._looks[result] = look
                continue
            kernel = kernel_of(instruction, self.device.backend)
            if kernel.scratch:
                pieces = self.plan.scratch[position]
                attributes["scratch"] = tuple(self._placed(*piece) for piece in pieces)
            if self._over.keys().isdisjoint(instruction.outputs):
                results = tuple(self._values[number] for number in instruction.outputs)
                out = results if len(results) > 1 else results[0]
                run = _call(kernel.function, out, instruction.inputs, attributes)
            else:
                run = _update(kernel.function, instruction, attributes)
            work = attributes.get("scratch", ())
            steps.append(Step(run, instruction.inputs, instruction.outputs, work))
        return steps


def _number(name: str, spec: Spec, value: float) -> Any:
    """A Python number as an argument; a program's integers take whole numbers of their range."""
    if isinstance(value, bool) or (spec.dtype.kind in "iu" and not isinstance(value, int)):
        raise DtypeError(f"{name} must be {spec}; got {value!r}")
    try:
        return as_array(value, spec.dtype)
    except OverflowError:
        raise DtypeError(f"{name} must be {spec}; got {value!r}, which is too large") from None


def _call(
    function: Callable[..., None], out: Any, inputs: tuple[int, ...], attributes: dict[str, Any]
) -> _Run:
    def run(values: list[Any]) -> None:
        function(out, *[values[number] for number in inputs], **attributes)

    return run


def _update(
    function: Callable[..., None], instruction: Instruction, attributes: dict[str, Any]
) -> _Run:
    """A call whose result lies where the caller's argument lies, known only when it runs."""
    outputs, inputs = instruction.outputs, instruction.inputs

    def run(values: list[Any]) -> None:
        results = tuple(values[number] for number in outputs)
        out = results if len(results) > 1 else results[0]
        function(out, *[values[number] for number in inputs], **attributes)

    return run


def _look(look: Callable[..., Any], source: int, result: int, attributes: dict[str, Any]) -> _Run:
    def run(values: list[Any]) -> None:
        values[result] = look(values[source], **attributes)

    return run
