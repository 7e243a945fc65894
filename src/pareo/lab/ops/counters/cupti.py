"""CUPTI's own times of kernels, from within the process that launches them."""

from collections.abc import Callable
from typing import Any

from pareo.errors import DeviceError
from pareo.lab.machine.cupti import Recorder, missing


def why_not() -> str:
    """Why CUPTI cannot be used here; empty if it can."""
    return missing() or ""


def counted(work: Callable[[], Any]) -> dict[str, Any]:
    """The kernels that some work ran, and their nanoseconds in all; the work waits for the GPU."""
    try:
        with Recorder().recording() as launches:
            work()
    except DeviceError as error:
        return {"rung": "CUPTI", "failed": str(error)}
    nanoseconds = sum(launch.end - launch.start for launch in launches) * 1e9
    return {
        "rung": "CUPTI",
        "kernels": [launch.name[:80] for launch in launches],
        "nanoseconds": nanoseconds,
    }
