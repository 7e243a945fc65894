"""A sweep with real processes: cells that are done stay done, and failures are cells."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareo.errors import DataError
from pareo.lab.contestants import task as tasks
from pareo.lab.experiment import results
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.result import Limit
from pareo.lab.sweep.settings import Settings, batch_sizes

DATA = "synthetic:1x28x28:10:60"
STRANGER = """
import os
from pareo.lab.contestants import Contestant, pareo_step

def build(task, rate=1.0, most=10**9, lazy=0, facts=None):
    with open(os.environ["BUILDS"], "a") as file:
        print(task.batch, file=file)
    if task.batch > most:
        raise MemoryError(f"no room for {task.batch}")
    trainer = pareo_step.build(task, device="vectorized")
    trainer._rate *= rate
    if lazy:
        run, calls = trainer.run, []
        def stops(order):
            calls.append(order)
            return run(order) if len(calls) < lazy else [1.0] * len(order)
        trainer.run = stops
    if facts:
        trainer.facts = lambda: facts
    return trainer

RIGHT = Contestant("stranger")
WARM = Contestant("stranger", warms=True)
WRONG = Contestant("stranger", {"rate": 1.01})
SMALL = Contestant("stranger", {"most": 4})
LAZY = Contestant("stranger", {"lazy": 10})  # the gate is over by then
STRANGE = Contestant("stranger", {"facts": {"mode": {1, 2}}})
"""


# Who runs tests in the background has them ignore interrupts, and so would what they start.
HEARING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def entered(folder: Path, **points: str) -> dict[str, str]:
    """The environment of a process for which a package in a folder has contestants."""
    (folder / "stranger.py").write_text(STRANGER)
    about = folder / "stranger-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    lines = [f"{name} = stranger:{value}" for name, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[pareo.contestants]", *lines]))
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    own = {"PYTHONPATH": paths, "PAREO_RECORDS": str(folder / "r.sqlite"), "BUILDS": "builds"}
    return {**os.environ, **own}


def command(*words: str) -> list[str]:
    usual = ("mlp-small", "--data", DATA, "--threads", "1", "--seconds", "0.5")
    return [sys.executable, "-m", "pareo", "sweep", *usual, *words]


def ended(
    words: list[str], env: dict[str, str], folder: Path, how: signal.Signals
) -> tuple[int, str, str]:
    """A sweep that gets a signal when batch 2 is done: its exit status, and what it said."""
    with subprocess.Popen(
        [sys.executable, "-c", HEARING, *words], env=env, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as under_way:  # fmt: skip
        assert under_way.stderr is not None
        assert any(line.startswith("right, batch 2: ") for line in under_way.stderr)
        under_way.send_signal(how)
        said, more = under_way.communicate()
    return under_way.returncode, said, more


@pytest.mark.slow
def test_failures_are_cells_and_the_others_go_on(tmp_path: Path) -> None:
    env = entered(tmp_path, right="RIGHT", wrong="WRONG", small="SMALL")
    words = ("--batches", "4..16", "--contestants", "right,wrong,small", "--save", "--json", "a")
    done = subprocess.run(command(*words), env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    cells = {(c.contestant, c.batch): c for c in results.read(tmp_path / "a").cells}
    assert {status_of(cells, "right", n) for n in (4, 8, 16)} == {"ok"}
    assert "moved 1.0e-02 off in step 1" in cells["wrong", 8].note
    assert cells["wrong", 8].seconds_per_batch == []
    assert [status_of(cells, "small", n) for n in (4, 8, 16)] == ["ok", "memory", "memory"]
    assert cells["small", 16].note == "batch 8 did not fit"
    right = cells["right", 16]
    assert right.steps > 1
    assert right.memory.used > 2**20
    assert "right, batch 4: " in done.stderr
    assert "The best batch size here is" in done.stdout
    assert "saved as    1" in done.stdout
    assert list((tmp_path / "sweeps").iterdir()) == []  # all is done: the next one begins anew


@pytest.mark.slow
def test_who_stops_training_or_tells_nonsense_is_a_cell(tmp_path: Path) -> None:
    env = entered(tmp_path, right="RIGHT", lazy="LAZY", strange="STRANGE")
    names = "right,lazy,strange"
    words = ("--batches", "4", "--contestants", names, "--epochs", "2", "--json", "a")
    done = subprocess.run(command(*words), env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    cells = {(c.contestant, c.batch): c for c in results.read(tmp_path / "a").cells}
    assert status_of(cells, "right", 4) == "ok"
    assert cells["right", 4].turn.steps == cells["right", 4].steps == 13  # of 50 images
    assert status_of(cells, "lazy", 4) == "refused"
    assert "its parameters did not move" in cells["lazy", 4].note
    assert status_of(cells, "strange", 4) == "failed"
    assert cells["strange", 4].note == "mode in facts() is a set, which JSON does not have"
    assert cells["lazy", 4].seconds_per_batch == cells["strange", 4].seconds_per_batch == []


def status_of(cells: dict, name: str, batch: int) -> str:
    return str(cells[name, batch].status)


@pytest.mark.slow
def test_after_sigkill_it_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    env = entered(tmp_path, right="WARM")
    words = command("--batches", "2,4,8", "--contestants", "right", "--json", "a")
    ended(words, env, tmp_path, signal.SIGKILL)
    builds = (tmp_path / "builds").read_text().split()
    assert sorted(builds[:3]) == ["2", "4", "8"]  # beforehand, beside each other
    (journal,) = (tmp_path / "sweeps").iterdir()
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    known = [cell for line in lines for cell in line.get("cells", ())]
    env["BUILDS"] = "later"  # for a process of the first may outlive it for a moment
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cells = results.read(tmp_path / "a").cells
    assert [cell.status for cell in cells] == ["ok"] * 3
    assert len(known) in (1, 2)
    later = (tmp_path / "later").read_text().split()
    assert later == ["2", "4", "8"][len(known) :]  # none beforehand
    for kept, cell in zip(known, cells, strict=False):
        assert results.plain(cell) == kept


@pytest.mark.slow
def test_what_is_interrupted_leaves_a_finished_result_alone(tmp_path: Path) -> None:
    env = entered(tmp_path, right="RIGHT")
    (tmp_path / "a").write_text("of a sweep that came to its end")
    words = command("--batches", "2,4", "--contestants", "right", "--json", "a", "--html", "b")
    status, said, more = ended(words, env, tmp_path, signal.SIGINT)
    assert status == 130
    assert "run the same command again" in said
    assert "Traceback" not in more
    assert (tmp_path / "a").read_text() == "of a sweep that came to its end"
    assert "right" in (tmp_path / "b").read_text()  # which was not there
    assert [path.name for path in tmp_path.glob(".a*")] == []


@pytest.mark.slow
def test_what_cannot_be_printed_is_written_all_the_same(tmp_path: Path) -> None:
    env = entered(tmp_path, right="RIGHT")
    words = command("--batches", "2", "--contestants", "right", "--json", "a")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words, env=env, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "pareo: cannot write to standard output: No space"
    )
    assert "Traceback" not in done.stderr
    assert results.read(tmp_path / "a").cells[0].status == "ok"
    assert len(list((tmp_path / "sweeps").iterdir())) == 1  # and what is done is not forgotten


def test_other_images_of_the_same_name_are_another_sweep(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    settings = Settings("mlp-small", (8,), ("pareo-vectorized",), data=str(file))
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (60, 28, 28), np.uint8), draw.integers(0, 10, 60)
    journals = []
    for change in (True, False, True):
        tasks._loaded.cache_clear()  # as in a process of its own
        if change:
            images = images[::-1]
            np.savez(file, images=images, labels=labels, test_images=images, test_labels=labels)
        with closing(Sweep(settings, tmp_path / "journals")) as sweep:
            journals.append(sweep._journal.path)
    assert journals[0] == journals[1] != journals[2]


def test_a_journal_that_does_not_fit_is_told_in_a_sentence(tmp_path: Path) -> None:
    settings = Settings("mlp-small", (8,), ("pareo-vectorized",), data=DATA)
    with closing(Sweep(settings, tmp_path)) as sweep:
        sweep._journal.add({"cells": [{"contestant": "pareo-vectorized", "number": 8}]})
    with pytest.raises(DataError, match="expected a sweep's journal; delete it to begin again"):
        Sweep(settings, tmp_path)


def swept(folder: Path, settings: Settings) -> dict[str, Any]:
    with closing(Sweep(settings, folder)) as sweep:
        return sweep.run()


def test_epochs_are_rounds_of_whole_epochs(tmp_path: Path) -> None:
    settings = Settings("mlp-small", (8,), ("pareo-vectorized",), data=DATA, epochs=3)
    (cell,) = swept(tmp_path, settings).cells
    assert len(cell.seconds_per_batch) == 3
    assert cell.steps == 7  # of 50 images


@pytest.mark.parametrize("text", ["", "0..8", "8..1", "1,two", "1..", "-4", "9999999"])
def test_batches_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"--batches expects sizes as in 1..512"):
        batch_sizes(text)


@pytest.mark.slow
def test_a_sweep_of_500_cells_goes_on_and_is_shown(tmp_path: Path) -> None:
    """Most cells are in the journal as a real one was measured; the last two run here."""
    names = ("pareo-compiled", "pareo-vectorized")
    with closing(
        Sweep(Settings("mlp-small", (64,), names, data=DATA, seconds=0.1), tmp_path)
    ) as one:
        real = one.run().cells
    sizes = tuple(range(64, 314))
    settings = Settings("mlp-small", sizes, names, data=DATA, seconds=0.1)
    with closing(Sweep(settings, tmp_path)) as begun:
        for batch in sizes[:-1]:
            begun._journal.add({"cells": [{**results.plain(c), "batch": batch} for c in real]})
    with closing(Sweep(settings, tmp_path)) as sweep:
        assert sweep.resumed == 498
        found = sweep.run()
        sweep.finish()
    assert [cell.status for cell in found.cells] == ["ok"] * 500
    file = tmp_path / "a.json"
    file.write_text(results.to_json(found))
    assert results.read(file).cells == found.cells
    words = [sys.executable, "-m", "pareo", "report", str(file), "--html", str(tmp_path / "a.html")]
    shown = subprocess.run(words, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "pareo-vectorized" in (tmp_path / "a.html").read_text()


@pytest.mark.slow
def test_a_largest_batch_that_was_found_is_not_searched_again(tmp_path: Path) -> None:
    settings = Settings(
        "mlp-small", (64,), ("pareo-vectorized",), data=DATA, seconds=0.1,
        memory_limit=500 * 10**6, within=0.9,
    )  # fmt: skip
    with closing(Sweep(settings, tmp_path)) as begun:
        first = begun.run().limits
    said: list[str] = []
    with closing(Sweep(settings, tmp_path)) as resumed:
        resumed.say = said.append
        assert resumed.run().limits == first
    assert (first[0].note, len(first)) == ("", 1)
    assert not [doing for doing in said if "pareo-vectorized" in doing]


def test_a_sweep_goes_on_from_the_result_of_an_interrupted_one(tmp_path: Path) -> None:
    """What was timed or refused in full is taken over with its batch size, all else is not."""
    names = ("pareo-compiled", "pareo-vectorized")
    settings = Settings("mlp-small", (2, 4, 8, 16), names, data=DATA)
    with closing(Sweep(settings, tmp_path / "first")) as first:
        for cell in first.cells.values():
            cell.status, cell.rounds, cell.seconds_per_batch = "ok", [1, 2], [0.1, 0.2]
        first.cells[names[0], 4].end("refused", "it is wrong")
        first.cells[names[0], 8].note = "interrupted after 2 rounds"
        first.cells[names[0], 16].end("ok", "")  # admitted, but not timed
        first.limits = [Limit(contestant=name, note=note, limit=1, largest=1, used=1,
                              predicted=None, probes=[])
                        for name, note in zip(names, ("", "it fell"), strict=True)]  # fmt: skip
        first.peaks.add("cpu", (1e9, 2e9))
        earlier = results.checked(results.plain(first.result()), "a file")
    with closing(Sweep(settings, tmp_path / "second")) as second:
        second.take_over(earlier)
    for again in (second, Sweep(settings, tmp_path / "second")):  # it is in the journal as well
        again.close()
        assert {batch for _, batch in again.finished} == {2, 4}
        assert again.cells[names[0], 4].note == "it is wrong"
        assert [cell.batch for cell in again._waiting(settings.batches)] == [8, 8, 16, 16]
        assert [limit.contestant for limit in again.limits] == [names[0]]
        assert again.peaks.best("cpu") == (1e9, 2e9)


def test_what_the_journal_has_is_not_replaced(tmp_path: Path) -> None:
    settings = Settings("mlp-small", (8,), ("pareo-vectorized",), data=DATA)
    with closing(Sweep(settings, tmp_path)) as sweep:
        (cell,) = sweep.cells.values()
        cell.status, cell.rounds, cell.seconds_per_batch = "ok", [1], [0.1]
        sweep._done([cell])
        earlier = sweep.result()
        earlier.cells = [replace(cell, seconds_per_batch=[9.0])]
        sweep.take_over(earlier)
        assert sweep.cells[cell.key].seconds_per_batch == [0.1]
        assert sweep.finished == [cell.key]
