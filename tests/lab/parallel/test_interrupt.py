"""Ctrl-C in `pareo parallel`: it ends at once, and no turn that was cut short is kept."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

# The command with one of its strategies, long enough for its first turn to be cut. The signal goes
# to all of its processes, as from a terminal, so many seconds after the turn began.
CODE = """
import os, signal, sys, threading
from dataclasses import replace

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, delay = sys.argv[1], float(sys.argv[2])
    from pareo.__main__ import main
    from pareo.lab.parallel import measure, strategies

    def only(*about):
        (one,) = (one for one in strategies.strategies(*about) if one.name == name)

        def run():
            later = threading.Timer(delay, os.killpg, (os.getpgrp(), signal.SIGINT))
            later.daemon = True
            later.start()
            return one.run()

        return [replace(one, run=run)]

    measure.strategies = only
    usual = "mlp-big --workers 2 --turn 60 --batches none --rounds 1 --json one.json"
    sys.argv = ["pareo", "parallel", *usual.split()]
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "delay"),
    [
        ("one worker", 0.5),
        ("tasks, processes", 0.1),
        ("data, processes", 3),
    ],
)
def test_one_sentence_and_nothing_is_kept(tmp_path: Path, strategy: str, delay: float) -> None:
    (tmp_path / "run.py").write_text(CODE)  # a file: processes that are started import it
    with subprocess.Popen(
        [sys.executable, "run.py", strategy, str(delay)],
        env={**os.environ, "PAREO_RECORDS": str(tmp_path / "r.sqlite")}, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        said = process.communicate(timeout=120)
    assert (process.returncode, *said) == (130, "", "Interrupted.\n")
    assert [file.name for file in tmp_path.iterdir()] == ["run.py"]
    until = time.monotonic() + 10  # Python's own helper process ends a moment after it
    while (left := living(process.pid)) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def living(group: int) -> list[str]:
    """The processes of a group, without zombies."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = file.read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(name)
    return found
