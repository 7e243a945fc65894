"""The command line as a person meets it: real processes, one sentence for what is wrong."""

import json
import subprocess
import sys

from pareo import __version__
from pareo.device import why_unavailable


def pareo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareo", *arguments], capture_output=True, text=True
    )


def test_devices_lists_every_device_and_the_machine() -> None:
    done = pareo("devices")
    assert done.returncode == 0
    for word in ("sequential", "vectorized", "compiled", "cuda", "processor", "memory", "BLAS"):
        assert word in done.stdout
    shown = " ".join(done.stdout.replace("│", " ").split())
    assert (why_unavailable("cuda") or "hand-written CUDA")[:60] in shown
    assert done.stderr == ""


def test_devices_as_json() -> None:
    found = json.loads(pareo("devices", "--json").stdout)
    assert found["devices"]["compiled"] is None
    assert found["devices"]["cuda"] == why_unavailable("cuda")
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["libraries"]["numpy"]


def test_version() -> None:
    assert pareo("--version").stdout == f"pareo {__version__}\n"


def test_unknown_commands_and_options_fail_with_a_reason() -> None:
    for arguments in (("nonsense",), ("devices", "--nonsense"), ("devices", "extra")):
        done = pareo(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "nonsense" in done.stderr or "extra" in done.stderr


def test_help_names_the_commands() -> None:
    done = pareo("--help")
    assert done.returncode == 0
    assert "devices" in done.stdout
