"""What `pareo` and its public packages export: every name exists, and `import *` gives these."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import pareo

PACKAGES = ("pareo", "pareo.backends", "pareo.data", "pareo.nn", "pareo.operators",
            "pareo.parallel", "pareo.program", "pareo.training")  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists(package: str) -> None:
    module = import_module(package)
    needs_scikit_learn = ("Classifier", "Regressor")
    names = [name for name in module.__all__ if name not in needs_scikit_learn]
    assert [name for name in names if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "pareo.__version__"}
    assert pareo.__version__.count(".") == 2
