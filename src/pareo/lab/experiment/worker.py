"""Contestants in processes of their own: a question goes in, an answer or a reason comes out."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from pareo import interrupt
from pareo.errors import exit_reason
from pareo.lab.experiment import plain_pickle, process_tree
from pareo.lab.machine.memory import Watch

PATIENCE = 1800.0  # seconds: the slowest compiler has answered long before
GRACE = 2.0  # seconds in which a process may end by itself
MOMENT = 0.05  # seconds between the ends of a killed process' pipes, at most


class Failed(Exception):
    """Why a contestant has no answer, in one line."""


class Told(Failed):
    """It said itself why it has no answer."""


class ShortOfMemory(Failed):
    """It has no answer because it had not enough memory."""


class Worker:
    """A process that calls `make(*args)` once, and what that returned for every question.

    With `threads`, libraries that read it from the environment are told how many to use.
    With `memory`, it is ended when it has more bytes than that, until `unlimit` is called.
    Processes that it starts end with it. An answer is plain data (`plain_pickle`): nothing that
    was made there is executed here.

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
        context = multiprocessing.get_context("spawn")  # nothing of this process is inherited
        self._pipe, far = context.Pipe()
        process = context.Process(target=_serve, args=(far, make, args, threads), daemon=True)
        with interrupt.blocked():
            process.start()
        self._process: Any = process  # None when it is closed
        self._exitcode: int | None = None  # from then on
        self._life, self._own_life = _life(process)
        self._started: set[process_tree.Found] = set()
        self._ended = False
        far.close()  # so that this end closes when the contestant is gone
        self._watch: Watch | None = None
        if memory is not None:
            self._watch = Watch(process.pid or 0, memory, self.kill)

    def ask(self, *question: Any, patience: float = PATIENCE) -> Any:
        """The answer; Failed with the reason where there is none."""
        self.put(*question)
        return self.get(patience)

    def put(self, *question: Any) -> None:
        """Ask, and let it work on the answer, which `get` gives."""
        with contextlib.suppress(OSError):  # then it is gone: `get` says how it ended
            self._pipe.send(question)

    def get(self, patience: float = PATIENCE) -> Any:
        """The answer to what was put; Failed with the reason where there is none."""
        try:
            # The pipe may be held open by what the process started, so its end is looked for too.
            if not wait([self._pipe, self._life], patience):
                raise Failed(f"no answer within {patience:g} s")
            if not self._pipe.poll():
                raise EOFError
            packed = self._pipe.recv_bytes()
        except (EOFError, OSError):
            if self._process is not None and not wait([self._life], GRACE):
                self.kill()  # it has closed its end of the pipe, and lives on
            exitcode = self._joined()
            if self._watch is not None and self._watch.passed:
                raise ShortOfMemory(f"more than {self._watch.most / 1e9:g} GB") from None
            raise Failed(exit_reason(exitcode)) from None
        try:
            fine, answer = plain_pickle.loads(packed)
        except Exception as error:  # whatever came from there, it is no reason to end here
            raise Failed(f"its answer is no plain data: {sentence(error)}") from None
        if not fine:
            raise (ShortOfMemory if _is_short(answer) else Told)(answer)
        return answer

    def unlimit(self) -> None:
        """From now on it may have what memory it wants."""
        if self._watch is not None:
            self._watch.stop()

    def kill(self) -> None:
        """End the process at once: who waits for its answer is told that it has ended."""
        if self._process is not None:
            self._look_after()
            self._process.kill()

    def dismiss(self) -> None:
        """Let it end by itself, which takes a while where it holds a GPU; `close` waits for it."""
        self._look_after()
        self._pipe.close()

    def close(self) -> None:
        """End the process, kindly if it is idle, and all that it started."""
        self.unlimit()
        if self._process is None:
            return
        self.dismiss()
        if not wait([self._life], GRACE):
            self._look_after()
            self._process.kill()
        self._exitcode = self._joined()
        with interrupt.blocked():  # Python would lose a Ctrl-C while it collects a process
            self._process.close()
            self._process = None
        if self._own_life:
            os.close(self._life)

    def _look_after(self) -> None:
        """Note what it has started: what has left its session is not found once it has ended."""
        if self._process is not None:
            self._started |= process_tree.of(self._process.pid, self._started)

    def _joined(self) -> int | None:
        """How it ended, which is waited for; what it started has ended then, too."""
        if self._process is None:
            return self._exitcode
        with contextlib.suppress(ChildProcessError):  # who has been waited for already
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        if not self._ended:  # before it is collected: then its number may be another's
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
    """Ask everyone in turn, round after round: answers by name, a Failed where one ended.

    Whoever failed is not asked again.
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


def _serve(pipe: Any, make: Callable[..., Any], args: tuple[Any, ...], threads: int | None) -> None:
    """The process: it ends with its first failure, or when the other end of the pipe closes."""
    interrupt.ignore()
    process_tree.lead()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "NPROC"):  # OpenMP; XLA's thread pool
            os.environ[name] = str(threads)
    with contextlib.suppress(EOFError, OSError):
        _answer(pipe, make, args)
    _end_with_parent(MOMENT)


def _answer(pipe: Any, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Answer questions, as long as that goes well."""
    answer = None
    while True:
        question = pipe.recv()
        try:
            answer = answer or make(*args)
            packed = ForkingPickler.dumps((True, answer(*question)))
        except Exception as error:  # a contestant that fails is a row, not the end of the run
            pipe.send((False, sentence(error)))
            return
        pipe.send_bytes(packed)


def _end_with_parent(patience: float | None = None) -> None:
    """Nobody waits for the answer of a question whose asker was killed, nor ends what it left."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join(patience)
        if not parent.is_alive():
            process_tree.end(os.getpid())
            os._exit(1)


def _life(process: Any) -> tuple[int, bool]:
    """What `wait` finds ready when a process has ended, and whether it is to be closed.

    The sentinel serves where the system has nothing better: processes that were forked below hold
    it open.
    """
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(process.pid), True
    return int(process.sentinel), False


# As NumPy and pareo, CuPy, PyTorch, XLA and TensorFlow, cuBLAS and cuDNN say it.
SHORT = (
    "MemoryError", "OutOfMemory", "can't allocate memory", "out of memory", "RESOURCE_EXHAUSTED",
    "ResourceExhausted", "bad_alloc", "ALLOC_FAILED",
)  # fmt: skip


def _is_short(text: str) -> bool:
    """Whether a failure's text speaks of memory.

    >>> _is_short("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
    True
    """
    return any(word.lower() in text.lower() for word in SHORT)
