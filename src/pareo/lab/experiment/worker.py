"""Worker processes: a question goes in; an answer, or the reason why there is none, comes out."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from pareo import interrupt
from pareo.errors import exit_reason, printable_line
from pareo.lab.experiment import plain_data, process_tree
from pareo.lab.machine.memory import Watch

PATIENCE = 1800.0  # seconds: longer than the slowest compiler takes
GRACE = 2.0  # seconds in which a process may end by itself
LARGEST = 8 << 30  # bytes of an answer: the parameters of two steps, at most
MOMENT = 0.05  # seconds, at most, between the ends of the pipes of a killed process


class Failed(Exception):
    """Why a worker has no answer, in one printable line, whatever it said."""

    def __str__(self) -> str:
        return printable_line(super().__str__())


class Raised(Failed):
    """An exception was raised in the worker; this is its message."""


class ShortOfMemory(Failed):
    """The worker did not have enough memory."""


class Worker:
    """A process that calls `make(*args)` once, and then the result of that for every question.

    Args:
        threads: how many threads libraries that read it from the environment may use.
        memory: bytes; the process is ended when it has more, until `unlimit` is called.

    Processes that it starts end with it. An answer is plain data (`plain_data`): nothing that the
    process sends is executed here.

    >>> from operator import attrgetter
    >>> with Worker(attrgetter, "real") as worker:
    ...     worker.ask(2.5)
    2.5
    """

    def __init__(
        self,
        make: Callable[..., Callable[..., Any]],
        *args: Any,
        threads: int | None = None,
        memory: int | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")  # which inherits nothing of this process
        self._pipe, far = context.Pipe()
        made = bytes(ForkingPickler.dumps((make, args)))
        files = dict(getattr(sys.modules.get("pareo.training.own"), "executed", {}))
        process = context.Process(target=_serve, args=(far, files, made, threads), daemon=True)
        with interrupt.blocked():
            process.start()
        self._process: Any = process  # None when it is closed
        self._exitcode: int | None = None  # from then on
        self._life, self._own_life = _life(process)
        self._started: set[process_tree.Found] = set()
        self._ended = False
        self._asked = False  # whether an answer is to come
        far.close()  # so that this end closes when the process is gone
        self._watch: Watch | None = None
        if memory is not None:
            self._watch = Watch(process.pid or 0, memory, self.kill)

    def ask(self, *question: Any, patience: float = PATIENCE) -> Any:
        """The answer; Failed with the reason where there is none."""
        self.put(*question)
        return self.get(patience)

    def put(self, *question: Any) -> None:
        """Ask, and let it work on the answer, which `get` returns."""
        self._asked = True
        with contextlib.suppress(OSError):  # the process has ended: `get` says how
            self._pipe.send(question)

    def get(self, patience: float = PATIENCE) -> Any:
        """The answer to what was put; Failed with the reason where there is none."""
        try:
            # Processes that it started may hold the pipe open, so the end of it is waited for too.
            if not wait([self._pipe, self._life], patience):
                raise Failed(f"no answer within {patience:g} s")
            if not self._pipe.poll():
                raise EOFError
            packed = self._received(patience)
            self._asked = False
        except (EOFError, OSError):
            if self._process is not None and not wait([self._life], GRACE):
                self.kill()  # it has closed its end of the pipe, and is still running
            exitcode = self._joined()
            if self._watch is not None and self._watch.passed:
                raise ShortOfMemory(f"more than {self._watch.most / 1e9:g} GB") from None
            raise Failed(exit_reason(exitcode)) from None
        try:
            fine, answer = plain_data.loads(packed)
        except (ValueError, TypeError) as error:  # whatever the process sent, this one goes on
            raise Failed(f"its answer is no plain data: {sentence(error)}") from None
        if fine is not True:
            reason = sentence(Failed(str(answer)))
            raise (ShortOfMemory if _is_short(reason) else Raised)(reason)
        return answer

    def drain(self, patience: float) -> None:
        """Drop the answer to what was put, if nobody has read it."""
        if self._asked:
            self.get(patience)

    def _received(self, patience: float) -> bytes:
        """The bytes of an answer, which began to arrive; EOFError if they do not end in time."""
        watch = threading.Timer(patience, self._end_all)  # it may have announced more than it sends
        watch.daemon = True
        watch.start()
        try:
            return bytes(self._pipe.recv_bytes(LARGEST))
        except OSError:
            self._end_all()  # it announced more than may be, and nothing else can be read
            raise
        finally:
            watch.cancel()

    def _end_all(self) -> None:
        """End the process and what it started, which may hold the pipe open."""
        if self._process is not None:
            self.kill()
            process_tree.end(self._process.pid, self._started)

    def unlimit(self) -> None:
        """Lift the limit on its memory."""
        if self._watch is not None:
            self._watch.stop()

    def pause(self) -> None:
        """Stop the process until `resume`: it uses no core while another one is timed."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, ValueError):  # it ended, and was closed
                os.kill(process.pid, number)

    def kill(self) -> None:
        """End the process at once: `get` then reports that it has ended."""
        if self._process is not None:
            self._look_after()
            self._process.kill()

    def dismiss(self) -> None:
        """Let it end by itself, which takes a while where it uses a GPU; `close` waits for it."""
        self._look_after()
        self._pipe.close()

    def close(self) -> None:
        """End the process and all that it started; an idle one ends by itself."""
        self.unlimit()
        if self._process is None:
            return
        self.dismiss()
        if not wait([self._life], GRACE):
            self._look_after()
            self._process.kill()
        self._exitcode = self._joined()
        with interrupt.blocked():  # a Ctrl-C would be lost in what Python calls here
            self._process.close()
            self._process = None
        if self._own_life:
            os.close(self._life)

    def _look_after(self) -> None:
        """Note what it has started: a process that left its session is not found later."""
        if self._process is not None:
            self._started |= process_tree.of(self._process.pid, self._started)

    def _joined(self) -> int | None:
        """Wait for its end, and for that of all it started; the exit code."""
        if self._process is None:
            return self._exitcode
        with contextlib.suppress(ChildProcessError):  # it has been waited for already
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        if not self._ended:  # before it is joined: later its number may be another process's
            self._ended = True
            process_tree.end(self._process.pid, self._started)
        self._process.join()
        code: int | None = self._process.exitcode
        return code

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def interleaved(
    workers: Mapping[str, Worker], rounds: int, *question: Any
) -> Iterator[dict[str, Any]]:
    """Ask all workers in turn, round after round: answers by name, a Failed where one ended.

    A worker that failed is not asked again.
    """
    racing = dict(workers)
    for _ in range(rounds):
        answers: dict[str, Any] = {}
        for name, worker in list(racing.items()):
            try:
                answers[name] = worker.ask(*question)
            except Failed as failure:
                answers[name] = failure
                del racing[name]
        yield answers


def sentence(error: BaseException) -> str:
    """An exception in one line that can be printed anywhere.

    >>> sentence(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    name = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
    text = " ".join(f"{name}{error}".split())[:300]
    return text.encode("utf-8", "replace").decode()


def _serve(pipe: Any, files: dict[str, Path], made: bytes, threads: int | None) -> None:
    """The main function of the process, which ends at its first failure or when the pipe closes.

    files: what to execute before `made`, a function with its arguments, is read.
    """
    interrupt.ignore()
    process_tree.lead()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "NPROC"):  # OpenMP; XLA's thread pool
            os.environ[name] = str(threads)
    with contextlib.suppress(EOFError, OSError):
        _answer(pipe, files, made)
    _end_with_parent(MOMENT)


def _answer(pipe: Any, files: dict[str, Path], made: bytes) -> None:
    """Answer questions until one fails."""
    answer = None
    while True:
        question = pipe.recv()
        try:
            answer = answer or _made(files, made)
            packed = plain_data.dumps((True, answer(*question)))
        except Exception as error:  # whatever it is, it is reported
            pipe.send_bytes(plain_data.dumps((False, sentence(error))))
            return
        pipe.send_bytes(packed)


def _made(files: dict[str, Path], made: bytes) -> Callable[..., Any]:
    """What answers questions."""
    for label, path in files.items():
        import_module("pareo.training.own").execute(label, path)
    make, args = pickle.loads(made)
    answer: Callable[..., Any] = make(*args)
    return answer


def _end_with_parent(patience: float | None = None) -> None:
    """End when the parent has been killed: nothing waits for answers any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join(patience)
        if not parent.is_alive():
            process_tree.end(os.getpid())
            os._exit(1)


def _life(process: Any) -> tuple[int, bool]:
    """A handle that `wait` finds ready when a process has ended, and whether to close it.

    The sentinel is used where the system has no pidfd: forked children of the process hold it open.
    """
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(process.pid), True
    return int(process.sentinel), False


# The words of NumPy and pareo, CuPy, PyTorch, XLA and TensorFlow, cuBLAS and cuDNN.
SHORT = (
    "MemoryError", "OutOfMemory", "can't allocate memory", "out of memory", "RESOURCE_EXHAUSTED",
    "ResourceExhausted", "bad_alloc", "ALLOC_FAILED",
)  # fmt: skip


def _is_short(text: str) -> bool:
    """Whether a failure's message is about memory.

    >>> _is_short("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
    True
    """
    return any(word.lower() in text.lower() for word in SHORT)
