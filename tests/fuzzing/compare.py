"""Running a random program on a device, again and again, against what it should compute."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from typing import Any

import numpy as np
from devices import home, placed
from fuzzing.recipe import Recipe, cast
from fuzzing.reference import UNIT, Expected, expected
from operators.drawing import LAYOUTS, laid_out

from pareo import Device
from pareo.backends.compiled.loops.replayed import RecordedCalls
from pareo.errors import PareoError
from pareo.program import Program, tree

# The noise of a run is random, and that of a device is not: sums in another order, Winograd's
# convolution (10 roundings) and long sums add up to several times as much.
OFTEN = 16
PLAIN = 100_000  # FLOPs that `sequential`, plain loops, is given at most
TINY = 1e-37  # what float32 may round to zero
FLOOR = 64  # roundings of a result's largest number that are always allowed


class Wrong(AssertionError):
    """A device computed something else."""


class Hang(Exception):
    """A program did not come to an end in time."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `Hang` where the block takes longer; for the main thread of a process alone."""

    def stop(*_: Any) -> None:
        raise Hang(f"not done after {seconds:g} s")

    before = signal(SIGALRM, stop)
    setitimer(ITIMER_REAL, seconds)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, before)


@contextmanager
def said(when: str) -> Iterator[None]:
    """Say when it was that something inside went wrong."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{when}, {wrong}") from wrong


@dataclass
class Example:
    """A recipe with two sets of arguments, and what it should make of them."""

    recipe: Recipe
    seed: int

    @cached_property
    def program(self) -> Program:
        return self.recipe.program("float64")

    @cached_property
    def sets(self) -> tuple[list[Any], list[Any]]:
        """The arguments as drawn, and others a little off."""
        drawn = list(self.recipe.arguments.values())
        random = np.random.default_rng(self.seed)
        other = [
            np.asarray(a + random.uniform(-0.05, 0.05, a.shape), "float32").astype("float64")
            if a.dtype.kind == "f"
            else a
            for a in drawn
        ]
        return drawn, other

    @cached_property
    def expected(self) -> list[list[Expected] | None]:
        return [expected(self.program, arrays, self.seed) for arrays in self.sets]

    @cached_property
    def patiently(self) -> list[list[Expected] | None]:
        """The same with far more noise runs, for a result that seems wrong."""
        return [expected(self.program, arrays, self.seed + 1, 100) for arrays in self.sets]

    @property
    def stable(self) -> bool:
        """Whether every result can be told by float32."""
        return all(e is not None and all(one.stable for one in e) for e in self.expected)


def fault(value: Any, right: Expected, dtype: str) -> str | None:
    """What is wrong with a result, or None."""
    if value.shape != right.value.shape:
        return f"has the shape {value.shape}, not {right.value.shape}"
    wanted = dtype if right.value.dtype.kind == "f" else right.value.dtype
    if value.dtype != wanted:
        return f"is of {value.dtype}, not of {wanted}"
    unit = UNIT if dtype == "float32" else 2.0**-53
    allowed = unit / UNIT * OFTEN * right.moved + FLOOR * unit * right.largest + TINY
    if not right.stable:  # a jump is as large in float64
        allowed = OFTEN * right.moved
    if not np.isfinite(allowed):  # out of float32's range
        return None
    off = np.abs(value.astype("float64") - right.value)
    if not off.max(initial=0) <= allowed:
        return f"is off by {off.max():.3g}; {allowed:.3g} allowed"
    return None if right.each is None else _more(off, right, unit)


def _more(off: Any, right: Expected, unit: float) -> str | None:
    """Whether more elements are off than noise moved.

    One element that jumps, such as a step by a sign, says nothing of the others. So the largest
    error is compared with the farthest that noise moved any element, the second largest with the
    second farthest, and so on: any element may jump, but no more of them than with noise.
    """
    scale = unit / UNIT if right.stable else 1.0
    found = np.sort(off, axis=None)[::-1]
    allowed = scale * OFTEN * np.sort(right.each, axis=None)[::-1]
    allowed += FLOOR * unit * right.largest + TINY
    worse = np.flatnonzero(~(found <= allowed))
    if not worse.size:
        return None
    place = worse[0]
    return f"has {place + 1} elements off by {found[place]:.3g}; {allowed[place]:.3g} allowed"


def check(example: Example, device: str, dtype: str, threads: int = 2) -> None:
    """Run a program on a device; raise `Wrong` where a result or an argument is not as expected."""
    _Run(example, device, dtype, threads).all()


class _Run:
    """One program compiled for one device."""

    def __init__(self, example: Example, device: str, dtype: str, threads: int) -> None:
        self.example, self.recipe = example, example.recipe
        self.device, self.dtype = device, dtype
        self.updates = self.recipe.flat_updates
        where = Device(device) if device in ("cuda", "sequential") else Device(device, threads)
        self.executable = self.recipe.program(dtype).compile(where, self.updates or None)
        self.random = np.random.default_rng(example.seed)

    def all(self) -> None:
        first = self.call(0)
        self.call(1)
        again = self.call(0)
        if self.device != "cuda":  # cuDNN adds up in any order
            for place, (one, other) in enumerate(zip(first, again, strict=True)):
                if not np.array_equal(one, other, equal_nan=True):
                    raise Wrong(f"result {place} has other bits when called again")
        with said("with new numbers in the same arrays"):
            self.refilled()
        if self.device == "compiled":
            with said("with calls that were recorded"):
                self.repeated()
        with said("with results as arguments"):
            self.fed_back()
        with said("with one array for several arguments"):
            self.shared()
        with said("with the keys of dicts in another order"):
            self.call(1, shuffled=True)
        with said("after a caller wrote into its results"):
            spoil(self.run(self.arguments(0)))
            self.call(1)

    def arguments(self, which: int) -> list[Any]:
        """New arrays in any layout; those that are updated must be contiguous and writable."""
        arrays = [cast(array, self.dtype).copy() for array in self.example.sets[which]]
        return [
            placed(
                self.device,
                array
                if place in self.updates.values() or array.dtype.kind != "f"
                else laid_out(array, LAYOUTS[self.random.integers(len(LAYOUTS))]),
            )
            for place, array in enumerate(arrays)
        ]

    def run(self, arrays: list[Any], shuffled: bool = False) -> list[Any]:
        """The results, as the executable hands them out."""
        return tree.leaves(self.executable(*self.recipe.nested_arguments(arrays, shuffled)))

    def call(self, which: int, shuffled: bool = False) -> list[Any]:
        """One call, all of it compared; the results on the host."""
        arrays = self.arguments(which)
        given = [np.array(home(self.device, array)) for array in arrays]
        results = self.run(arrays, shuffled)
        found = [np.array(home(self.device, result)) for result in results]
        self.compare(which, found)
        for place, (array, before) in enumerate(zip(arrays, given, strict=True)):
            after = home(self.device, array)
            replacing = [found[r] for r, argument in self.updates.items() if argument == place]
            if not np.array_equal(after, (replacing or [before])[0], equal_nan=True):
                what = "was not updated" if replacing else "was overwritten"
                raise Wrong(f"argument {place} {what}")
        return found

    def compare(self, which: int, found: Sequence[Any]) -> None:
        expected = self.example.expected[which]
        if expected is None:
            return
        for place, (value, right) in enumerate(zip(found, expected, strict=True)):
            if fault(value, right, self.dtype) is None:
                continue
            patient = self.example.patiently[which]
            why = patient and fault(value, patient[place], self.dtype)
            if why:
                raise Wrong(f"result {place} {why}")

    def refilled(self) -> None:
        """The very same arrays again and again: `cuda` captures a graph then."""
        arrays = [placed(self.device, cast(a, self.dtype).copy()) for a in self.example.sets[0]]
        for which in (0, 1, 0, 1):
            for array, values in zip(arrays, self.example.sets[which], strict=True):
                array[...] = placed(self.device, cast(values, self.dtype))
            self.compare(which, [np.array(home(self.device, r)) for r in self.run(arrays)])

    def repeated(self) -> None:
        """The same on `compiled`, where the second run is recorded and others repeat its calls."""
        arrays = [cast(a, self.dtype).copy() for a in self.example.sets[0]]
        calls = RecordedCalls(self.executable.device.threads, arrays)
        with self.executable.claimed():
            run = self.executable.bind(*self.recipe.nested_arguments(arrays), execute=calls)
            for which in (0, 1, 0, 1):
                for array, values in zip(arrays, self.example.sets[which], strict=True):
                    array[...] = cast(values, self.dtype)
                self.compare(which, [np.array(r) for r in run()])
            self.executable.release()

    def fed_back(self) -> None:
        """Results given as arguments."""
        free = self.run(self.arguments(0))
        arrays = self.arguments(1)
        for place, array in enumerate(arrays):
            alike = [r for r in free if (r.shape, r.dtype) == (array.shape, array.dtype)]
            if alike and array.dtype.kind == "f" and self.random.random() < 0.7:
                arrays[place] = alike[0]
                free = [result for result in free if result is not alike[0]]
        self.odd(arrays)

    def shared(self) -> None:
        """One array given for several arguments."""
        arrays = self.arguments(0)
        for place, array in enumerate(arrays):
            alike = [a for a in arrays[:place] if (a.shape, a.dtype) == (array.shape, array.dtype)]
            if alike and array.dtype.kind == "f" and self.random.random() < 0.7:
                arrays[place] = alike[0]
        self.odd(arrays)

    def odd(self, arrays: list[Any]) -> None:
        """A call on arrays that share memory: refused, or all read before any is written to."""
        values = [np.array(home(self.device, array)) for array in arrays]
        wide = [v.astype("float64") if v.dtype.kind == "f" else v for v in values]
        right = expected(self.example.program, wide, self.example.seed)
        if right is None:
            return
        try:
            results = self.run(arrays)
        except PareoError:
            return
        found = [np.array(home(self.device, result)) for result in results]
        for place, (value, one) in enumerate(zip(found, right, strict=True)):
            if fault(value, one, self.dtype) is None:
                continue
            patient = expected(self.example.program, wide, self.example.seed + 1, 100)
            why = patient and fault(value, patient[place], self.dtype)
            if why:
                raise Wrong(f"result {place} {why}")
        for result, place in self.updates.items():
            if not np.array_equal(home(self.device, arrays[place]), found[result], equal_nan=True):
                raise Wrong(f"argument {place} was not updated")


def spoil(results: Sequence[Any]) -> None:
    """Write into results, which are the caller's until the next call: that must not matter then."""
    for result in results:
        if getattr(result.flags, "writeable", True):
            result.fill(np.nan if result.dtype.kind == "f" else 99)


def refused(recipe: Recipe, device: str) -> None:
    """An update of another shape must be refused; raise `Wrong` where it is taken."""
    program = recipe.program("float32")
    specs = program.specs
    for result, number in enumerate(program.outputs):
        for place, argument in enumerate(program.inputs):
            if specs[number] == specs[argument]:
                continue
            try:
                program.compile(Device(device), {result: place})
            except PareoError:
                continue
            raise Wrong(f"result {result} may replace argument {place} of another shape or dtype")
