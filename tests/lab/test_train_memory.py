"""The memory of a training step: what is predicted is what a process takes."""

import pytest

from pareo.lab.contestants import CONTESTANTS, Task
from pareo.lab.processes import Worker
from pareo.lab.train_memory import main, predicted, stepping
from pareo.lab.train_speed import network_of


def test_the_prediction_is_within_five_percent_of_the_peak() -> None:
    task = Task(network_of("googlenet", 96), batch=32, threads=2)
    small = Task(task.network, batch=1, threads=2)
    with Worker(stepping, CONTESTANTS["pareo-compiled"], task, small, threads=2) as worker:
        before, peak, given = worker.ask()
    expected = before + given + predicted(task, "compiled")
    assert abs(expected / peak - 1) < 0.05


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
