"""The largest batch: the search by itself, and with real processes under a limit."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo.lab.contestants.registry import chosen
from pareo.lab.sweep import Settings
from pareo.lab.sweep.journal import Journal
from pareo.lab.sweep.limit import Limits, next_batch


def searched(memory, most: int, hint: int = 1) -> tuple[int, int]:
    """The largest batch under a limit by a rule for memory, and the probes that took."""
    probes: list[dict] = []
    while (batch := next_batch(probes, most, hint)) is not None:
        used = memory(batch)
        fits = used <= most
        probes.append({"batch": batch, "fits": fits, "used": used if fits else None})
        assert len(probes) < 60
    return max((p["batch"] for p in probes if p["fits"]), default=0), len(probes)


@given(
    base=st.integers(0, 1000),
    each=st.integers(1, 300),
    most=st.integers(1, 200_000),
    hint=st.integers(1, 64),
    jump=st.integers(0, 5000),
    at=st.integers(1, 5000),
)
def test_the_search_finds_the_largest_whatever_memory_does(base, each, most, hint, jump, at):
    def memory(batch: int) -> int:
        return base + each * batch + (jump if batch >= at else 0)

    found, _ = searched(memory, most, hint)
    assert found == 0 or memory(found) <= most
    assert memory(found + 1) > most


def test_a_straight_line_needs_few_probes():
    assert searched(lambda batch: 300 + 29 * batch, most=2000, hint=16) == (58, 4)


def test_the_search_ends_where_everything_fits():
    found, probes = searched(lambda batch: 1, most=10)
    assert found == 1 << 20
    assert probes < 30


def test_real_processes_under_a_limit(tmp_path: Path):
    most = 400 * 10**6
    settings = Settings(
        "mlp-small", (1,), ("pareo-vectorized",), data="synthetic:1x28x28:10:60", memory_limit=most
    )
    contestant = chosen(["pareo-vectorized"])["pareo-vectorized"]
    with closing(Journal({}, tmp_path)) as journal:
        search = Limits(settings, [], journal, lambda doing: None)
        found = search.largest("pareo-vectorized", contestant, [])
    assert found["note"] == ""
    assert found["largest"] > 1000
    assert found["used"] <= most
    assert found["predicted"] == pytest.approx(found["largest"], rel=0.1)
    fits = {probe["batch"]: probe["fits"] for probe in found["probes"]}
    assert fits[found["largest"]] is True
    assert fits[found["largest"] + 1] is False
    with closing(Journal({}, tmp_path)) as journal:
        kept = [line["probe"] for line in journal.lines]
        again = Limits(settings, kept, journal, pytest.fail)
        assert again.largest("pareo-vectorized", contestant, [])["largest"] == found["largest"]
