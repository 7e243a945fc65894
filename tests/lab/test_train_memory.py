"""The memory of a training step: what is predicted is what a process takes."""

import pytest

from pareo.lab.contestants import CONTESTANTS
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.worker import Worker
from pareo.lab.sweep.cells import Cell
from pareo.lab.sweep.runner import CellRunner
from pareo.lab.train_memory import main


@pytest.mark.parametrize(("network", "batch"), [("googlenet", 16)])
def test_the_prediction_is_within_five_percent_of_what_is_used(network: str, batch: int) -> None:
    task = task_for(network, batch, threads=2, size=96)
    cell = Cell("pareo-compiled", batch)
    for _ in range(2):  # a compiler that had to work in the first process had memory of its own
        with Worker(CellRunner, CONTESTANTS["pareo-compiled"], task, threads=2) as worker:
            cell.memory = worker.ask("footprint")
            cell.memory["program"] = worker.ask("predicted")
    assert cell.predicted == pytest.approx(cell.memory["used"], rel=0.05)


def test_the_command_prints_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(
        ["papers-cnn", "--batch", "8", "--contestants", "pareo-vectorized", "--threads", "1"]
    )
    assert status == 0
    text = capsys.readouterr().out
    assert "papers-cnn, batch 8" in text
    assert "pareo-vectorized" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "a network is one of papers-cnn"),
        (["papers-cnn", "--batch", "0"], "at least 1; got '0'"),
        (["papers-cnn", "--contestants", "nobody"], "'nobody' is none of pareo-compiled"),
    ],
)
def test_wrong_words_are_refused_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
