"""Cells that stand at once, as on a card: loaded beside each other, built one at a time."""

import json
import multiprocessing
from pathlib import Path

import pytest

from pareo.lab.contestants import Contestant
from pareo.lab.processes import Worker
from pareo.lab.sweep import Settings, gate
from pareo.lab.sweep.admission import Admission
from pareo.lab.sweep.cells import Cell
from pareo.lab.sweep.group import Group

STRANGER = """
import json, os, time
from pareo.lab.contestants import pareo_step

def note(what, where):
    with open(where, "a") as file:
        file.write(json.dumps([what, os.getpid(), time.time()]) + "\\n")

def load(**options):
    if os.environ.get("STRANGER_FAILS"):
        raise RuntimeError("no such library")
    time.sleep(0.5)

def build(task, where, rate=1.0):
    note("begin", where)
    trainer = pareo_step.build(task, device="vectorized")
    trainer._rate *= rate
    time.sleep(0.3)
    note("end", where)
    return trainer
"""
DATA = "synthetic:1x28x28:10:60"


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Contestant]:
    """Contestants that say they compute on a card."""
    (tmp_path / "a_stranger.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    where = {"where": str(tmp_path / "notes")}
    return {
        "right": Contestant("a_stranger", where, gpu=True),
        "wrong": Contestant("a_stranger", {**where, "rate": 1.1}, gpu=True),
        "warm": Contestant("a_stranger", where, gpu=True, warms=True),
    }


def notes(tmp_path: Path) -> list[tuple[str, int, float]]:
    return [tuple(json.loads(line)) for line in (tmp_path / "notes").read_text().splitlines()]


def stood(contestants, batches, tmp_path, names, warm=False, more=()):
    settings = Settings("mlp-small", batches, names, data=DATA, seconds=0.3, threads=1)
    judge = Worker(gate.reference, settings.task(1), tmp_path, threads=1)
    cells = [Cell(name, batch) for batch in batches for name in names]
    with judge, Admission(settings, contestants, judge, lambda said: None) as admission:
        if warm:
            admission.warm(cells)
        admission.expect([*cells, *more])
        Group(admission).run(cells)
    return {cell.key: cell for cell in cells}


def test_one_at_a_time_is_built(stranger, tmp_path):
    cells = stood(stranger, (2, 4), tmp_path, ("right", "wrong"))
    assert [cells["right", batch].status for batch in (2, 4)] == ["ok", "ok"]
    assert "moved 1.0e-01 off" in cells["wrong", 4].note
    assert cells["wrong", 4].seconds_per_batch == []
    done = cells["right", 4]
    assert done.seconds_per_batch
    assert {"loading", "building", "ready"} == done.phases.keys()
    seen = sorted(notes(tmp_path), key=lambda note: note[2])
    assert [what for what, _, _ in seen] == ["begin", "end"] * 4
    assert multiprocessing.active_children() == []


def test_who_is_expected_and_never_runs_is_sent_home(stranger, tmp_path):
    later = [Cell("right", 8), Cell("wrong", 8)]
    cells = stood(stranger, (2,), tmp_path, ("right",), more=later)
    assert cells["right", 2].status == "ok"
    assert [cell.status for cell in later] == ["waiting", "waiting"]
    assert len({process for _, process, _ in notes(tmp_path)}) == 1
    assert multiprocessing.active_children() == []


def test_compilers_are_warmed_beside_each_other(stranger, tmp_path):
    cells = stood(stranger, (2, 4, 8), tmp_path, ("warm",), warm=True)
    assert {cell.status for cell in cells.values()} == {"ok"}
    seen = sorted(notes(tmp_path), key=lambda note: note[2])
    assert len({process for _, process, _ in seen}) == 6
    assert [what for what, _, _ in seen[6:]] == ["begin", "end"] * 3


def test_a_library_that_cannot_be_imported_is_a_cell(stranger, tmp_path, monkeypatch):
    monkeypatch.setenv("STRANGER_FAILS", "1")
    cells = stood(stranger, (2,), tmp_path, ("right",))
    assert cells["right", 2].status == "failed"
    assert "no such library" in cells["right", 2].note
