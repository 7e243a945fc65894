"""A Ray cluster of several nodes on this machine, for the tests that want one."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes with a CPU each; `connected()` finds it by $RAY_ADDRESS."""
    from pareo.parallel.ray_cluster import import_ray

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
