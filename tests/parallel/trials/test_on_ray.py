"""Trials on a Ray cluster of several nodes on this machine, one of which is killed."""

from pathlib import Path
from typing import Any

import pytest

from pareo import Device
from pareo.data import load
from pareo.nn import networks
from pareo.parallel.group.ray_cluster import connected
from pareo.parallel.trials.on_ray import Tasks
from pareo.parallel.trials.trial import Result
from pareo.parallel.tuning.proposal import Maker
from pareo.parallel.tuning.search import Search
from pareo.parallel.tuning.space import parse
from pareo.parallel.tuning.study import counts, open_study

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
# Ray's nodes are forks that become other programs at once. JAX, if another test imported it into
# this process, warns of every fork.
pytestmark = pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")

DATA = load("synthetic:6:2:60")
SPACE = parse({"rate": {"low": 0.05, "high": 0.5, "log": True}})


class Losing(Tasks):
    """Workers whose cluster loses a node when so many trials are done."""

    def __init__(self, lose: Any, after: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lose, self._after = lose, after
        self.numbers: list[int] = []

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        found = super().finished(seconds)
        self.numbers += [number for number, _ in found]
        # Two of the four places are on the node that is lost, so it has one of three trials.
        if len(self.numbers) >= self._after and len(self._running) == 3 and self._lose:
            self._lose()
            self._lose = None
        return found


def test_fifty_trials_finish_though_a_node_is_killed(cluster: Any, tmp_path: Path) -> None:
    lost = cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    cluster.wait_for_nodes()
    made = Maker(networks.mlp([6, 4, 2]), DATA, 8, {"batch_size": 10})
    with (
        connected() as ray,
        open_study(str(tmp_path / "a.journal"), "mlp", {"epochs": 8}, pruner="none") as study,
    ):
        crew = Losing(
            lambda: cluster.remove_node(lost, allow_graceful=False), 12,
            ray, DATA, Device("vectorized"),
        )  # fmt: skip
        assert crew.slots == 4
        Search(study, SPACE, made, crew, 50, tmp_path / "kept").run()
        assert sum(node["Alive"] for node in ray.nodes()) == 2
    assert len(study.trials) == sum(map(counts, study.trials)) == 50
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    assert sorted(crew.numbers) == list(range(50))
    assert all(len(trial.intermediate_values) == 8 for trial in study.trials)
