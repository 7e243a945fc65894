"""A few faults of every kind, in this process; `make faults` injects thousands."""

import pytest

from faults import Kind, Lost, expect
from faults.kinds import KINDS
from faults.run import tried

SEED = 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.quick], ids=lambda kind: kind.name)
@pytest.mark.filterwarnings("default")  # as on the command line
def test_nothing_is_lost(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", "")  # restored afterwards: a kind sets it
    found = [tried(kind, SEED, number) for number in range(kind.quick)]
    assert not [reason for outcome, reason in found if outcome == "lost"]


@pytest.mark.smoke
def test_a_loss_is_noticed() -> None:
    """What is injected is judged: an exception, a broken promise, and a hang are losses."""
    kinds = {
        "exception": lambda: 1 / 0,
        "promise": lambda: expect(False, "nothing is broken"),
        "hang": lambda: [None for _ in iter(int, 1)],
    }
    for name, attempt in kinds.items():
        kind = Kind(name, lambda random, folder, attempt=attempt: attempt, 1, seconds=0.05)
        outcome, reason = tried(kind, SEED, 0)
        assert outcome == "lost", name
        assert reason
    with pytest.raises(Lost, match="nothing is broken"):
        kinds["promise"]()
