"""`pareo compare --fail-over`: an exit status that a job can use."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from race_result import made
from typer.main import get_command
from typer.testing import CliRunner

from pareo.cli import app
from pareo.errors import PareoError


def written(folder: Path, name: str, data: dict[str, Any]) -> str:
    file = folder / name
    file.write_text(json.dumps(data))
    return str(file)


def compared(folder: Path, after: dict[str, Any], *words: str) -> Any:
    pair = written(folder, "a.json", made()), written(folder, "b.json", after)
    return CliRunner().invoke(app, ["compare", *pair, *words], env={"COLUMNS": "160"})


def test_slower_than_the_limit_fails(tmp_path: Path) -> None:
    after = made({"pareo-compiled": 1.1}, seed=2)
    done = compared(tmp_path, after, "--fail-over", "3%")
    assert done.exit_code == 1
    assert "pareo-compiled is slower by " in done.stdout
    assert compared(tmp_path, after, "--fail-over", "30%").exit_code == 0
    assert compared(tmp_path, after).exit_code == 0


def test_only_those_that_are_named_count(tmp_path: Path) -> None:
    after = made({"torch": 1.1}, seed=2)
    assert compared(tmp_path, after, "--fail-over", "3%").exit_code == 0
    done = compared(tmp_path, after, "--fail-over", "3%", "--contestants", "torch")
    assert done.exit_code == 1
    done = compared(tmp_path, after, "--fail-over", "3%", "--contestants", "nobody")
    assert done.exit_code == 1
    assert "nobody cannot be compared: in neither race" in done.stdout


def test_a_slower_machine_cancels_beside_a_peer(tmp_path: Path) -> None:
    after = made(seed=2)
    for row in after["rows"]:
        row["samples"] = [1.2 * sample for sample in row["samples"]]
    assert compared(tmp_path, after, "--fail-over", "3%").exit_code == 1
    done = compared(tmp_path, after, "--fail-over", "3%", "--against", "torch")
    assert done.exit_code == 0, done.stdout


def test_what_cannot_be_compared_does_not_pass(tmp_path: Path) -> None:
    other = {**made(seed=2), "batch": 32}
    done = compared(tmp_path, other, "--fail-over", "3%")
    assert done.exit_code == 1
    assert "not the same work: batch" in done.stdout
    for change in ({"threads": 7}, {"machine": {**made()["machine"], "processor": "Another"}}):
        done = compared(tmp_path, {**made(seed=2), **change}, "--fail-over", "3%")
        assert done.exit_code == 1
        assert "times cannot be compared" in done.stdout
        done = compared(
            tmp_path, {**made(seed=2), **change}, "--fail-over", "3%", "--against", "torch"
        )
        assert done.exit_code == 0, done.stdout
    done = compared(tmp_path, made(seed=2), "--against", "nobody")
    assert isinstance(done.exception, PareoError)


def test_the_job_in_the_docs_is_valid_and_its_commands_exist() -> None:
    """As GitHub reads it: YAML with steps, whose commands have these options."""
    yaml = pytest.importorskip("yaml")
    page = (Path(__file__).parents[2] / "docs" / "howto-history.md").read_text()
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    job = yaml.safe_load(text)
    assert job["jobs"]["compare"]["runs-on"] == "ubuntu-latest"
    steps = job["jobs"]["compare"]["steps"]
    assert all(set(step) & {"uses", "run"} for step in steps)
    said = "\n".join(step.get("run", "") for step in steps)
    commands = re.findall(r"bin/pareo (\w+) (.*)", said)
    assert [name for name, _ in commands] == ["race", "compare"]
    known = get_command(app).commands
    for name, words in commands:
        options = {option for one in known[name].params for option in one.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= options
