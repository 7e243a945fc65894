"""Processes that are asked: no Ctrl-C reaches them, and nothing that they start outlives them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareo.lab.experiment.worker import Failed, Worker
from pareo.training.own import object_of


def test_a_process_that_starts_hears_no_interrupt() -> None:
    with Worker(attrgetter, "real") as worker:
        for _ in range(40):
            os.kill(worker._process.pid, signal.SIGINT)
            time.sleep(0.01)
        assert worker.ask(2.5) == 2.5
        os.kill(worker._process.pid, signal.SIGINT)
        assert worker.ask(1.5) == 1.5
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == set()


# A Ctrl-C that another thread takes comes while one of multiprocessing's own functions runs.
INTERRUPTED = """
import multiprocessing.util as util, operator, os, signal, sys, threading, time
from pareo.lab.experiment.worker import Worker
name, only = sys.argv[1:]
function = getattr(util, name)

def interrupted(*args):
    result = function(*args)
    if only in str(args):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
    return result

def work():
    with Worker(operator.attrgetter, "real") as worker:
        worker.ask(2.5)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    setattr(util, name, interrupted)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    try:
        work()
        print("nobody was interrupted")
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(
    ("function", "only"),
    [
        ("spawnv_passfds", "spawn_main"),  # the process is there, and has no orders yet
        ("close_fds", ""),  # it is gone, and collected
    ],
)
def test_no_interrupt_is_lost_and_none_leaves_a_process_without_orders(
    tmp_path: Path, function: str, only: str
) -> None:
    (tmp_path / "script.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", function, only],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "interrupted\n"
    assert done.stderr == ""


SLEEPING = "import time; time.sleep(600)"
# It leaves the session, and its parent ends: what is left is a daemon.
DAEMON = f"""
import os, subprocess, sys
if os.fork():
    os._exit(0)
os.setsid()
one = subprocess.Popen([sys.executable, "-c", {SLEEPING!r}])
print(os.getpid(), one.pid, flush=True)
one.wait()
"""


def fruitful() -> Callable[[str], Any]:
    """Starts processes: one of its own, one that holds all its pipes, and a daemon with another."""

    def answer(how: str) -> list[int]:
        own = subprocess.Popen([sys.executable, "-c", SLEEPING])
        holding = subprocess.Popen([sys.executable, "-c", SLEEPING], close_fds=False)
        daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE)
        assert daemon.stdout is not None
        daemons = list(map(int, daemon.stdout.readline().split()))
        daemon.wait()
        if how == "crash":
            os.kill(daemons[0], signal.SIGKILL)
            os.kill(daemons[1], signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGSEGV)
        return [own.pid, holding.pid, *daemons]

    return answer


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def assert_gone(pids: list[int]) -> None:
    """A signal takes a moment."""
    for _ in range(500):
        if not any(map(living, pids)):
            return
        time.sleep(0.01)
    raise AssertionError(f"still there: {[pid for pid in pids if living(pid)]}")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who lives")
@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_what_a_contestant_starts_ends_with_it(ended: str) -> None:
    with Worker(fruitful) as worker:
        pids = worker.ask("stay")
        assert len(pids) == 4
        assert all(map(living, pids))
        if ended == "killed":
            worker.kill()
    assert_gone(pids)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who lives")
def test_a_crash_is_noticed_though_a_child_holds_the_pipe(tmp_path: Path) -> None:
    with Worker(fruitful) as worker:
        with pytest.raises(Failed, match="the process was ended by SIGSEGV"):
            worker.ask("crash", patience=60)
        leader = worker._process.pid
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = stat.read_text().rpartition(")")[2].split()
            assert int(fields[3]) != leader or fields[0] in "ZX"


RACING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
from pareo.lab.experiment.worker import Worker
sys.path.insert(0, {folder!r})
from test_worker import fruitful

if __name__ == "__main__":
    with Worker(fruitful) as worker:
        print(*worker.ask("stay"), flush=True)
        sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who lives")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_race_that_is_ended(tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(RACING.format(folder=str(Path(__file__).parent)))
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as race:  # fmt: skip
        assert race.stdout is not None
        pids = list(map(int, race.stdout.readline().split()))
        assert len(pids) == 4
        race.send_signal(number)
    assert_gone(pids)


def answering(what: str) -> Callable[[], Any]:
    """Something that is no plain data, or that is."""
    things: dict[str, Any] = {
        "a function": lambda: 1,
        "an object": Fraction(1, 3),
        "plain": {"a": (np.ones(2), np.float32(2), Path("x")), "b": [None, "text", {1}]},
    }
    return lambda: things[what]


def test_an_exception_is_the_reason_in_one_line() -> None:
    with Worker(int, "no\nnumber") as worker, pytest.raises(Failed, match="ValueError: invalid"):
        worker.ask()


def test_an_answer_is_plain_data() -> None:
    with Worker(answering, "plain") as worker:
        answer = worker.ask()
        assert answer["a"][0].tolist() == [1.0, 1.0]
        assert answer["a"][1:] == (2, Path("x"))
        assert answer["b"] == [None, "text", {1}]
    alien = "NotPlain: its answer holds a Fraction"
    with Worker(answering, "an object") as worker, pytest.raises(Failed, match=alien):
        worker.ask()
    with Worker(answering, "a function") as worker, pytest.raises(Failed, match="holds a function"):
        worker.ask()


def announcing() -> Callable[[], Any]:
    """Announces an answer of a million bytes on every socket, and sends none of them."""

    def answer() -> None:
        for number in range(3, 32):
            try:
                if "socket" in os.readlink(f"/proc/self/fd/{number}"):
                    os.write(number, (10**6).to_bytes(4, "big"))
            except OSError:
                continue
        time.sleep(60)

    return answer


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which files are open")
def test_an_answer_that_does_not_end_is_not_waited_for() -> None:
    # On a busy machine the time may be over before it has announced anything.
    with Worker(announcing) as worker, pytest.raises(Failed, match=r"SIGKILL|no answer within"):
        worker.ask(patience=1.5)


def test_a_paused_process_answers_when_it_goes_on() -> None:
    with Worker(attrgetter, "real") as worker:
        assert worker.ask(1.5) == 1.5
        worker.pause()
        worker.put(2.5)
        with pytest.raises(Failed, match="no answer within"):
            worker.get(0.3)
        worker.resume()
        assert worker.get() == 2.5
    worker.pause()  # it has ended
    with Worker(attrgetter, "real") as other:
        other.pause()
    assert other._process is None  # a paused one is closed, too


def test_objects_of_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "two-words.py").write_text(
        "class Own:\n"
        "    def __call__(self, x):\n"
        "        return x + 1\n"
        "def make(own):\n"
        "    return own\n"
        "net = Own()\n"
    )
    make, net = (object_of(f"{tmp_path}/two-words.py:{name}", callable) for name in ("make", "net"))
    with Worker(make, net) as worker:
        assert worker.ask(2) == 3
