"""Networks for the gate are drawn alike, and refusals are counted for each contestant."""

from itertools import islice

import pytest
from benchmarks import gate, wrong_later
from benchmarks.tables import drawn

from pareo.lab.contestants import CONTESTANTS, Contestant
from pareo.lab.race.result import Row


def test_networks_are_small_and_of_both_kinds() -> None:
    found = list(islice(gate.networks(seed=1), 4))
    assert {one.kind for one in found} == {"mlp", "cnn"}
    assert all(one.flops <= gate.FLOPS for one in found)
    assert [str(one) for one in islice(gate.networks(seed=1), 4)] == list(map(str, found))


def test_refusals_are_counted() -> None:
    refused = Row("frozen")
    refused.end("refused", "it does not train")
    table = drawn(gate.table({"torch": [Row("torch")], "frozen": [refused, Row("frozen")]}))
    assert table is not None
    assert table.rows == [["torch", "1", "0", "0"], [wrong_later.CHANGES["frozen"], "2", "1", "0"]]


@pytest.mark.slow
def test_a_race_admits_the_right_and_refuses_the_wrong() -> None:
    one = next(gate.networks(seed=2))
    frozen = {"base": "pareo-vectorized", "change": "frozen"}
    wrong = Contestant("benchmarks.wrong_later", frozen)
    right = {"pareo-vectorized": CONTESTANTS["pareo-vectorized"]}
    rows = gate.raced(one, {**right, "frozen": wrong})
    assert [row.status for row in rows] == ["ok", "refused"]
