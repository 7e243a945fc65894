"""Profiles on a GPU: kernels as CUPTI records them, with shapes where they are known.

Steps are recorded as they are raced. Then one more step runs call by call, each call marked, to
find which kernels it launches; the same kernels in the earlier steps are given its shape.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pareo.lab.contestants import Trainer
from pareo.lab.kernels import hlo, jax_profile, torch_profile
from pareo.lab.kernels.classify import CUDA, kind
from pareo.lab.kernels.events import MATRIX, Event, Profile
from pareo.lab.kernels.pareo_profile import shape_of
from pareo.lab.machine.cupti import Launch, Recorder
from pareo.program.ir import Instruction
from pareo.training.profile import Run, watched

REST = "(no kernel running)"
LOOP = "(the whole epoch, one kernel)"


@dataclass(frozen=True)
class Label:
    """What one call of a framework computes: its shapes, and FLOPs where they are known.

    parts: equal parts of the FLOPs with a kernel each, such as both gradients of a convolution.
    """

    shape: str
    flops: float | None
    parts: int = 1


def profiles(trainer: Any, order: Any, recorder: Recorder, framework: str) -> list[Profile]:
    """Steps under CUPTI; where they are one kernel of pareo, also as a program."""
    raced = _recorded(trainer, order, recorder)
    if framework == "jax":
        raced.events = _named(raced.events, jax_profile.merged(jax_profile.compiled()))
        return [raced]
    label = {"pareo": _pareo_calls, "torch": _torch_calls}.get(framework)
    if label is None:
        return [raced]
    marked, labels = label(trainer, recorder)
    raced.events = labelled(raced.events, marked, labels)
    if framework == "pareo" and (trainer.step.loops or _several_steps(raced.events, len(order))):
        raced.events = _as_loop(raced.events, trainer.step.program.flops * len(order))
        if not trainer.step.loops:  # its kernel is that of one step, in a loop
            return [raced]
        with trainer.step.without_loop():
            trainer.run(order[:2])  # the second captures the graph that the others launch
            apart = _recorded(trainer, order, recorder)
        apart.events = labelled(apart.events, marked, labels)
        apart.mode = "kernel by kernel, not as raced"
        return [raced, apart]
    return [raced]


def _recorded(trainer: Trainer, order: Any, recorder: Recorder) -> Profile:
    with recorder.recording() as launches:
        start = time.perf_counter()
        trainer.run(order)
        seconds = (time.perf_counter() - start) / len(order)
    events = [
        Event(
            one.name,
            kind(one.name, CUDA),
            one.start,
            one.end,
            f"stream {one.stream}",
            node=one.node,
        )
        for one in launches
    ]
    return Profile("CUPTI", len(order), seconds, events, REST)


def labelled(events: list[Event], marked: list[Launch], labels: list[Label]) -> list[Event]:
    """Events with shapes and FLOPs, where a kernel runs as often as in the marked step.

    The n-th run of a kernel in a step corresponds to the n-th in the marked one; in a graph, whose
    branches run in any order, to the n-th that was captured. The FLOPs of a call are assigned to
    its longest kernel (to several where it has parts), a product or convolution if possible.

    >>> two = [Launch("gemm", 0.0, 2.0, 7, mark=0), Launch("add", 2.0, 3.0, 7, mark=0)]
    >>> seen = [Event("gemm", "gemm", 0.0, 1.0), Event("gemm", "gemm", 2.0, 3.0)]
    >>> [event.flops for event in labelled(seen, two, [Label("2x3, 3x4 -> 2x4", 48.0)])]
    [48.0, 48.0]
    """
    calls: dict[int, list[Launch]] = defaultdict(list)
    for one in marked:
        if one.mark is not None:
            calls[one.mark].append(one)
    counting = {
        id(one): labels[mark].parts
        for mark, launches in calls.items()
        for one in sorted(launches, key=_weight)[-labels[mark].parts :]
    }
    known: dict[str, list[Label | None]] = defaultdict(list)
    for one in marked:
        label = None if one.mark is None else labels[one.mark]
        if label is not None:
            parts = counting.get(id(one))
            flops = label.flops / parts if label.flops is not None and parts else None
            label = Label(label.shape, flops)
        known[one.name].append(label)
    places = _places(events)
    counts = Counter(event.name for event in events)
    found = []
    for event, place in zip(events, places, strict=True):
        runs = known.get(event.name)
        if runs and counts[event.name] % len(runs) == 0:
            label = runs[place % len(runs)]
            if label is not None:
                event = replace(event, shape=label.shape, flops=label.flops)
        found.append(event)
    return found


def _places(events: list[Event]) -> list[int]:
    """The number of each event among the runs of its kernel, by start or by node of a graph.

    >>> _places([Event("a", "", t, t + 1.0, node=n) for t, n in ((0.0, 7), (1.0, 4), (2.0, 7))])
    [1, 0, 1]
    >>> _places([Event("a", "", t, t + 1.0) for t in (0.0, 1.0)])
    [0, 1]
    """
    nodes: dict[str, set[int]] = defaultdict(set)
    for event in events:
        nodes[event.name].add(event.node)
    ranks = {
        name: {node: rank for rank, node in enumerate(sorted(some))}
        for name, some in nodes.items()
        if 0 not in some
    }
    seen: Counter[str] = Counter()
    found = []
    for event in events:
        in_turn = seen[event.name]
        seen[event.name] += 1
        found.append(ranks[event.name][event.node] if event.name in ranks else in_turn)
    return found


def _weight(launch: Launch) -> tuple[bool, float]:
    return kind(launch.name, CUDA) in MATRIX, launch.end - launch.start


def _several_steps(events: list[Event], steps: int) -> bool:
    """Whether the kernel that runs the longest computes several steps at once.

    >>> loop, load = Event("together", "other", 0.0, 9.0), Event("load", "other", 0.0, 1.0)
    >>> _several_steps([load, load, loop], 2), _several_steps([load, loop, loop], 2)
    (True, False)
    """
    if not events:
        return False
    longest = _longest(events).name
    return sum(event.name == longest for event in events) < steps


def _longest(events: list[Event]) -> Event:
    return max(events, key=lambda event: event.end - event.start)


def _as_loop(events: list[Event], flops: int) -> list[Event]:
    """Mark the longest kernel, which is the whole epoch; it has all FLOPs."""
    longest = _longest(events)
    whole = Event(f"{LOOP} {longest.name}", "other", longest.start, longest.end, longest.lane, "",
                  float(flops))  # fmt: skip
    return [whole if event is longest else event for event in events]


def _pareo_calls(trainer: Any, recorder: Recorder) -> tuple[list[Launch], list[Label]]:
    """One step of pareo's program, instruction by instruction."""
    executable, labels = trainer.step.executable, list[Label]()

    def marked(instruction: Instruction, run: Run) -> Run:
        number = len(labels)
        labels.append(Label(shape_of(executable.program, instruction), float(instruction.flops)))
        return lambda values: recorder.marked(number, partial(run, values))

    with watched(executable, marked), recorder.recording(marks=True) as launches:
        trainer.run_as_program()
    return launches, labels


def _torch_calls(trainer: Any, recorder: Recorder) -> tuple[list[Launch], list[Label]]:
    """One step of PyTorch, operator by operator; nothing where it was compiled."""
    if trainer.facts()["mode"].startswith("torch.compile"):
        return [], []
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    labels: list[Label] = []

    class Marked(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            shapes = [list(a.shape) if isinstance(a, torch.Tensor) else [] for a in args]
            given: list[Any] = [None if isinstance(a, torch.Tensor) else a for a in args]
            read = ", ".join("x".join(map(str, shape)) for shape in shapes if shape)
            count = torch_profile.flops(func.name(), shapes, given)
            both = func.name() == "aten::convolution_backward" and all(given[10][:2])
            labels.append(Label(read, count, parts=2 if both else 1))
            work: Callable[[], Any] = partial(func, *args, **(kwargs or {}))
            return recorder.marked(len(labels) - 1, work)

    with recorder.recording(marks=True) as launches, Marked():
        trainer.run_eagerly()
    return launches, labels


def _named(events: list[Event], module: hlo.Module) -> list[Event]:
    """Kernels that XLA generated are named after their instructions: those have shapes."""
    names = {name.replace(".", "_").replace("-", "_"): name for name in module.ops}
    found = []
    for event in events:
        name = names.get(event.name)
        if name is not None:
            shown, what = jax_profile.shown(name, module), module.kind(name)
            shape, flops = module.shapes(name), module.flops(name)
            event = Event(shown, what, event.start, event.end, event.lane, shape, flops)
        found.append(event)
    return found
