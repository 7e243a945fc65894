"""Fixtures: a Ray cluster on this machine; a Ctrl-C for every process that starts."""

import os
import signal
from collections.abc import Iterator
from multiprocessing import util
from typing import Any

import pytest


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes with a CPU each; `connected()` finds it by $RAY_ADDRESS."""
    from pareo.parallel.group.ray_cluster import import_ray

    import_ray()
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        made.add_node(num_cpus=1, object_store_memory=80 << 20)
        monkeypatch.setenv("RAY_ADDRESS", made.address)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every process that is started gets a Ctrl-C, as from a terminal; their process ids."""
    start: Any = util.spawnv_passfds  # type: ignore[attr-defined]
    found: list[int] = []

    def started(path: bytes, args: list[Any], fds: Any) -> int:
        process = int(start(path, args, fds))
        if any("spawn_main" in str(word) for word in args):
            os.kill(process, signal.SIGINT)
            found.append(process)
        return process

    monkeypatch.setattr(util, "spawnv_passfds", started)
    return found
