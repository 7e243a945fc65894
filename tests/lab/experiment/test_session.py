"""A session: what is under way, and how busy the machine was."""

import pytest

from pareo import machine
from pareo.lab.experiment.experiment import Session
from pareo.lab.ops.result import OpsResult


@pytest.mark.parametrize(
    ("before", "after", "noted"), [(2.0, 0.5, 0.5), (0.5, 2.0, 0.5), (None, 1.0, 1.0)]
)
def test_the_busiest_moment_is_noted(monkeypatch, before, after, noted):
    idle = iter([before, after])
    monkeypatch.setattr(machine, "idle_cores", lambda: next(idle))
    session = Session()
    session.begin()
    session.end()
    assert session.header(OpsResult, "ops")["machine"].idle_cores == noted


def test_watch_is_called_at_every_change():
    seen = []
    session = Session(lambda session: seen.append(session.doing))
    session.say("one thing")
    session.say("another")
    assert seen == ["one thing", "another"]
