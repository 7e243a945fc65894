"""The package: all of its files are in a wheel, with licences, and its dependencies have bounds."""

import re
import runpy
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_file_that_is_no_python_is_packed() -> None:
    declared = PROJECT["tool"]["setuptools"]["package-data"]
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, given in declared.items()
        for pattern in given
    ]
    files = [path for path in (ROOT / "src" / "pareo").rglob("*") if path.is_file()]
    others = [str(path.relative_to(ROOT / "src")) for path in files if path.suffix != ".py"]
    others = [name for name in others if "__pycache__" not in name]
    assert len(others) > 20
    assert not [name for name in others if not any(fnmatch(name, one) for one in patterns)]


def test_every_package_has_an_init_and_is_found() -> None:
    packages = {path.parent for path in (ROOT / "src" / "pareo").rglob("*.py")}
    assert not [path for path in packages if not (path / "__init__.py").exists()]


def test_every_dependency_has_a_lower_bound() -> None:
    assert all(re.search(r">=\d", one) for one in PROJECT["project"]["dependencies"])


def test_the_licence_of_the_shipped_data_is_in_the_metadata() -> None:
    project = PROJECT["project"]
    assert project["license"] == "Apache-2.0 AND CC-BY-SA-3.0"
    for name in project["license-files"]:
        assert (ROOT / name).is_file()
    assert "CC BY-SA 3.0" in (ROOT / project["license-files"][1]).read_text()


def test_the_lock_file_has_a_digest_for_every_pin_but_that_of_torch() -> None:
    lock = runpy.run_path(str(ROOT / ".ci" / "lock.py"))
    entries = lock["LOCK"].read_text().replace(" \\\n", "").splitlines()
    locked = [line.split()[0] for line in entries if not line.startswith("#")]
    assert locked == sorted(lock["pins"]())
    assert len(locked) > 70
    digests = r"\S+==\S+( +--hash=sha256:[0-9a-f]{64})+"
    assert all(re.fullmatch(digests, line) for line in entries if not line.startswith("#"))
