"""The fastest plan of each convolution: timed once on the card, and remembered on disk."""

import json
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pareo.backends.cuda.large import cudnn
from pareo.backends.cuda.large.cudnn import Convolution, Graph
from pareo.cache import cache_folder

CANDIDATES = 10  # cuDNN lists its plans by what it expects of them; the best was among these
LARGEST_WORKSPACE = 512 << 20
REPEATS = 5


@dataclass(frozen=True)
class Plan:
    """One way to run one convolution."""

    graph: Graph
    index: int
    workspace: int

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        """Compute it, on the stream in use."""
        pointers = {name: array.data.ptr for name, array in arrays.items()}
        self.graph.run(self.index, pointers, workspace.data.ptr)


@lru_cache(maxsize=4096)
def best(convolution: Convolution) -> Plan | None:
    """The fastest plan, or None where cuDNN has none for this convolution."""
    try:
        graph = Graph(convolution)
    except Exception:  # of the library's own kinds, none of which tells more than "no plan"
        return None
    known = remembered().get(str(convolution))
    name = known["plan"] if known else None
    if name in graph.names:
        index = graph.names.index(name)
        workspace = graph.build(index)
        if workspace is not None:
            return Plan(graph, index, workspace)
    timed = _timed(convolution, graph)
    if not timed:
        return None
    seconds, index, workspace = min(timed)
    remember(
        str(convolution),
        {"plan": graph.names[index], "workspace": workspace, "seconds": seconds},
    )
    return Plan(graph, index, workspace)


def _timed(convolution: Convolution, graph: Graph) -> list[tuple[float, int, int]]:
    """Seconds, number and workspace of the plans worth trying, each the least of its repeats."""
    import cupy

    width = 2 if convolution.precision == "bfloat16" else 4
    room = {name: convolution.size(name) * width for name in convolution.arrays}
    room[cudnn.BIAS] = convolution.size(cudnn.BIAS) * 4
    arrays = {name: _some_numbers(nbytes) for name, nbytes in room.items()}
    pointers = {name: arrays[name].data.ptr for name in convolution.arrays}
    found = []
    for index in range(len(graph.names)):
        workspace = graph.build(index)
        if workspace is None or workspace > LARGEST_WORKSPACE:
            continue
        work = cupy.empty(max(workspace, 1), cupy.uint8)
        graph.run(index, pointers, work.data.ptr)
        seconds = min(_seconds(graph, index, pointers, work) for _ in range(REPEATS))
        found.append((seconds, index, workspace))
        if len(found) == CANDIDATES:
            break
    del arrays
    cupy.get_default_memory_pool().free_all_blocks()
    return found


def _seconds(graph: Graph, index: int, pointers: dict[int, int], work: Any) -> float:
    import cupy

    before, after = cupy.cuda.Event(), cupy.cuda.Event()
    before.record()
    graph.run(index, pointers, work.data.ptr)
    graph.run(index, pointers, work.data.ptr)
    after.record()
    after.synchronize()
    return float(cupy.cuda.get_elapsed_time(before, after)) / 2e3


def _some_numbers(nbytes: int) -> Any:
    """Memory that reads as numbers around 1, as float32 and as bfloat16: zeros run faster."""
    import cupy

    pattern = cupy.random.randint(0x3F00, 0x4000, 1 << 16, dtype=cupy.uint16)
    return cupy.resize(pattern, -(-nbytes // 2))


def _file() -> Path:
    import cupy

    card = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return cache_folder() / "cuda" / f"plans {card} cuDNN {cudnn.version()}.json"


@lru_cache(maxsize=1)
def remembered() -> dict[str, dict[str, Any]]:
    """What was timed before on this card; nothing where the file is missing or damaged."""
    return read_plans(_file())


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
    """Keep a plan for the next process."""
    known = remembered()
    known[key] = entry
    write_plans(_file(), known)


def write_plans(path: Path, plans: dict[str, dict[str, Any]]) -> None:
    """Write the plans to a file that others see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as fresh:
        json.dump(plans, fresh, indent=1)
    os.replace(fresh.name, path)
