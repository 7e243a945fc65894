"""Profiles as a Chrome trace, which ui.perfetto.dev and chrome://tracing open."""

import json
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.kernels.events import Profile


def trace(profiles: dict[str, list[Profile]]) -> dict[str, Any]:
    """The trace: one lane (a process) for each profile, threads or streams within it.

    All lanes start at zero, so that steps are aligned.

    >>> from pareo.lab.kernels.events import Event
    >>> seen = Profile("a clock", 1, 2.0, [Event("dot", "gemm", 5.0, 7.0, shape="2x3, 3x4 -> 2x4")])
    >>> [e["name"] for e in trace({"ours": [seen]})["traceEvents"] if e["ph"] == "X"]
    ['dot']
    """
    found: list[dict[str, Any]] = []
    flat = [(name, profile) for name, several in profiles.items() for profile in several]
    for lane, (name, profile) in enumerate(flat, start=1):
        title = f"{name}, {profile.mode}" if profile.mode else name
        found.append(_metadata("process_name", lane, 0, name=f"{title} ({profile.instrument})"))
        found.append(_metadata("process_sort_index", lane, 0, sort_index=lane))
        first = min((event.start for event in profile.events), default=0.0)
        threads = {event.lane: 0 for event in profile.events}
        threads = {thread: number for number, thread in enumerate(threads, start=1)}
        for thread, number in threads.items():
            found.append(_metadata("thread_name", lane, number, name=thread or "steps"))
        for event in profile.events:
            known = {"shape": event.shape, "FLOP": event.flops}
            found.append(
                {
                    "name": event.name,
                    "cat": event.kind,
                    "ph": "X",
                    "ts": (event.start - first) * 1e6,
                    "dur": (event.end - event.start) * 1e6,
                    "pid": lane,
                    "tid": threads[event.lane],
                    "args": {key: value for key, value in known.items() if value},
                }
            )
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _metadata(what: str, lane: int, thread: int, **arguments: Any) -> dict[str, Any]:
    """A metadata event, which names something and has no time."""
    return {"name": what, "ph": "M", "pid": lane, "tid": thread, "args": arguments}


def write(profiles: dict[str, list[Profile]], path: Path) -> None:
    """Write the trace to a file."""
    write_whole(path, json.dumps(trace(profiles), allow_nan=False))
