"""Training steps whose instructions are recorded once, and then repeated without Python.

Python takes 10 to 30 microseconds for an instruction, and as long to share it with another thread,
because only one of them runs Python at a time. Repeated calls of compiled functions (see `replay`)
take one or two. So the first step on some arrays runs as it is, which compiles what it calls, the
second one is recorded, and all others are repeated. Instructions that cannot be recorded run in
between, as they are.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.base import Seen
from pareo.backends.compiled.backend import backend
from pareo.backends.compiled.runtime.jit import recorded
from pareo.backends.compiled.runtime.recording import Phase
from pareo.backends.compiled.runtime.replay import DIFFERENT, FAILED, NO_TIMES, Replay
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.errors import PareoError
from pareo.program.executable import Executable
from pareo.program.kernel import Call


@dataclass(frozen=True)
class Stretch:
    """Some calls of a program, one after the other, and their recording if there is one.

    ends: for each call, the number of phases up to its end.
    """

    calls: list[Call]
    replay: Replay | None = None
    ends: tuple[int, ...] = ()

    def run(self, values: list[Array]) -> None:
        """Do what the calls do."""
        self._run(values, NO_TIMES)

    def clocked(self, values: list[Array]) -> list[tuple[float, float]]:
        """The same; for each call, when it began and ended."""
        if self.replay is None:
            start = time.perf_counter()
            self._run(values, NO_TIMES)
            return [(start, time.perf_counter())]
        times = np.zeros(1 + max(self.ends, default=0), np.int64)
        self._run(values, times)
        seconds = 1e-9 * times
        starts = [0, *self.ends[:-1]]
        return [(seconds[a], seconds[b]) for a, b in zip(starts, self.ends, strict=True)]

    def _run(self, values: list[Array], times: Array) -> None:
        if self.replay is None:
            for call in self.calls:
                call.run(values)
            return
        phase = 0
        while phase < self.ends[-1]:
            ended, phase = self.replay.run(times, phase)
            if ended == FAILED:
                raise PareoError("a compiled function failed in a recorded step")
            if ended == DIFFERENT:
                position = bisect_right(self.ends, phase - 1)
                self.calls[position].run(values)  # it goes another way this time
                phase = self.ends[position]


class RecordedCalls:
    """The calls of a program on arrays that stay where they are, in the place of `execute`.

    `seen`, if it is not None, gets the position, start and end of each recorded call.
    """

    def __init__(self, threads: int, borrowed: Sequence[Array], seen: Seen | None = None) -> None:
        self.seen = seen
        self._threads = threads
        self._spans = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in borrowed)
        self._has_run = False
        self._stretches: list[Stretch] = []

    @property
    def nbytes(self) -> int:
        """The bytes of the recording."""
        return sum(s.replay.nbytes for s in self._stretches if s.replay is not None)

    def __call__(self, calls: Sequence[Call], values: list[Array]) -> None:
        """Run the calls: first as they are, then recording them, then by the recording."""
        if not self._stretches:
            if not self._has_run or not self._record(calls, values):
                for call in calls:
                    call.run(values)
            self._has_run = True
            return
        if self.seen is None:
            for stretch in self._stretches:
                stretch.run(values)
            return
        number = 0
        for stretch in self._stretches:
            for start, end in stretch.clocked(values):
                self.seen(number, start, end)
                number += 1

    def _record(self, calls: Sequence[Call], values: list[Array]) -> bool:
        """Run the calls and record them; False, and nothing is done, while another thread does."""
        with recorded() as recording:
            if recording is None:
                return False
            stretches: list[Stretch] = []
            phases: list[Phase] = []
            ends: list[int] = []
            some: list[Call] = []

            def close() -> None:
                if some:
                    stretches.append(self._stretch(list(some), list(phases), tuple(ends)))
                for kept in (some, phases, ends):
                    kept.clear()

            for call in calls:
                recording.phases, recording.refused = [], ""
                call.run(values)
                if call.replayable and not recording.refused:
                    some.append(call)
                    phases += recording.phases
                    ends.append(len(phases))
                else:
                    close()
                    stretches.append(Stretch([call]))
            close()
        self._stretches = stretches
        return True

    def _stretch(self, calls: list[Call], phases: list[Phase], ends: tuple[int, ...]) -> Stretch:
        held = {
            id(one): one
            for phase in phases
            for part in phase
            for operation in part
            for one in operation.held
            if not (isinstance(one, np.ndarray) and self._is_borrowed(one))
        }
        return Stretch(calls, Replay(phases, [*held.values()], self._threads), ends)

    def _is_borrowed(self, array: Array) -> bool:
        """Whether an array is in the caller's memory, which is not kept alive."""
        place = array.ctypes.data
        before = bisect_right(self._spans, (place, np.inf))
        return bool(before) and place < self._spans[before - 1][1]


class ReplayedSteps:
    """Steps of one compiled program, each on the batch given by the next row of an order."""

    def __init__(self, executable: Executable, seeds: int) -> None:
        self._executable = executable
        program = executable.program
        numbers = [program.specs[n] for n in program.inputs]
        rest = len(numbers) - seeds
        self._seeds = [np.zeros(spec.shape, spec.dtype) for spec in numbers[rest:]]
        self._given = list(numbers[:rest])
        self._loss_shape = program.specs[program.outputs[0]].shape  # of members, if there are any
        self._addresses: tuple[int, ...] = ()
        self._calls: RecordedCalls | None = None
        self._batch: list[Array] = []
        self._seen: Seen | None = None

    @flushed
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

        The caller has checked all arguments (see `training.arguments`).
        """
        updated = [*parameters.values(), *slots.values()]
        addresses = tuple(array.ctypes.data for array in updated)
        if self._calls is None or addresses != self._addresses:
            self._calls = RecordedCalls(self._executable.device.threads, updated)
            self._addresses = addresses
        self._calls.seen = self._seen
        if not self._batch:
            self._batch = [np.empty(spec.shape, spec.dtype) for spec in self._given[len(updated) :]]
        batch, wanted, *scalars = self._batch
        sources = [backend.as_operand("a batch", array) for array in (images, labels)]
        picked = [
            into.reshape(order.shape[1], *source.shape[1:])
            for into, source in zip((batch, wanted), sources, strict=True)
        ]
        losses = np.empty((len(order), *self._loss_shape))
        with self._executable.claimed():
            blas.threads(1)
            run = self._executable.bind(
                parameters, slots, batch, wanted, tuple(scalars), tuple(self._seeds),
                execute=self._calls,
            )  # fmt: skip
            try:
                for row, chosen in enumerate(order):
                    for into, source in zip(picked, sources, strict=True):
                        np.take(source, chosen, axis=0, out=into, mode="clip")  # all are in range
                    for scalar, number in zip(scalars, numbers[row], strict=True):
                        scalar[...] = number
                    for seed, drawn in zip(self._seeds, seeds[row], strict=True):
                        seed[...] = drawn
                    losses[row] = run()[0]
            finally:
                self._executable.release()
        return losses

    @contextmanager
    def clocked(self, seen: Seen) -> Iterator[None]:
        """A scope in which seen(position, start, end) is called for each call that is repeated."""
        self._seen = seen
        try:
            yield
        finally:
            self._seen = None

    @property
    def kept_bytes(self) -> int:
        """The recording; the batch is an argument."""
        return self._calls.nbytes if self._calls is not None else 0
