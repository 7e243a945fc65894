"""Folders for large files: whoever is killed leaves one, and the next who comes removes it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pareo.lab import scratch

CODE = """
import sys, time
from pareo.lab import scratch
with scratch.folder() as place:
    (place / "large").write_text("x")
    print(place, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # which remembers the one before
    (tmp_path / "pareo-of-somebody").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with scratch.folder():
            assert left.is_dir(), "it lives"
        process.send_signal(signal.SIGKILL)
    assert left.is_dir()
    with scratch.folder() as own:
        assert not left.exists()
        assert own.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["pareo-of-somebody"]
