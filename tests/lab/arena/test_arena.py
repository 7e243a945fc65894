"""An arena of real processes: races, failures that are rows, an interruption, its journal."""

from pathlib import Path

import pytest

from pareo.errors import DataError
from pareo.lab.arena.engine import WHOLE, Arena, LargeMatch, Match
from pareo.lab.arena.result import ArenaResult
from pareo.lab.arena.settings import Settings, entered
from pareo.lab.contestants import Contestant
from pareo.lab.experiment import results
from pareo.lab.experiment.gate.parity import reference
from pareo.lab.experiment.running import Running
from pareo.lab.race.engine import Race
from pareo.lab.race.result import Row

# A dense layer each.
SETTINGS = Settings(
    first=88, count=2, kinds=("mlp",), contestants=("pareo-vectorized", "torch"), seconds=0.3
)


def arena(folder: Path) -> Arena:
    made = Arena(SETTINGS, folder)
    made.contestants["broken"] = Contestant("no.such.module")
    return made


@pytest.mark.slow
def test_an_arena_is_interrupted_and_continued(tmp_path: Path) -> None:
    def stop(under_way: Arena) -> None:
        if under_way.bouts:
            raise KeyboardInterrupt

    first = arena(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.run(stop)
    assert [bout.index for bout in first.result().bouts] == [88]
    first.close()

    second = arena(tmp_path)
    assert second.resumed == 1
    found = second.run()
    assert [bout.index for bout in found.bouts] == [88, 89]
    for bout in found.bouts:
        ours, peer, broken = bout.rows
        assert ours.status == peer.status == "ok", bout
        assert bout.ratio == peer.median / ours.median
        assert broken.status == "failed"
        assert "no.such" in broken.note or "No module" in broken.note
        assert bout.missed == [broken]
        assert bout.spent[0].layer.startswith("layer 0, Dense")
        assert 0.5 < sum(one.share for one in bout.spent) < 1.001
    assert found.bouts[0] == first.result().bouts[0]
    again = results.parsed(results.to_json(found), "itself")
    assert isinstance(again, ArenaResult)
    assert again == found
    second.finish()
    third = Arena(SETTINGS, tmp_path)
    assert third.resumed == 0
    third.close()


def test_a_network_that_cannot_be_raced_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Race) -> None:
        raise ValueError("a shape that nobody foresaw")

    monkeypatch.setattr(Race, "run", fail)
    made = Arena(SETTINGS, tmp_path)
    found = made.run()
    made.close()
    assert len(found.bouts) == 2
    assert not found.compared
    for row in found.bouts[0].missed:
        assert row.note == "ValueError: a shape that nobody foresaw"


def test_a_journal_that_is_damaged_is_named(tmp_path: Path) -> None:
    made = Arena(SETTINGS, tmp_path)
    made._journal.add({"bout": {"index": -1}})
    made.close()
    with pytest.raises(DataError, match="expected an arena's journal; delete it to begin again"):
        Arena(SETTINGS, tmp_path)


def test_rounds_that_a_verdict_needs_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SETTINGS.drawn(88)
    match = Match(SETTINGS.task(one), {}, SETTINGS.rules, "float32", lambda race: None)
    monkeypatch.setattr(Match, "_in_race", lambda self: [])
    match._begin_round(1)
    assert match._over(1, took=0.01)  # nobody is left
    row = Row("someone")
    running = Running(row, match.task, None)  # type: ignore[arg-type]  # it is never asked
    monkeypatch.setattr(Match, "_in_race", lambda self: [running])
    assert not match._over(1, took=0.05)
    assert not match._over(7, took=0.5)
    assert match._over(1, took=0.5)  # eight would take far longer than there is time
    assert match._over(8, took=0.5)


def test_large_networks_have_the_gate_of_a_sweep() -> None:
    assert Race.exact is reference
    assert LargeMatch.exact is not Race.exact
    assert LargeMatch.runner is not Race.runner
    assert WHOLE < 10**9


@pytest.mark.parametrize(
    ("names", "device", "expected"),
    [
        (["pareo-compiled", "torch"], None, ("pareo-compiled", "torch")),
        (["jax", "pareo-vectorized"], "compiled", ("pareo-compiled", "jax", "pareo-vectorized")),
        ([], "compiled", ("pareo-compiled", "torch-best", "jax-best")),
        ([], "cuda",
         ("pareo-cuda", "torch-cuda", "torch-cudagraph", "jax-cuda", "jax-cuda-scan")),
    ],
)  # fmt: skip
def test_contestants(names: list[str], device: str | None, expected: tuple[str, ...]) -> None:
    assert entered(names, device) == expected
