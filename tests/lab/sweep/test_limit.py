"""The largest batch: the search by itself, and with real processes under a limit."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from devices import needs_gpu
from hungry import EACH
from hypothesis import given
from hypothesis import strategies as st

from pareo.lab.contestants import CONTESTANTS, Contestant
from pareo.lab.contestants.registry import ON_GPU
from pareo.lab.experiment.worker import Worker
from pareo.lab.machine import memory
from pareo.lab.sweep.ballast import Ballast
from pareo.lab.sweep.journal import Journal
from pareo.lab.sweep.limit import Limits, _hint, next_batch
from pareo.lab.sweep.result import Cell, Probe
from pareo.lab.sweep.runner import probing
from pareo.lab.sweep.settings import Settings

DATA = "synthetic:1x28x28:10:60"


def searched(memory, most: int, hint: int = 1, within: float = 0.0) -> tuple[int, int]:
    """The largest batch under a limit by a rule for memory, and the probes that took."""
    probes: list[Probe] = []
    while (batch := next_batch(probes, most, hint, within)) is not None:
        used = memory(batch)
        fits = used <= most
        probes.append(Probe(batch=batch, fits=fits, used=used if fits else None))
        assert len(probes) < 60
    return max((p.batch for p in probes if p.fits), default=0), len(probes)


@given(
    base=st.integers(0, 1000),
    each=st.integers(1, 300),
    most=st.integers(1, 200_000),
    hint=st.integers(1, 64),
    jump=st.integers(0, 5000),
    at=st.integers(1, 5000),
    within=st.sampled_from([0.0, 0.01, 0.05, 0.5]),
)
def test_the_search_finds_the_largest_whatever_memory_does(
    base, each, most, hint, jump, at, within
):
    def memory(batch: int) -> int:
        return base + each * batch + (jump if batch >= at else 0)

    found, _ = searched(memory, most, hint, within)
    assert found == 0 or memory(found) <= most
    assert memory(found + max(1, int(within * found))) > most


def test_a_straight_line_needs_few_probes():
    assert searched(lambda batch: 300 + 29 * batch, most=2000, hint=16) == (58, 4)
    found, probes = searched(lambda batch: 300 + 29 * batch, most=60_000, hint=1700, within=0.05)
    assert 0.95 * 2058 < found <= 2058
    assert probes == 3


def test_a_search_begins_where_a_line_through_the_cells_nearly_ends():
    sizes = {128: 1482, 256: 2209}
    cells = [Cell("torch", batch, seconds_per_batch=[1.0], rounds=[1]) for batch in sizes]
    for cell in cells:
        cell.memory.used = sizes[cell.batch] * 10**6
    assert 0.8 * 1980 < _hint(cells, 12 * 10**9) < 1980
    assert _hint(cells, 2 * 10**9) == 256
    assert _hint(cells[:1], 12 * 10**9) == int(0.85 * 128 * 12000 / 1482)
    assert _hint([], 12 * 10**9) == 1
    assert _hint([Cell("torch", 1 << 19, seconds_per_batch=[1.0], rounds=[1])], 1) == 1 << 19


def test_a_search_within_a_share_is_exact_where_nothing_is_too_large():
    assert searched(lambda batch: 1, most=10, within=0.5)[0] == 1 << 20


def test_a_line_that_points_past_a_miss_wastes_no_probe():
    known = [Probe(batch=1, fits=True, used=10), Probe(batch=2, fits=True, used=11)]
    missed = Probe(batch=16, fits=False)
    assert next_batch([*known, missed], most=100, hint=1) == 9


def test_the_search_ends_where_everything_fits():
    found, probes = searched(lambda batch: 1, most=10)
    assert found == 1 << 20
    assert probes < 30


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.slow
def test_real_processes_under_a_limit(asked: bool, tmp_path: Path, monkeypatch):
    most = 400 * 10**6
    monkeypatch.setattr(memory, "safe", lambda: most)  # for who asks for no limit
    limit = {"memory_limit": most} if asked else {"largest": True}
    settings = Settings("mlp-small", (1,), ("hungry",), data=DATA, **limit)
    with closing(Journal({}, tmp_path)) as journal:
        search = Limits(settings, [], journal, lambda doing: None)
        found = search.largest("hungry", Contestant("hungry"), [])
    assert (found.note, found.limit) == ("", most)
    assert most - 2 * EACH < found.used <= most
    fits = {probe.batch: probe.fits for probe in found.probes}
    assert fits[found.largest] is True
    assert fits[found.largest + 1] is False
    with closing(Journal({}, tmp_path)) as journal:
        kept = [Probe(**line["probe"]) for line in journal.lines]
        again = Limits(settings, kept, journal, pytest.fail)
        assert again.largest("hungry", Contestant("hungry"), []).largest == found.largest


@pytest.mark.slow
@pytest.mark.parametrize(("now", "again"), [(2.0, 0), (0.8, 1)])
def test_a_search_goes_on_under_its_limit_or_begins_anew(now, again, tmp_path: Path, monkeypatch):
    """Where there is more memory than there was, and where there is less."""
    free, said = 300 * 10**6, []
    settings = Settings("mlp-small", (1,), ("hungry",), data=DATA, largest=True)
    monkeypatch.setattr(memory, "safe", lambda: free)
    with closing(Journal({}, tmp_path)) as journal:
        search = Limits(settings, [], journal, lambda doing: None)
        first = search.largest("hungry", Contestant("hungry"), [])
    free = int(now * free)
    with closing(Journal({}, tmp_path)) as journal:
        kept = [Probe(**line["probe"]) for line in journal.lines]
        second = Limits(settings, kept, journal, said.append).largest(
            "hungry", Contestant("hungry"), []
        )
    assert bool(said) == bool(again)
    assert second.limit == (free if again else first.limit)
    assert (second.largest < first.largest) == bool(again)
    assert second.used <= second.limit


@pytest.mark.slow
def test_the_largest_batch_was_predicted(tmp_path: Path):
    """Under a limit that some batch just fits into, which need not be searched for here."""
    who, batch = "pareo-vectorized", 1000
    settings = Settings("papers-cnn", (1,), (who,), threads=1, data=DATA)
    with Worker(probing, CONTESTANTS[who], settings.task(batch), threads=1) as worker:
        told = worker.ask()
    probes = [
        Probe(contestant=who, batch=batch, fits=True, under=told["used"], **told),
        Probe(contestant=who, batch=batch + 1, fits=False, under=told["used"]),
    ]
    limited = replace(settings, memory_limit=told["used"])
    with closing(Journal({}, tmp_path)) as journal:
        found = Limits(limited, probes, journal, lambda doing: None).largest(
            who, CONTESTANTS[who], []
        )
    with closing(Journal({}, tmp_path)) as journal:
        assert journal.lines == []  # no probe was wanting
    assert (found.note, found.largest) == ("", batch)
    assert found.predicted == pytest.approx(batch, rel=0.05)


def test_without_a_limit_free_memory_must_be_known(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(memory, "safe", lambda: None)
    settings = Settings("mlp-small", (1,), ("hungry",), data=DATA, largest=True)
    with closing(Journal({}, tmp_path)) as journal:
        search = Limits(settings, [], journal, lambda doing: None)
        found = search.largest("hungry", Contestant("hungry"), [])
    assert found.largest is None
    assert "give --memory-limit" in found.note


def test_a_probe_that_fails_for_another_reason_is_no_limit(tmp_path: Path):
    settings = Settings("mlp-small", (1,), ("absent",), data=DATA, memory_limit=10**9)
    with closing(Journal({}, tmp_path)) as journal:
        search = Limits(settings, [], journal, lambda doing: None)
        found = search.largest("absent", Contestant("no_such_module"), [])
    with closing(Journal({}, tmp_path)) as journal:
        assert journal.lines == []
    assert found.largest is None
    assert "No module named 'no_such_module'" in found.note


@pytest.mark.gpu
@needs_gpu
@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="it leaves others no memory")
def test_the_largest_batch_in_what_is_left_of_a_card(tmp_path: Path):
    settings = Settings("mlp-small", (1,), ("pareo-cuda",), data=DATA, largest=True)
    timed = Cell("pareo-cuda", 1 << 16, seconds_per_batch=[1.0])  # where the search begins
    with Ballast.leaving(2 * 10**9, on_gpu=True) as others, closing(Journal({}, tmp_path)) as kept:
        search = Limits(settings, [], kept, lambda doing: None)
        found = search.largest("pareo-cuda", ON_GPU["pareo-cuda"], [timed])
    assert found.note == ""
    assert 10**9 < found.limit < others.left  # the search's own process has some of it
    fits = {probe.batch: probe.fits for probe in found.probes}
    assert fits[found.largest] is True
    assert fits[found.largest + 1] is False
    assert found.predicted == pytest.approx(found.largest, rel=0.05)
