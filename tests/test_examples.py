"""The notebooks in examples/ run, and show tables."""

import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

FOLDER = Path(__file__).parents[1] / "examples"
SHOWN = {
    "first_network.ipynb": ["output", "of the peak", "cross_entropy_gradient"],
    "race_and_sweep.ipynb": ["has the shortest time", "best batch size"],
}


def test_there_is_no_other_notebook() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == sorted(SHOWN)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", SHOWN)
def test_it_runs_and_shows_tables(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(FOLDER.parent / "src")
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in (source, before) if part))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = nbformat.read(FOLDER / name, as_version=4)
    assert not any(cell.get("outputs") for cell in made.cells), "keep notebooks without outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(made, timeout=240, resources=resources).execute()
    html = "".join(
        output.get("data", {}).get("text/html", "")
        for cell in made.cells
        for output in cell.get("outputs", [])
    )
    assert html.count("<table>") >= 2
    for text in SHOWN[name]:
        assert text in html
