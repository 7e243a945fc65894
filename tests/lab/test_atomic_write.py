"""Files on a full disk: the old file is kept, and nothing else is left."""

import os
import subprocess
import sys
from pathlib import Path

FULL = """
import resource, signal, sys
from pathlib import Path
from pareo.errors import DataError
from pareo.lab.atomic_write import write_whole

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # as if the disk ended there
try:
    write_whole(Path(sys.argv[1]), "new " * 1000)
except DataError as error:
    print(error)
"""


def test_what_cannot_be_written_destroys_nothing(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    for there in (["old.json"], ["old.json", "result.json"]):
        (tmp_path / "old.json").write_text("old")
        said = subprocess.run(
            [sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, check=True
        )
        assert said.stdout == f"{file}: cannot be written: File too large\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == there
        assert not file.exists() or file.read_text() == "old"
        file.write_text("old")


def test_links_and_modes_stay(tmp_path: Path) -> None:
    from pareo.lab.atomic_write import write_whole

    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_whole(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_beside_the_one_that_is_written_is_kept(tmp_path: Path) -> None:
    from pareo.lab.atomic_write import write_whole

    own, victim = tmp_path / f".a.{os.getpid()}", tmp_path / "victim"
    victim.write_text("precious")
    own.symlink_to(victim)  # the name that is made first could be guessed once
    write_whole(tmp_path / "a", "new")
    assert own.is_symlink()
    assert victim.read_text() == "precious"
