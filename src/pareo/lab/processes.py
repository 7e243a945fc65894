"""Contestants in processes of their own: a question goes in, an answer or a reason comes out."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pareo import interrupt
from pareo.errors import ending
from pareo.lab.memory import Watch

PATIENCE = 1800.0  # seconds: the slowest compiler has answered long before


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
        with interrupt.deaf():
            process.start()
        self._process: Any = process  # None when it is closed
        self._exitcode: int | None = None  # from then on
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
            if not self._pipe.poll(patience):
                raise Failed(f"no answer within {patience:g} s")
            fine, answer = self._pipe.recv()
        except (EOFError, OSError):
            exitcode = self._joined()
            if self._watch is not None and self._watch.passed:
                raise ShortOfMemory(f"more than {self._watch.most / 1e9:g} GB") from None
            raise Failed(ending(exitcode)) from None
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
            self._process.kill()

    def dismiss(self) -> None:
        """Let it end by itself, which takes a while where it holds a GPU; `close` waits for it."""
        self._pipe.close()

    def close(self) -> None:
        """End the process, kindly if it is idle."""
        self.unlimit()
        self._pipe.close()
        if self._process is None:
            return
        self._process.join(2)
        if self._process.exitcode is None:
            self._process.kill()
        self._exitcode = self._joined()
        with interrupt.deaf():  # what Python calls when a process is collected would lose a Ctrl-C
            self._process.close()
            self._process = None

    def _joined(self) -> int | None:
        """How it ended, which is waited for."""
        if self._process is None:
            return self._exitcode
        self._process.join()
        code: int | None = self._process.exitcode
        return code

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def interleaved(
    workers: dict[str, Worker], rounds: int, *question: Any
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


def _serve(pipe: Any, make: Callable[..., Any], args: tuple[Any, ...], threads: int | None) -> None:
    """The process: it ends with its first failure, or when the other end of the pipe closes."""
    interrupt.ignore()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "NPROC"):  # OpenMP; XLA's thread pool
            os.environ[name] = str(threads)
    with contextlib.suppress(EOFError, OSError):
        answer = None
        while True:
            question = pipe.recv()
            try:
                answer = answer or make(*args)
                result = answer(*question)
            except Exception as error:  # a contestant that fails is a row, not the end of the run
                text = " ".join(str(error).split())
                pipe.send((False, f"{type(error).__name__}: {text}"[:300]))
                return
            pipe.send((True, result))


def _end_with_parent() -> None:
    """Nobody waits for the answer of a question whose asker was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
