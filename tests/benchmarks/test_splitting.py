"""Splitting one network: every way is measured, agrees with one worker, and has a row."""

import json
from pathlib import Path

import pytest
import typer
from benchmarks import splitting
from typer.testing import CliRunner

from pareo.nn import networks

pytestmark = pytest.mark.smoke

app = typer.Typer()
app.command()(splitting.main)


def test_every_way_of_a_small_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = networks.mlp([20, 16, 16, 4])
    monkeypatch.setitem(networks.NETWORKS, "small", lambda: small)
    file = tmp_path / "rows.json"
    words = ["small", "--batch", "8", "--steps", "3", "--rounds", "2", "--workers", "2"]
    ways = "data in threads,pipeline in threads,neurons in threads"
    done = CliRunner().invoke(app, [*words, "--ways", ways, "--json", str(file)])
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    names = {"one worker", "data in threads", "pipeline in threads", "neurons in threads"}
    assert names < set(rows)
    assert not any("processes" in way for way in rows)
    assert {len(row["train"]) for row in rows.values()} == {2}
    assert all(way.split()[0] in done.output for way in rows)
    line = next(line for line in done.output.splitlines() if "pipeline" in line)
    assert line.count(" : ") == 2  # the balance of two stages, predicted and measured


def test_one_step_is_refused() -> None:
    done = CliRunner().invoke(app, ["mlp-small", "--steps", "1"])
    assert done.exit_code == 2
    assert "equal to 2" in done.output
