"""Data-parallel training on a Ray cluster that loses a worker, and then a node."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareo import Device
from pareo.data import load
from pareo.errors import PareoError, ShapeError
from pareo.nn import BatchNorm, Dense, Sequential, networks
from pareo.parallel import data as data_parallel
from pareo.parallel.data import on_ray
from pareo.parallel.group.errors import WorkerError
from pareo.parallel.group.ray_cluster import connected
from pareo.training.fit import DivergenceError
from pareo.training.settings import Settings

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
# Ray's nodes are forks that become other programs at once. JAX, if another test imported it into
# this process, warns of every fork.
pytestmark = pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")

DATA = load("synthetic:6:3:120")
NETWORK = networks.mlp([6, 4, 3])
SETTINGS = Settings(batch_size=3, rate=0.1, momentum=0.9)  # 34 steps, the last of one image
DEVICE = Device("vectorized", 1)


class Accidents:
    """What happens in the middle of the second epoch, in the third, and so on."""

    def __init__(self, *accidents: Callable[[on_ray.Run], Any]) -> None:
        self.waiting = list(accidents)
        self.replaced = 0

    def __call__(self, run: on_ray.Run) -> None:
        self.replaced = run.replaced
        if run.state.epoch and run.ahead and self.waiting:
            self.waiting.pop(0)(run)


def test_what_is_lost_changes_no_bit(cluster: Any, tmp_path: Path) -> None:
    alone = data_parallel.fit(NETWORK, DATA, SETTINGS, 4, device=DEVICE, factors=False)
    node = next(iter(cluster.worker_nodes))
    with connected() as ray:

        def lose_worker(run: on_ray.Run) -> None:
            number = ray.get(run.workers[0].__ray_call__.remote(lambda worker: os.getpid()))
            os.kill(number, signal.SIGKILL)

        def lose_node(run: on_ray.Run) -> None:
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

        accidents = Accidents(lose_worker, lose_node)
        result = on_ray.fit(
            ray, NETWORK, DATA, SETTINGS, 4, 2, DEVICE, tmp_path, watch=accidents
        )  # fmt: skip
        assert accidents.replaced == 2
        for path, array in alone.parameters.items():
            np.testing.assert_array_equal(result.parameters[path], array)
        assert result.accuracy == alone.accuracy
        assert result.history[-1].test_loss == pytest.approx(alone.test_loss, rel=1e-12)
        assert len(result.history) == 4

        # Two more epochs from the checkpoint are the last two of six.
        six = data_parallel.fit(NETWORK, DATA, SETTINGS, 6, device=DEVICE, factors=False)
        more = on_ray.fit(
            ray, NETWORK, DATA, SETTINGS, 6, 2, DEVICE, tmp_path, tmp_path
        )  # fmt: skip
        for path, array in six.parameters.items():
            np.testing.assert_array_equal(more.parameters[path], array)

        # An error of a worker's own is reported, and ends the run.
        wild = Settings(batch_size=3, rate=1e30)
        with pytest.raises(DivergenceError, match=r"try a rate below 1e\+30"):
            on_ray.fit(ray, NETWORK, DATA, wild, 1, 2, DEVICE)
        normal = Sequential([Dense(4), BatchNorm(), Dense(3)], (6,))  # a worker has one image
        with pytest.raises(
            WorkerError, match=r"a worker failed: .*more than one element"
        ) as raised:
            on_ray.fit(ray, normal, DATA, SETTINGS, 1, 2, DEVICE)
        assert "\n" not in str(raised.value)
        few = networks.mlp([6, 4, 2])  # the data has three classes
        with pytest.raises(ShapeError, match="has 2 classes, 0 to 1; a label of the data is 2"):
            on_ray.fit(ray, few, DATA, SETTINGS, 1, 2, DEVICE)
        with pytest.raises(PareoError, match="has room for 2 workers; got 3"):
            on_ray.fit(ray, NETWORK, DATA, SETTINGS, 1, 3, DEVICE)
