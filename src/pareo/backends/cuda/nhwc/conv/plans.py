"""The fastest plan of each convolution: timed once on the card, and remembered on disk."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

from pareo.backends.cuda.nhwc.conv import (
    cudnn,
    few_channels,
    filter_gradient,
    filter_gradient_strips,
    input_gradient_as_forward,
)
from pareo.backends.cuda.nhwc.conv.cudnn import Convolution, Graph
from pareo.backends.cuda.runtime import memory
from pareo.backends.cuda.runtime.graph import Graph as Captured
from pareo.cache import cache_folder, write
from pareo.errors import OutOfMemory

CANDIDATES = 16  # cuDNN lists its plans by what it expects of them; the best was among these
LARGEST_WORKSPACE = 512 << 20
REPEATS = 5
# Runs of a sample on a graph: as many as take so many seconds, within bounds
SAMPLE, FEWEST, MOST = 2e-4, 2, 20
EDITION = 5  # of the file on disk: another one whenever there is a new way to choose from


class Plan(Protocol):
    """One way to run one convolution."""

    @property
    def name(self) -> str:
        """What it is remembered by."""

    @property
    def workspace(self) -> int:
        """The bytes that it works in."""

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        """Compute it, on the stream in use."""


@dataclass(frozen=True)
class CudnnPlan:
    """One of cuDNN's."""

    graph: Graph
    index: int
    workspace: int

    @property
    def name(self) -> str:
        return str(self.graph.names[self.index])

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        pointers = {name: array.data.ptr for name, array in arrays.items()}
        self.graph.run(self.index, pointers, workspace.data.ptr)


@dataclass(frozen=True)
class Choice:
    """The fastest plan of those that were tried, and whether there was memory to try `everyone`."""

    plan: Plan | None
    everyone: bool = True


def best(convolution: Convolution) -> Plan | None:
    """The fastest plan on the card in use, or None where cuDNN has none for this convolution."""
    return _choice(convolution).plan


def _choice(convolution: Convolution) -> Choice:
    import cupy

    return _best(convolution, cupy.cuda.Device().id)


@lru_cache(maxsize=4096)
def _best(convolution: Convolution, card: int) -> Choice:
    try:
        graph = Graph(convolution)
    except Exception:  # of the library's own kinds, none of which tells more than "no plan"
        return Choice(None)
    known = remembered().get(str(convolution))
    plan = _named(known["plan"], convolution, graph) if known else None
    if plan is not None:
        return Choice(plan)
    timed, everyone = _timed(convolution, graph)
    if not timed:
        return Choice(None, everyone)
    seconds, plan = min(timed, key=lambda pair: pair[0])
    if everyone:  # else another may be faster, when there is memory for it
        remember(str(convolution), {"plan": plan.name, "seconds": seconds})
    return Choice(plan, everyone)


def has_plan(convolution: Convolution) -> bool:
    """Whether a convolution can be run here."""
    return cudnn.missing() is None and best(convolution) is not None


def turns(convolution: Convolution) -> bool:
    """Whether the fastest way is by turned filters, which can be made ready beforehand."""
    return isinstance(best(convolution), input_gradient_as_forward.Turned)


def _named(name: str, convolution: Convolution, graph: Graph) -> Plan | None:
    """A plan by its name, ready to run; None where there is none of this name any more."""
    if name in OWN:
        return OWN[name](convolution)
    index = graph.names.index(name) if name in graph.names else None
    workspace = None if index is None else graph.build(index)
    return None if index is None or workspace is None else CudnnPlan(graph, index, workspace)


def _timed(convolution: Convolution, graph: Graph) -> tuple[list[tuple[float, Plan]], bool]:
    """The plans worth trying with their seconds, each the least of its repeats.

    And whether there was memory for every one.
    """
    import cupy

    width = 2 if convolution.precision == "bfloat16" else 4
    sizes = {name: convolution.size(name) for name in convolution.arrays}
    arrays = {name: _some_numbers(size * width) for name, size in sizes.items()}
    found, everyone = [], True
    work: Any = None
    for plan in _candidates(convolution, graph):
        if plan is None:
            everyone = False
            continue
        work = None  # the last one's makes room
        try:
            work = memory.empty((max(plan.workspace, 1),), "uint8")
        except OutOfMemory:  # there are others
            everyone = False
            continue
        seconds = _seconds(plan, arrays, work)
        if seconds is not None:
            found.append((seconds, plan))
    del arrays, work
    cupy.get_default_memory_pool().free_all_blocks()
    other = input_gradient_as_forward.forward_of(convolution)  # by which one of the plans goes
    return found, everyone and (other is None or _choice(other).everyone)


def _candidates(convolution: Convolution, graph: Graph) -> Iterator[Plan | None]:
    """Our own ways, and cuDNN's first plans that apply; None for one without memory to choose."""
    for own in OWN.values():
        try:
            plan = own(convolution)
        except OutOfMemory:
            yield None
            continue
        if plan is not None:
            yield plan
    number = 0
    for index in range(len(graph.names)):
        workspace = graph.build(index)
        if workspace is not None and workspace <= LARGEST_WORKSPACE:
            yield CudnnPlan(graph, index, workspace)
            number += 1
        if number == CANDIDATES:
            return


def _on_this_card(
    way: Callable[[Convolution, str, int], Plan | None],
) -> Callable[[Convolution], Plan | None]:
    """A way that needs to know the card's capability and how many multiprocessors it has."""

    def made(convolution: Convolution) -> Plan | None:
        import cupy

        card = cupy.cuda.Device()
        many = card.attributes["MultiProcessorCount"]
        return way(convolution, card.compute_capability, many)

    return made


# The ways beside cuDNN's plans.
OWN: dict[str, Callable[[Convolution], Plan | None]] = {
    filter_gradient.NAME: _on_this_card(filter_gradient.filters),
    filter_gradient_strips.NAME: _on_this_card(filter_gradient_strips.strips),
    few_channels.NAME: _on_this_card(few_channels.narrow),
    input_gradient_as_forward.NAME: lambda convolution: input_gradient_as_forward.turned(
        convolution, best
    ),
}


def _seconds(plan: Plan, arrays: dict[int, Any], work: Any) -> float | None:
    """Seconds of a run as part of a graph, the least of some samples; None where it cannot be one.

    So a step will run it. Asked for one by one, small ones would all take what asking takes.
    """
    import cupy

    cupy.cuda.get_current_stream().synchronize()  # what it reads is there
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        plan.run(arrays, work)
        alone = _elapsed(lambda: plan.run(arrays, work))
        runs = min(MOST, max(FEWEST, int(SAMPLE / alone)))
        try:
            many = Captured(lambda: _repeat(runs, lambda: plan.run(arrays, work)))
        except RuntimeError:  # some of cuDNN's cannot be captured
            return None
        many.launch()
        return min(_elapsed(many.launch) for _ in range(REPEATS)) / runs


def _repeat(times: int, work: Callable[[], object]) -> None:
    for _ in range(times):
        work()


def _elapsed(work: Callable[[], object]) -> float:
    """Seconds that the card spends on what is asked of it, on the stream in use."""
    import cupy

    before, after = cupy.cuda.Event(), cupy.cuda.Event()
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(cupy.cuda.get_elapsed_time(before, after)) / 1e3


def _some_numbers(nbytes: int) -> Any:
    """Memory that reads as numbers around 1, as float32 and as bfloat16: zeros run faster."""
    import cupy

    pattern = cupy.random.randint(0x3F00, 0x4000, 1 << 16, dtype=cupy.uint16)
    return memory.allocated(lambda: cupy.resize(pattern, -(-nbytes // 2)), nbytes)


def _place() -> tuple[str, str]:
    import cupy

    card = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return "cuda", f"plans {EDITION} {card} cuDNN {cudnn.version()}.json"


def remembered() -> dict[str, dict[str, Any]]:
    """What was timed before on this card; nothing where the file is missing or damaged."""
    return read_once(_place())


@cache
def read_once(place: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The plans at a place in the cache folder, and those that were timed since."""
    try:
        return read_plans(cache_folder().joinpath(*place))
    except OSError:
        return {}


def read_plans(path: Path) -> dict[str, dict[str, Any]]:
    """The plans in a file, those left out that are not as they should be."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: entry
        for key, entry in found.items()
        if isinstance(entry, dict) and isinstance(entry.get("plan"), str)
    }


def remember(key: str, entry: dict[str, Any]) -> None:
    """Keep a plan for this process, and if possible for the next."""
    remembered()[key] = entry
    write_plans(_place(), remembered())


def write_plans(place: tuple[str, ...], plans: dict[str, dict[str, Any]]) -> None:
    """Write the plans to a place in the cache folder, if that is possible."""
    write(json.dumps(plans, indent=1).encode(), *place)
