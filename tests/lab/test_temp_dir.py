"""Temporary directories: the next process removes what a killed process left, and no more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pareo.lab import temp_dir

CODE = """
import sys, time
from pareo.lab import temp_dir
with temp_dir.folder() as place:
    (place / "large").write_text("x")
    print(place, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty temporary directory, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # it caches the directory
    return tmp_path


def abandoned(temporary: Path, name: str = f"{temp_dir.PREFIX}abc") -> Path:
    """A directory as a killed process leaves it."""
    top = temporary / name
    (top / temp_dir.FILES).mkdir(parents=True)
    (top / temp_dir.FILES / "large").write_text("x")
    (top / temp_dir.MARKER).write_bytes(temp_dir._written(top))
    return top


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_a_killed_process_left_is_removed(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with temp_dir.folder():
            assert (left / "large").is_file(), "its process is alive"
        process.send_signal(signal.SIGKILL)
    assert left.is_dir()
    with temp_dir.folder() as own:
        assert not left.exists()
        assert own.is_dir()
    assert everything(temporary) == []


@pytest.mark.parametrize(
    "name",
    [
        "pareo-2026-results",
        "pareo-99999999999999999999-x",
        f"pareo-{2**63}-x",
        "pareo-scratch-2026",
    ],
)
def test_other_directories_are_kept(temporary: Path, name: str) -> None:
    (temporary / name).mkdir()
    (temporary / name / "thesis.csv").write_text("years of work")
    before = everything(temporary)
    with temp_dir.folder():
        pass
    assert everything(temporary) == before


def _renamed(top: Path) -> None:
    top.rename(top.with_name(f"{temp_dir.PREFIX}kept"))


def _edited(top: Path) -> None:
    with (top / temp_dir.MARKER).open("a") as marker:
        marker.write("please keep\n")


def _linked_folder(top: Path) -> None:
    elsewhere = top.rename(top.with_name("elsewhere"))
    top.symlink_to(elsewhere)


def _linked_marker(top: Path) -> None:
    real = (top / temp_dir.MARKER).rename(top / "real")
    (top / temp_dir.MARKER).symlink_to(real)


def _piped_marker(top: Path) -> None:
    (top / temp_dir.MARKER).unlink()
    os.mkfifo(top / temp_dir.MARKER)


@pytest.mark.parametrize(
    "change", [_renamed, _edited, _linked_folder, _linked_marker, _piped_marker]
)
def test_a_directory_without_a_valid_marker_is_kept(temporary: Path, change: object) -> None:
    assert callable(change)
    change(abandoned(temporary))
    before = everything(temporary)
    with temp_dir.folder():
        pass
    assert everything(temporary) == before


def test_a_directory_of_another_user_is_kept(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = abandoned(temporary)
    own = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: own + 1)
        with temp_dir.folder():
            pass
    assert left.is_dir()
    with temp_dir.folder():
        assert not left.exists()


def test_files_that_were_added_to_an_abandoned_directory_are_kept(temporary: Path) -> None:
    left = abandoned(temporary)
    (left / "mine").write_text("x")
    with temp_dir.folder():
        pass
    assert everything(temporary) == [left.name, f"{left.name}/mine"]


def test_links_in_an_abandoned_directory_are_not_followed(temporary: Path) -> None:
    left = abandoned(temporary)
    (temporary / "precious").mkdir()
    (temporary / "precious" / "file").write_text("x")
    (left / temp_dir.FILES / "link").symlink_to(temporary / "precious")
    with temp_dir.folder():
        pass
    assert everything(temporary) == ["precious", "precious/file"]
