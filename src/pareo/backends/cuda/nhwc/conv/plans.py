"""The fastest plan of each convolution, timed once on the GPU and remembered on disk.

A file holds the plans of one GPU model and cuDNN version: the name of the fastest plan by the
convolution. A name that no plan has any more, of another cuDNN or of an earlier pareo, is ignored,
and the convolution is timed again.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from pathlib import Path
from typing import TypedDict, TypeGuard

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv import (
    cudnn,
    depthwise,
    few_channels,
    filter_gradient,
    filter_gradient_strips,
    forward_as_input_gradient,
    in_parts,
    input_gradient_as_forward,
    product,
)
from pareo.backends.cuda.nhwc.conv.cudnn import Graph
from pareo.backends.cuda.nhwc.conv.problem import Convolution, Plan, Runs
from pareo.backends.cuda.runtime import memory
from pareo.backends.cuda.runtime.graph import Graph as Captured
from pareo.cache import cache_folder, write
from pareo.errors import OutOfMemory

CANDIDATES = 16  # cuDNN lists its plans by expected speed; the fastest was among these
LARGEST_WORKSPACE = 512 << 20
LONG = 5e-4  # seconds: what takes longer is tried in parts, too
# A sample is a graph of as many runs as take SAMPLE seconds, at most MOST. There are REPEATS of
# them, or fewer if they take more than ENOUGH seconds together, and at least two.
SAMPLE, MOST = 4e-4, 20
REPEATS, ENOUGH = 5, 0.02
# A plan is given up if its second run takes LAUNCHING seconds, because it is not in a graph, and
# HOPELESS times those of the fastest. The first run says nothing: it may compile its code.
HOPELESS, LAUNCHING = 2, 4e-4
VERSION = 8  # of the file on disk; a new kind of plan needs a new version


@dataclass(frozen=True)
class CudnnPlan:
    """One of cuDNN's plans."""

    graph: Graph
    index: int
    workspace: int

    @property
    def name(self) -> str:
        return str(self.graph.names[self.index])

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        pointers = {name: array.data.ptr for name, array in arrays.items()}
        self.graph.run(self.index, pointers, workspace.data.ptr)


class Timing(TypedDict):
    """An entry of the file on disk: the name of the fastest plan, and its time."""

    plan: str
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The fastest plan of those that were timed.

    `all_tried` is False if some could not be timed for lack of memory.
    """

    plan: Plan | None
    all_tried: bool = True


def best(convolution: Convolution) -> Plan | None:
    """The fastest plan on the current GPU, or None where cuDNN has none for this convolution."""
    return _choice(convolution).plan


def _choice(convolution: Convolution) -> Choice:
    import cupy

    return _best(convolution, cupy.cuda.Device().id)


@lru_cache(maxsize=4096)
def _best(convolution: Convolution, device: int) -> Choice:
    try:
        graph = Graph(convolution)
    except Exception:  # cuDNN's own exceptions say no more than that there is no plan
        return Choice(None)
    known = remembered().get(str(convolution))
    plan = _named(known["plan"], convolution, graph) if known else None
    if plan is not None:
        return Choice(plan)
    timed, all_tried = _timed(convolution, graph)
    if not timed:
        return Choice(None, all_tried)
    seconds, plan = min(timed, key=lambda pair: pair[0])
    if all_tried:  # otherwise another may be faster once there is memory for it
        remember(str(convolution), {"plan": plan.name, "seconds": seconds})
    return Choice(plan, all_tried)


@lru_cache(maxsize=4096)
def best_of_cudnn(convolution: Convolution) -> Plan | None:
    """The fastest of cuDNN's own plans on the current GPU, or None where it has none."""
    try:
        graph = Graph(convolution)
    except Exception:  # as in `_best`
        return None
    key = f"{convolution} by cuDNN"
    known = remembered().get(key)
    plan = _named(known["plan"], convolution, graph) if known else None
    if plan is not None:
        return plan
    timed, all_tried = _timed(convolution, graph, own=False)
    if not timed:
        return None
    seconds, plan = min(timed, key=lambda pair: pair[0])
    if all_tried:
        remember(key, {"plan": plan.name, "seconds": seconds})
    return plan


def has_plan(convolution: Convolution) -> bool:
    """Whether there is a plan for a convolution on this machine."""
    return cudnn.missing() is None and best(convolution) is not None


def best_as_forward(convolution: Convolution) -> bool:
    """Whether the fastest plan is a forward convolution with flipped filters.

    The filters can then be flipped long before the gradient is known.
    """
    return isinstance(best(convolution), input_gradient_as_forward.InputGradientAsForward)


def _named(name: str, convolution: Convolution, graph: Graph) -> Plan | None:
    """The plan of this name, ready to run; None where no plan has this name."""
    if name in OWN_PLANS:
        return OWN_PLANS[name](convolution)
    index = graph.names.index(name) if name in graph.names else None
    workspace = None if index is None else graph.build(index)
    return None if index is None or workspace is None else CudnnPlan(graph, index, workspace)


def _timed(
    convolution: Convolution, graph: Graph, own: bool = True
) -> tuple[list[tuple[float, Plan]], bool]:
    """The candidates with their times in seconds, each the minimum of its repeats.

    Also whether there was memory to time all of them. Without `own`, only cuDNN's are candidates.
    """
    found, all_tried = _times(list(_candidates(convolution, graph, own)), convolution)
    # The plans of these convolutions are parts of some candidates.
    others = [input_gradient_as_forward.forward_of(convolution)] if own else []
    if own and min((seconds for seconds, _ in found), default=LONG) >= LONG:
        more, tried = _times(list(_own(in_parts.NAME, convolution)), convolution)
        found, all_tried = found + more, all_tried and tried
        others.append(in_parts.half_of(convolution))
    return found, all_tried and all(one is None or _choice(one).all_tried for one in others)


def _times(
    candidates: list[Plan | None], convolution: Convolution
) -> tuple[list[tuple[float, Plan]], bool]:
    """As `_timed`, of these candidates, of which None stands for one that ran out of memory."""
    import cupy

    if not candidates:
        return [], True
    width = 2 if convolution.precision == "bfloat16" else 4
    sizes = {name: convolution.size(name) for name in convolution.arrays}
    arrays = {name: some_numbers(size * width) for name, size in sizes.items()}
    found, all_tried = [], True
    work: Array = None
    fastest = inf
    for plan in candidates:
        work = None  # release the last one first
        try:
            work = None if plan is None else memory.empty((max(plan.workspace, 1),), "uint8")
        except OutOfMemory:  # try the others
            plan = None
        if plan is None:
            all_tried = False
            continue
        seconds = seconds_of(plan, arrays, work, fastest)
        if seconds is not None:
            found.append((seconds, plan))
            fastest = min(fastest, seconds)
    del arrays, work
    cupy.get_default_memory_pool().free_all_blocks()
    return found, all_tried


def _candidates(convolution: Convolution, graph: Graph, own: bool) -> Iterator[Plan | None]:
    """Our own plans, and cuDNN's first supported ones; None for one that ran out of memory."""
    for name in OWN_PLANS if own else ():
        if name != in_parts.NAME:
            yield from _own(name, convolution)
    number = 0
    for index in range(len(graph.names)):
        workspace = graph.build(index)
        if workspace is not None and workspace <= LARGEST_WORKSPACE:
            yield CudnnPlan(graph, index, workspace)
            number += 1
        if number == CANDIDATES:
            return


def _own(name: str, convolution: Convolution) -> Iterator[Plan | None]:
    """Our own plan of this name, if it computes a convolution; None if it ran out of memory."""
    try:
        plan = OWN_PLANS[name](convolution)
    except OutOfMemory:
        yield None
        return
    if plan is not None:
        yield plan


def _on_this_gpu(
    make: Callable[[Convolution, str, int], Plan | None],
) -> Callable[[Convolution], Plan | None]:
    """Pass the GPU's compute capability and number of multiprocessors to `make`."""

    def made(convolution: Convolution) -> Plan | None:
        import cupy

        gpu = cupy.cuda.Device()
        blocks = gpu.attributes["MultiProcessorCount"]
        return make(convolution, gpu.compute_capability, blocks)

    return made


# The plans besides cuDNN's, by the names that are remembered on disk.
OWN_PLANS: dict[str, Callable[[Convolution], Plan | None]] = {
    filter_gradient.NAME: _on_this_gpu(filter_gradient.plan),
    filter_gradient_strips.NAME: _on_this_gpu(filter_gradient_strips.plan),
    few_channels.NAME: _on_this_gpu(few_channels.plan),
    depthwise.NAME: depthwise.plan,
    forward_as_input_gradient.NAME: lambda convolution: forward_as_input_gradient.plan(
        convolution, best_of_cudnn
    ),
    product.NAME: product.plan,
    input_gradient_as_forward.NAME: lambda convolution: input_gradient_as_forward.plan(
        convolution, best
    ),
    in_parts.NAME: lambda convolution: in_parts.plan(convolution, best),
}


def seconds_of(plan: Runs, arrays: dict[int, Array], work: Array, fastest: float) -> float | None:
    """Seconds of a run inside a graph, the minimum of some samples.

    A training step runs it in a graph, too. Outside of one, launches would dominate small ones.
    None if it cannot be captured, or is far behind the fastest one.
    """
    import cupy

    cupy.cuda.get_current_stream().synchronize()  # its input is complete
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        plan.run(arrays, work)
        alone = _elapsed(lambda: plan.run(arrays, work))
        if alone > LAUNCHING + HOPELESS * fastest:
            return None
        runs = min(MOST, 1 + int(SAMPLE / alone))
        try:
            many = Captured(lambda: _repeat(runs, lambda: plan.run(arrays, work)))
        except RuntimeError:  # some of cuDNN's plans cannot be captured
            return None
        many.launch()
        repeats = min(REPEATS, max(2, int(ENOUGH / (runs * alone))))
        return min(_elapsed(many.launch) for _ in range(repeats)) / runs


def _repeat(times: int, work: Callable[[], object]) -> None:
    for _ in range(times):
        work()


def _elapsed(work: Callable[[], object]) -> float:
    """Seconds that the GPU spends on the work, on the current stream."""
    import cupy

    before, after = cupy.cuda.Event(), cupy.cuda.Event()
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(cupy.cuda.get_elapsed_time(before, after)) / 1e3


def some_numbers(nbytes: int) -> Array:
    """Memory that holds numbers around 1, as float32 and as bfloat16: zeros would run faster."""
    import cupy

    pattern = cupy.random.randint(0x3F00, 0x4000, 1 << 16, dtype=cupy.uint16)
    return memory.allocated(lambda: cupy.resize(pattern, -(-nbytes // 2)), nbytes)


def _cache_place() -> tuple[str, str]:
    import cupy

    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return "cuda", f"plans {VERSION} {gpu} cuDNN {cudnn.version()}.json"


def remembered() -> dict[str, Timing]:
    """The plans timed before on this GPU; empty where the file is missing or damaged."""
    return read_once(_cache_place())


@cache
def read_once(place: tuple[str, ...]) -> dict[str, Timing]:
    """The plans of a file in the cache directory, and those that were timed since."""
    try:
        return read_plans(cache_folder().joinpath(*place))
    except OSError:
        return {}


def read_plans(path: Path) -> dict[str, Timing]:
    """The plans in a file, without malformed entries."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: entry for key, entry in found.items() if _is_timing(entry)}


def _is_timing(entry: object) -> TypeGuard[Timing]:
    return isinstance(entry, dict) and isinstance(entry.get("plan"), str)


def remember(key: str, entry: Timing) -> None:
    """Keep a plan for this process and, if possible, on disk."""
    remembered()[key] = entry
    write_plans(_cache_place(), remembered())


def write_plans(place: tuple[str, ...], plans: dict[str, Timing]) -> None:
    """Write the plans to a file in the cache directory, if it is writable."""
    write(json.dumps(plans, indent=1).encode(), *place)
