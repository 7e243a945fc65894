"""The package: all of its files are in a wheel, with licences, and its dependencies have bounds."""

import re
import runpy
import tomllib
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_the_lock_file_has_all_that_make_test_installs() -> None:
    (extras,) = re.findall(r"-e '\.\[([\w,]+)\]'\n\t@touch", (ROOT / "Makefile").read_text())
    optional = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], "setuptools"]
    wanted += [one for extra in extras.split(",") for one in optional[extra]]
    locked = {
        pin.partition("==")[0] for pin in runpy.run_path(str(ROOT / ".ci" / "lock.py"))["pins"]()
    }
    needed = {name for name in closure(wanted) if not name.startswith(("torch", "triton"))}
    assert len(needed) > 100
    assert needed <= locked


def closure(wanted: list[str]) -> set[str]:
    """What is installed for these requirements, and for theirs; PyTorch brings its own."""
    found: set[tuple[str, str]] = set()
    left = [(Requirement(one), "") for one in wanted]
    while left:
        one, extra = left.pop()
        name = canonicalize_name(one.name)
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        for each in ["", *one.extras]:
            if (name, each) not in found:
                found.add((name, each))
                inner = [] if name == "torch" else metadata.requires(name) or []
                left += [(Requirement(line), each) for line in inner]
    return {name for name, _ in found}


def test_the_lock_file_has_a_digest_for_every_pin_but_that_of_torch() -> None:
    lock = runpy.run_path(str(ROOT / ".ci" / "lock.py"))
    entries = lock["LOCK"].read_text().replace(" \\\n", "").splitlines()
    locked = [line.split()[0] for line in entries if not line.startswith("#")]
    assert locked == sorted(lock["pins"]())
    assert len(locked) > 70
    digests = r"\S+==\S+( +--hash=sha256:[0-9a-f]{64})+"
    assert all(re.fullmatch(digests, line) for line in entries if not line.startswith("#"))
