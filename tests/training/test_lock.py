"""A checkpoint has one writer, and a run that a system ends has written one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareo.data import load as load_data
from pareo.errors import DataError
from pareo.interrupt import ENDINGS, Interrupt, Terminated
from pareo.nn import networks
from pareo.training import Result, fit, load
from pareo.training.lock import locked

DATA = load_data("synthetic:16:3:60")
NETWORK = networks.mlp([16, 5, 3])
HOW: dict[str, Any] = {"batch_size": 10, "device": "vectorized", "progress": False}


def test_a_second_run_is_told_at_the_start(tmp_path: Path) -> None:
    said = []

    def second(result: Result) -> None:
        with pytest.raises(DataError, match=f"another run, process {os.getpid()}; wait") as caught:
            fit(NETWORK, DATA, epochs=3, checkpoint=tmp_path, resume=tmp_path, **HOW)
        said.append(caught.value)

    fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, callbacks=[second], **HOW)
    assert said
    assert {file.name for file in tmp_path.iterdir()} == {"last.safetensors", "best.safetensors"}
    assert fit(NETWORK, DATA, epochs=2, checkpoint=tmp_path, resume=tmp_path, **HOW).history[1]


HOLD = """
import sys, time
from pathlib import Path
from pareo.training.lock import locked
with locked(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    environment = {**os.environ, "PYTHONPATH": str(Path(networks.__file__).parents[3])}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, env=environment
    )
    assert holder.stdout is not None
    with holder.stdout:
        holder.stdout.readline()
        with pytest.raises(DataError, match=f"process {holder.pid}"), locked(file):
            pass
        holder.kill()
        holder.wait()
    with locked(file):
        assert [one.name for one in tmp_path.iterdir()] == [".last.safetensors.lock"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ENDINGS)
def test_a_run_that_is_ended_is_saved_and_resumes(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(number, signal.SIG_DFL)  # who runs tests with nohup has SIGHUP ignored

    def end(result: Result) -> None:
        if len(result.history) == 2:
            os.kill(os.getpid(), number)

    with pytest.raises(Terminated) as caught:
        fit(NETWORK, DATA, epochs=9, checkpoint=tmp_path, callbacks=[end], **HOW)
    assert caught.value.code == 128 + number
    said = capsys.readouterr().err
    assert said == f"pareo: stopped by {number.name}: continue with --resume {tmp_path}/last.safetensors\n"  # noqa: E501  # fmt: skip
    assert signal.getsignal(number) == signal.SIG_DFL
    assert load(tmp_path).epoch == 2
    resumed = fit(NETWORK, DATA, epochs=4, checkpoint=tmp_path, resume=tmp_path, **HOW)
    whole = fit(NETWORK, DATA, epochs=4, **HOW)
    for path, array in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[path], array)


def test_a_signal_that_the_program_ignores_or_handles_stays_its_own() -> None:
    for handler in (signal.SIG_IGN, lambda number, frame: None):
        before = signal.signal(signal.SIGHUP, handler)
        try:
            with Interrupt(ENDINGS) as interrupt:
                assert signal.getsignal(signal.SIGHUP) is handler
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(0.01)
            assert not interrupt.asked
            assert signal.getsignal(signal.SIGHUP) is handler
        finally:
            signal.signal(signal.SIGHUP, before)


def test_the_second_signal_ends_the_process() -> None:
    with Interrupt(ENDINGS) as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
