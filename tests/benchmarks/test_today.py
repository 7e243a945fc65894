"""Steps of today's networks in real processes: times, memory, and a wrong first loss."""

import json
import os
from pathlib import Path

import pytest
from benchmarks import today

from pareo.lab.experiment.worker import Worker


@pytest.mark.slow
def test_cells_have_times_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(today, "SAMPLE", 0.001)
    file = tmp_path / "found.json"
    names = "pareo-vectorized,torch"
    today.main("lenet5", "2,3", names, "float32", pixels=32, rounds=2, json_file=file)
    cells = json.loads(file.read_text())["cells"]
    assert [(c["contestant"], c["batch"]) for c in cells] == [
        ("pareo-vectorized", 2), ("torch", 2), ("pareo-vectorized", 3), ("torch", 3),
    ]  # fmt: skip
    for cell in cells:
        assert cell["note"] == ""
        assert len(cell["seconds_per_step"]) == 2
        assert cell["bytes"] > 1 << 20


class Fragile:
    """A contestant whose process ends at one network."""

    def __call__(self, question: str, network: str = "", *_: object) -> object:
        if network == "bad":
            os.abort()
        return {"build": 1.0, "turn": (1.0, 0.5), "bytes": 7}[question]


def test_a_contestant_that_ended_is_there_for_the_next_network() -> None:
    with today.Team(["a", "b"], lambda name: Worker(Fragile)) as team:
        for network, ended in (("bad", True), ("good", False)):
            workers = team.ready()
            assert list(workers) == ["a", "b"]
            cells = {name: today.Cell(network, 1, name) for name in workers}
            today.timed(workers, cells, None, 2)
            team.keep(workers)
            assert [bool(cell.note) for cell in cells.values()] == [ended, ended]
            assert cells["a"].seconds_per_step == ([] if ended else [0.5, 0.5])


def test_another_first_loss_is_refused() -> None:
    cells = {name: today.Cell("lenet5", 2, name, loss=2.3) for name in "abc"}
    cells["b"].loss = 2.4
    today.judge(cells, "float32")
    assert [bool(cell.note) for cell in cells.values()] == [False, True, False]
    cells["b"].note = ""
    today.judge(cells, "bfloat16")
    assert not cells["b"].note
