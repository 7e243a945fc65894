"""The trace has the form that Perfetto and Chrome read."""

import json
from pathlib import Path

import pytest

from pareo.errors import DataError
from pareo.lab.kernels import chrome_trace
from pareo.lab.kernels.events import Event, Profile

SEEN = [
    Event("dot", "gemm", 100.0, 100.5, "one", "2x3, 3x4 -> 2x4", 48.0),
    Event("relu", "elementwise", 100.5, 100.6, "two"),
]
PROFILES = {
    "pareo-compiled": [
        Profile("a clock", 1, 0.6, SEEN),
        Profile("a clock", 1, 0.7, SEEN[:1], mode="by instruction, not as raced"),
    ],
    "torch": [Profile("torch.profiler", 1, 0.6, SEEN)],
    "jax": [],
}


def test_a_lane_for_each_contestant(tmp_path: Path) -> None:
    chrome_trace.write(PROFILES, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["displayTimeUnit"] == "ms"
    names = {
        event["pid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "process_name"
    }
    assert list(names.values()) == [
        "pareo-compiled (a clock)",
        "pareo-compiled, by instruction, not as raced (a clock)",
        "torch (torch.profiler)",
    ]
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["pid"] for event in spans] == [1, 1, 2, 3, 3]
    for event in spans:
        assert event["ts"] >= 0
        assert event["dur"] > 0
        assert isinstance(event["tid"], int)
    first = spans[0]
    assert (first["name"], first["cat"], first["ts"]) == ("dot", "gemm", 0.0)
    assert first["dur"] == pytest.approx(0.5e6)
    assert first["args"] == {"shape": "2x3, 3x4 -> 2x4", "FLOP": 48.0}
    assert spans[0]["tid"] != spans[1]["tid"]


def test_threads_and_streams_have_names() -> None:
    told = chrome_trace.trace(PROFILES)["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in told if e["name"] == "thread_name"}
    spans = {(e["pid"], e["tid"]) for e in told if e["ph"] == "X"}
    assert spans == threads.keys()


def test_a_file_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere/t\.json: cannot be written"):
        chrome_trace.write(PROFILES, tmp_path / "nowhere" / "t.json")
