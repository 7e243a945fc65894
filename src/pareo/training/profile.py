"""Profiling: cProfile for KCachegrind and speedscope, and the time of each operator."""

import cProfile
import json
import pstats
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pareo.errors import WriteError
from pareo.program import Executable
from pareo.program.ir import Instruction

Key = tuple[str, int, str]  # file, line, function: how pstats names a function
Run = Callable[[list[Any]], None]  # one call of an executable
Calls = tuple[int, int, float, float]  # primitive calls, calls, own seconds, seconds with callees


@contextmanager
def profiled(prefix: str | Path) -> Iterator[list[Path]]:
    """Profile what runs inside, in this thread; at the end two files are written and listed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, profiled(f"{folder}/run") as files:
    ...     _ = sorted(range(1000))
    >>> [file.name for file in files]
    ['callgrind.out.run', 'run.speedscope.json']
    """
    prefix = Path(prefix)
    files: list[Path] = []
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield files
    finally:
        profile.disable()
        found = _stats(profile)
        # KCachegrind's file dialog shows files with such names.
        callgrind_file = prefix.with_name(f"callgrind.out.{prefix.name}")
        speedscope_file = prefix.with_name(f"{prefix.name}.speedscope.json")
        try:
            prefix.parent.mkdir(parents=True, exist_ok=True)
            callgrind_file.write_text(callgrind(found))
            speedscope_file.write_text(json.dumps(speedscope(found, prefix.name)))
        except OSError as error:
            why = error.strerror
            raise WriteError(f"{prefix}: the profile cannot be written: {why}") from error
        files += [callgrind_file, speedscope_file]


@dataclass(frozen=True)
class Function:
    """What cProfile records of a function: its times, and the calls from each caller."""

    calls: int
    own: float
    whole: float
    callers: Mapping[Key, Calls]


def _stats(profile: cProfile.Profile) -> dict[Key, Function]:
    try:
        raw: Any = vars(pstats.Stats(profile))["stats"]
    except TypeError:  # nothing was called
        return {}
    return {
        key: Function(calls, own, whole, callers)
        for key, (_, calls, own, whole, callers) in raw.items()
    }


def _name(key: Key) -> str:
    file, line, name = key
    return name if file in ("~", "") else f"{Path(file).stem}.{name}:{line}"


def callgrind(functions: Mapping[Key, Function]) -> str:
    """A profile in callgrind's format, times in microseconds.

    >>> main, f = ("m.py", 1, "main"), ("m.py", 5, "f")
    >>> calls = {main: (2, 2, 2.0, 2.0)}
    >>> found = {main: Function(1, 1.0, 3.0, {}), f: Function(2, 2.0, 2.0, calls)}
    >>> print(callgrind(found).split("summary")[1])
    : 3000000
    <BLANKLINE>
    fl=m.py
    fn=m.main:1
    1 1000000
    cfl=m.py
    cfn=m.f:5
    calls=2 5
    1 2000000
    <BLANKLINE>
    fl=m.py
    fn=m.f:5
    5 2000000
    <BLANKLINE>
    """
    callees: dict[Key, list[tuple[Key, Calls]]] = {key: [] for key in functions}
    for key, function in functions.items():
        for caller, times in function.callers.items():
            callees.setdefault(caller, []).append((key, times))
    total = sum(_micros(function.own) for function in functions.values())
    lines = ["# callgrind format", "version: 1", "creator: pareo", "positions: line",
             "events: Microseconds", f"summary: {total}"]  # fmt: skip
    for key, function in functions.items():
        lines += ["", f"fl={key[0]}", f"fn={_name(key)}", f"{key[1]} {_micros(function.own)}"]
        for callee, (_, calls, _, whole) in callees[key]:
            lines += [f"cfl={callee[0]}", f"cfn={_name(callee)}", f"calls={calls} {callee[1]}",
                      f"{key[1]} {_micros(whole)}"]  # fmt: skip
    return "\n".join([*lines, ""])


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def speedscope(functions: Mapping[Key, Function], name: str = "pareo") -> dict[str, Any]:
    """A profile in the format of speedscope: stacks, each with the seconds spent at its top.

    cProfile records callers, not whole stacks: a function's time is divided among the stacks that
    lead to it, in proportion to the time of each caller's calls.

    >>> main, f = ("m.py", 1, "main"), ("m.py", 5, "f")
    >>> calls = {main: (2, 2, 2.0, 2.0)}
    >>> found = {main: Function(1, 1.0, 3.0, {}), f: Function(2, 2.0, 2.0, calls)}
    >>> profile = speedscope(found)["profiles"][0]
    >>> profile["samples"], profile["weights"]
    ([[0], [0, 1]], [1.0, 2.0])
    """
    numbers = {key: number for number, key in enumerate(functions)}
    callees: dict[Key, list[tuple[Key, float]]] = {key: [] for key in functions}
    for key, function in functions.items():
        for caller, calls in function.callers.items():
            if caller in callees:
                callees[caller].append((key, calls[3]))
    total = sum(function.own for function in functions.values())
    samples: list[list[int]] = []
    weights: list[float] = []

    def descend(key: Key, share: float, stack: tuple[Key, ...]) -> None:
        function = functions[key]
        if function.whole * share < total * 1e-4 or key in stack:
            return  # too short to be seen, or a recursion, whose time its first call includes
        stack = (*stack, key)
        samples.append([numbers[step] for step in stack])
        weights.append(function.own * share)
        for callee, seconds in callees[key]:
            if functions[callee].whole:
                descend(callee, share * seconds / functions[callee].whole, stack)

    for key, function in functions.items():
        if not function.callers:
            descend(key, 1.0, ())
    frames = [{"name": _name(key), "file": key[0], "line": key[1]} for key in functions]
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames},
        "profiles": [
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
        "exporter": "pareo",
    }


@dataclass
class OperatorTime:
    """What one operator or fusion cost over some runs of a program."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0


def operator_times(
    executable: Executable, arrays: tuple[Any, ...], seconds: float = 1.0
) -> list[OperatorTime]:
    """Run a compiled program for about this long and time each operator; slowest first.

    >>> import numpy as np
    >>> from pareo import Device, Spec, op, trace
    >>> program = trace(lambda x: op.exp(op.exp(x)), Spec((4,))).compile(Device("vectorized"))
    >>> [row.name for row in operator_times(program, (np.ones(4, np.float32),), seconds=0.0)]
    ['exp']
    """
    times: dict[str, OperatorTime] = {}
    clocks: list[tuple[Instruction, _Clock]] = []
    device = executable.device

    def clocked(instruction: Instruction, run: Run) -> Run:
        clocks.append((instruction, _Clock(run, device.backend.wait)))
        return clocks[-1][1]

    with device, device.backend.scope(device):
        run = executable.bind(*arrays)
        run()  # untimed: it compiles machine code
        end = time.perf_counter() + seconds
        with watched(executable, clocked):
            run()
            while time.perf_counter() < end:
                run()
    for instruction, clock in clocks:
        row = times.setdefault(instruction.name, OperatorTime(instruction.name))
        row.calls += clock.calls
        row.seconds += clock.seconds
        row.flops += clock.calls * instruction.flops
        row.bytes += clock.calls * instruction.bytes
    return sorted(times.values(), key=lambda row: -row.seconds)


class _Clock:
    """A call of an executable that counts how often it runs, and the seconds."""

    def __init__(self, run: Run, wait: Callable[[], None]) -> None:
        self._run, self._wait = run, wait
        self.calls, self.seconds = 0, 0.0

    def __call__(self, values: list[Any]) -> None:
        start = time.perf_counter()
        self._run(values)
        self._wait()
        self.seconds += time.perf_counter() - start
        self.calls += 1


@contextmanager
def watched(executable: Executable, watch: Callable[[Instruction, Run], Run]) -> Iterator[None]:
    """A scope in which `watch` replaces the call of every instruction.

    Views cost nothing and are not replaced.
    """
    calls = executable._calls
    before = list(calls)
    for at, instruction in enumerate(executable.called):
        calls[at] = replace(calls[at], run=watch(instruction, calls[at].run))
    try:
        yield
    finally:
        calls[:] = before
