"""Profiles: files as KCachegrind and speedscope read them, and times that add up."""

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from pareo import Device, Spec, op, trace
from pareo.errors import DataError
from pareo.training.profile import Function, operator_times, profiled, speedscope


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def outer() -> None:
    busy(0.02)
    inner()


def inner() -> None:
    busy(0.04)


def test_a_callgrind_file_names_callers_and_adds_up(tmp_path: Path) -> None:
    with profiled(tmp_path / "deep" / "run") as files:
        outer()
    text = files[0].read_text()
    assert text.startswith("# callgrind format\nversion: 1\n")
    own: dict[str, int] = {}
    calls: dict[tuple[str, str], tuple[int, int]] = {}
    for block in text.split("\n\n")[1:]:
        lines = block.strip().splitlines()
        assert re.fullmatch(r"fl=.+", lines[0])
        name = lines[1].removeprefix("fn=")
        own[name] = int(lines[2].split()[1])
        for at in range(3, len(lines), 4):
            assert lines[at].startswith("cfl=")
            times = re.fullmatch(r"calls=(\d+) \d+", lines[at + 2])
            assert times
            callee = lines[at + 1].removeprefix("cfn=")
            calls[name, callee] = int(times[1]), int(lines[at + 3].split()[1])
    summary = re.search(r"summary: (\d+)", text)
    assert summary
    assert int(summary[1]) == sum(own.values())
    by_name = {tuple(word.split(":")[0].split(".")[-1] for word in key): value
               for key, value in calls.items()}  # fmt: skip
    assert by_name["outer", "inner"][0] == 1
    assert by_name["outer", "inner"][1] >= 39_000
    assert by_name["outer", "busy"][1] >= 19_000


def test_a_speedscope_file_has_the_stacks(tmp_path: Path) -> None:
    with profiled(tmp_path / "run") as files:
        outer()
    found = json.loads(files[1].read_text())
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    (profile,) = found["profiles"]
    assert profile["type"] == "sampled"
    assert len(profile["samples"]) == len(profile["weights"])
    stacks = {
        tuple(re.sub(r"^\w+\.|:\d+$", "", frames[number]) for number in sample): weight
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
    }
    for start, least in ((("outer", "inner", "busy"), 0.039), (("outer", "busy"), 0.019)):
        under = [weight for stack, weight in stacks.items() if stack[: len(start)] == start]
        assert sum(under) >= least
    assert sum(profile["weights"]) == pytest.approx(profile["endValue"])
    assert profile["endValue"] >= 0.059


def test_time_is_shared_out_among_the_callers() -> None:
    """By hand, so that no clock is asked: g spends 4 s, 1 of them for a and 3 for b."""
    a, b, g = (("m.py", line, name) for line, name in enumerate("abg"))
    found = {
        a: Function(1, 2.0, 3.0, {}),
        b: Function(1, 5.0, 8.0, {}),
        g: Function(2, 4.0, 4.0, {a: (1, 1, 1.0, 1.0), b: (1, 1, 3.0, 3.0)}),
    }
    (profile,) = speedscope(found)["profiles"]
    weights = dict(zip(map(tuple, profile["samples"]), profile["weights"], strict=True))
    assert weights == {(0,): 2.0, (0, 2): 1.0, (1,): 5.0, (1, 2): 3.0}
    assert profile["endValue"] == 11.0


def test_a_profile_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match="the profile cannot be written"),
        profiled(tmp_path / "file" / "run"),
    ):
        pass


@pytest.mark.parametrize("device", ["vectorized", "compiled"])
def test_every_operator_of_a_program_is_timed(device: str) -> None:
    def layer(x: object, w: object, b: object) -> object:
        return op.sum(op.relu(op.add_bias(op.dot(op.reshape(x, (8, 4)), w), b)))

    program = trace(layer, Spec((8, 2, 2)), Spec((4, 3)), Spec((3,)))
    arrays = (np.ones((8, 2, 2), "f4"), np.ones((4, 3), "f4"), np.ones(3, "f4"))
    rows = operator_times(program.compile(Device(device)), arrays, seconds=0.0)
    assert sum(row.flops for row in rows) == program.flops * rows[0].calls
    assert all(row.seconds > 0 for row in rows)
    assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)
    names = {row.name for row in rows}
    assert "reshape" not in names  # a view costs nothing
    assert any(name.startswith("dot") for name in names)
