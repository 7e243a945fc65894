"""Cells that stand at once, as on a card: loaded beside each other, built one at a time."""

import json
import multiprocessing
import time
from pathlib import Path

import pytest

from pareo.lab.contestants import Contestant
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.gate.judge import judging
from pareo.lab.experiment.worker import Worker
from pareo.lab.machine import memory
from pareo.lab.sweep.admission import Cells
from pareo.lab.sweep.group import Group
from pareo.lab.sweep.result import Cell
from pareo.lab.sweep.settings import Settings

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
    judge = Worker(judging, exact_files.reference, settings.task(1), tmp_path, "float32", threads=1)
    cells = [Cell(name, batch) for batch in batches for name in names]
    with judge, Cells(settings, contestants, judge, lambda said: None) as admission:
        if warm:
            admission.warm(cells)
        admission.expect([*cells, *more])
        Group(admission).run(cells)
    return {cell.key: cell for cell in cells}


@pytest.mark.slow
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


@pytest.mark.slow
def test_who_is_expected_and_never_runs_is_sent_home(stranger, tmp_path):
    later = [Cell("right", 8), Cell("wrong", 8)]
    cells = stood(stranger, (2,), tmp_path, ("right",), more=later)
    assert cells["right", 2].status == "ok"
    assert [cell.status for cell in later] == ["waiting", "waiting"]
    assert len({process for _, process, _ in notes(tmp_path)}) == 1
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_compilers_are_warmed_beside_each_other(stranger, tmp_path):
    cells = stood(stranger, (2, 4, 8), tmp_path, ("warm",), warm=True)
    assert {cell.status for cell in cells.values()} == {"ok"}
    seen = sorted(notes(tmp_path), key=lambda note: note[2])
    assert len({process for _, process, _ in seen}) == 6
    assert [what for what, _, _ in seen[6:]] == ["begin", "end"] * 3


@pytest.mark.slow
def test_pictures_take_no_time_from_the_rounds(stranger, tmp_path):
    """A table takes a quarter of a second to draw: with 0.3 s for all rounds there would be one."""
    settings = Settings("mlp-small", (2,), ("right",), data=DATA, turn=0.02, seconds=0.3, threads=1)
    cells, said = [Cell("right", 2)], []

    def draw(doing):
        said.append(doing)
        time.sleep(0.25)

    judge = Worker(judging, exact_files.reference, settings.task(1), tmp_path, "float32", threads=1)
    with judge, Cells(settings, stranger, judge, draw) as admission:
        Group(admission).run(cells)
    assert len(cells[0].seconds_per_batch) >= 5
    assert sum("running" in doing for doing in said) == 1
    assert cells[0].began


@pytest.mark.smoke
def test_memory_is_what_is_free_however_much_was_asked_for(stranger, tmp_path, monkeypatch):
    limit = 20 * 10**9
    settings = Settings("mlp-small", (2,), ("here",), data=DATA, memory_limit=limit)
    judge = Worker(judging, exact_files.reference, settings.task(1), tmp_path, "float32", threads=1)
    here = Contestant("pareo.lab.contestants.pareo_step", {"device": "vectorized"})
    with judge, Cells(settings, {"here": here}, judge, lambda said: None) as admission:
        cell = Cell("here", 2)
        for free, crowded in ((3 * 10**9, True), (40 * 10**9, False)):
            monkeypatch.setattr(memory, "free", lambda free=free: free)
            admission._loaded(cell).worker.close()
            cell.status = "memory"
            assert admission._allowed[cell.key] == min(0.85 * free, limit)
            assert admission.crowded(cell) is crowded


def test_who_is_dropped_is_sent_home(stranger, tmp_path):
    settings = Settings("mlp-small", (2,), ("right",), data=DATA, threads=1)
    judge = Worker(judging, exact_files.reference, settings.task(1), tmp_path, "float32", threads=1)
    with judge, Cells(settings, stranger, judge, lambda said: None) as admission:
        admission.expect([Cell("right", 2), Cell("right", 4)])
        admission.drop([Cell("right", 4)])
        assert list(admission._coming) == [("right", 2)]
        admission._coming["right", 2].result()
        assert len(admission._workers) == 1


def test_a_library_that_cannot_be_imported_is_a_cell(stranger, tmp_path, monkeypatch):
    monkeypatch.setenv("STRANGER_FAILS", "1")
    cells = stood(stranger, (2,), tmp_path, ("right",))
    assert cells["right", 2].status == "failed"
    assert "no such library" in cells["right", 2].note
