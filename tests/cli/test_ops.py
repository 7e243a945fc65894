"""`pareo ops` and `pareo ceilings` as a user meets them."""

import io
import json
from importlib import import_module

import pytest
from ops_result import machine, made
from rich.console import Console
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables import ops
from pareo.errors import PareoError
from pareo.lab.experiment import results

# In `pareo.cli` the commands themselves have these names.
ceilings_command, ops_command = map(import_module, ("pareo.cli.ceilings", "pareo.cli.ops"))


def said(*words):
    """What a command prints on a wide terminal, and how it ended."""
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    if isinstance(done.exception, PareoError):
        return f"pareo: {done.exception}", 1
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout, done.exit_code


@pytest.fixture
def known(monkeypatch):
    """A machine that is known already: measuring one takes a minute."""
    for module in (ceilings_command, ops_command):
        monkeypatch.setattr(module, "measured", lambda device, again=False: machine())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ops", "--ops", "ad"], "no operator is called 'ad'; there are mul, scalar, add"),
        (["ops", "--sizes", "2"], "--sizes expects sizes such as 2MB..1GB or 512KB; got '2'"),
        (
            ["ops", "--peers", "theano"],
            "--peers expects some of numpy, torch, jax, pytensor, tinygrad, cupy, or none",
        ),
        (["ops", "--direction", "up"], "--direction expects one of forward, backward, both"),
        (["ops", "--devices", "fpga"], "Device expects one of sequential, vectorized"),
        (["ops", "--json", "no/where.json"], "no/where.json: its directory does not exist"),
        (["ceilings", "--device", "tpu"], "--device expects cpu or cuda; got 'tpu'"),
        (["ceilings", "--html", "no/where.html"], "no/where.html: its directory does not exist"),
    ],
)
def test_bad_input_is_one_sentence(known, words, sentence):
    text, status = said(*words)
    assert sentence in text
    assert "\n" not in text.strip()
    assert status != 0


def test_ops_prints_a_table_for_each_operator_and_keeps_everything(known, tmp_path):
    json_file, html = tmp_path / "ops.json", tmp_path / "ops.html"
    text, status = said(
        "ops", "--ops", "add,mul", "--sizes", "1MB..2MB", "--devices", "vectorized",
        "--peers", "numpy", "--seconds", "0.01", "--cells", "--json", str(json_file),
        "--html", str(html),
    )  # fmt: skip
    assert status == 0
    for words in ("add, forward: GB/s", "mul, forward: GB/s", "2 MB", "of roofline", "worst"):
        assert words in text
    assert "agree with float64" in text
    result = json.loads(json_file.read_text())
    assert [(r["operator"], r["nbytes"] >> 20) for r in result["rows"]][::2] == [
        ("add", 1), ("add", 2), ("mul", 1), ("mul", 2),
    ]  # fmt: skip
    assert "Furthest from the limit" in html.read_text()


def test_a_run_that_is_cut_short_leaves_what_it_has(known, monkeypatch, tmp_path):
    result = made()

    def cut(benchmark):
        benchmark.doing = f"mul: {ops_command.READY}"
        benchmark.watch(benchmark)
        raise KeyboardInterrupt

    monkeypatch.setattr(ops_command.Benchmark, "run", cut)
    monkeypatch.setattr(ops_command.Benchmark, "result", lambda benchmark: result)
    CliRunner().invoke(app, ["ops", "--json", str(tmp_path / "ops.json")])
    assert results.read(tmp_path / "ops.json") == result


def test_who_was_refused_has_a_row_and_the_status_is_1(known, monkeypatch):
    result = made()
    result.rows[0].end("refused", "result 0 differs by 0.5")
    monkeypatch.setattr(ops_command.Benchmark, "run", lambda benchmark: result)
    text, status = said("ops")
    assert status == 1
    assert "pareo-compiled: refused: result 0 differs by 0.5 (add forward)" in text
    assert "jax: missing: not <here> (add forward)" in text


def test_contestants_are_devices_and_peers_where_those_are():
    assert ops_command._contestants("compiled", "torch,jax") == ["pareo-compiled", "torch", "jax"]
    assert ops_command._contestants("sequential,vectorized", "none") == [
        "pareo-sequential",
        "pareo-vectorized",
    ]


def test_arithmetic_has_flops_and_moving_has_bytes():
    console = Console(width=200, file=io.StringIO())
    for part in ops.everything(made(), cells=True):
        console.print(part)
    text = console.file.getvalue()
    assert "dot, forward: GFLOP/s" in text
    assert "transpose, forward: GB/s" in text


def test_ceilings_show_the_hierarchy_and_the_data_sheet(known, tmp_path):
    html, json_file = tmp_path / "ceilings.html", tmp_path / "ceilings.json"
    text, status = said(
        "ceilings", "--device", "cpu", "--html", str(html), "--json", str(json_file)
    )
    assert status == 0
    for words in ("float32, 2 threads", "60", "80 (75% of it)", "L2", "memory", "np.add", "triad"):
        assert words in text
    page = html.read_text()
    assert "<svg" in page
    assert "a machine &lt;that&gt; is made up" in page
    assert json.loads(json_file.read_text())[0]["levels"][0]["name"] == "L2"
