"""The smoke tests touch every package."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DIRECTORIES = sorted({file.parent for file in TESTS.rglob("test_*.py")} - {TESTS})


@pytest.mark.smoke
@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: str(path.relative_to(TESTS)))
def test_every_directory_has_a_smoke_test(directory: Path) -> None:
    assert any("pytest.mark.smoke" in file.read_text() for file in directory.rglob("test_*.py"))
