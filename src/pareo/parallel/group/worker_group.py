"""A crew: workers that train one network together, as threads or as processes.

They see the same arrays, and meet. Where one of them fails or dies, the others are told, all of
them end, and whoever called them gets one error.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from pareo import interrupt
from pareo.errors import PareoError, exit_reason
from pareo.parallel.group.shared_memory import Shared, Specs
from pareo.parallel.trials.trial import sentence
from pareo.spec import Spec

HOWS = ("threads", "processes")
PATIENCE = 0.5  # seconds between looks at whether the others still live
FAREWELL = 10.0  # seconds for the others to end by themselves after one has failed

Work = Callable[..., Any]  # (member, shared, *arguments) to a result
Report = Callable[[Any], Any]


def silent(said: Any) -> None:
    """Nobody wants to know."""


class WorkerError(PareoError, RuntimeError):
    """A worker failed or was lost; its sentence says which and why."""


class Abandoned(Exception):
    """Another worker has failed: there is nobody to wait for."""


class Member:
    """One worker's place in a crew: its rank, the others' doors, and the seconds spent waiting."""

    def __init__(self, rank: int, doors: Sequence[Sequence[Any]], given_up: Any) -> None:
        self.rank, self.workers = rank, len(doors)
        self.idle = 0.0
        self.report: Report = silent
        self._doors, self._given_up = doors, given_up

    def tell(self, other: int) -> None:
        """Let another worker go on from where it waits, or will wait, for this one."""
        self._doors[self.rank][other].release()

    def hear(self, other: int) -> None:
        """Wait until another worker has told this one; each telling counts once."""
        door = self._doors[other][self.rank]
        if not door.acquire(False):
            begin = time.perf_counter()
            while not door.acquire(True, PATIENCE):
                self._look()
            self.idle += time.perf_counter() - begin
        self._look()

    def meet(self) -> None:
        """Wait until everyone is here."""
        others = [rank for rank in range(self.workers) if rank != self.rank]
        for other in others:
            self.tell(other)
        for other in others:
            self.hear(other)

    def _look(self) -> None:
        parent = multiprocessing.parent_process()
        if self._given_up["given_up"][0] or (parent is not None and not parent.is_alive()):
            raise Abandoned

    def leave(self) -> None:
        """Tell everyone that there is no use in waiting any more."""
        self._given_up["given_up"][0] = 1
        for door in self._doors[self.rank]:
            door.release()


def together(
    work: Work,
    workers: int,
    how: str,
    specs: Specs,
    *arguments: Any,
    prepare: Callable[[Shared], None] = lambda shared: None,
    report: Report = silent,
) -> tuple[list[Any], Shared]:
    """Run work(member, shared, *arguments) in every worker at once; their results, and the arrays.

    Args:
        work: a function of a module, so that processes find it.
        how: 'threads' or 'processes'.
        specs: the arrays that all workers see; `prepare` fills them before anyone starts.
        report: called here with whatever a worker gives to `member.report`.

    Raises:
        WorkerError: one of them failed or died; all have ended.
    """
    if how not in HOWS:
        raise PareoError(f"workers are {' or '.join(HOWS)}; got {how!r}")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise PareoError(f"expected a whole number of workers from 1; got {workers!r}")
    shared = Shared(specs, how == "processes")
    prepare(shared)
    run = _in_processes if how == "processes" else _in_threads
    return run(work, workers, shared, arguments, report), shared


def _crew(workers: int, context: Any, processes: bool) -> list[Member]:
    doors = [[context.Semaphore(0) for _ in range(workers)] for _ in range(workers)]
    given_up = Shared({"given_up": Spec((1,), "int64")}, processes)
    return [Member(rank, doors, given_up) for rank in range(workers)]


def _failed(rank: int, workers: int, why: str) -> WorkerError:
    return WorkerError(f"worker {rank} of {workers} failed: {why}")


def run_threads(works: Sequence[Callable[[], Any]], stop: Callable[[], Any]) -> None:
    """Run functions at once, each in a thread, and wait for them; none of them may raise.

    Where this thread is interrupted, by Ctrl-C say, `stop` is called, which makes them end soon.
    """
    # Daemons: a process that ends waits for nobody who did not stop.
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stop()
        until = time.monotonic() + FAREWELL
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, until - time.monotonic()))
        raise


def _in_threads(
    work: Work, workers: int, shared: Shared, arguments: tuple[Any, ...], report: Report
) -> list[Any]:
    # Semaphores of processes serve threads, too, and faster than Python's own.
    members = _crew(workers, multiprocessing.get_context("fork"), processes=False)
    results: list[Any] = [None] * workers
    errors: dict[int, BaseException] = {}

    def run(member: Member) -> None:
        member.report = report
        try:
            results[member.rank] = work(member, shared, *arguments)
        except Abandoned:
            pass
        except BaseException as error:
            errors[member.rank] = error
            member.leave()

    run_threads([partial(run, member) for member in members], members[0].leave)
    for rank, error in sorted(errors.items()):
        raise _failed(rank, workers, sentence(error)) from error
    return results


def _in_processes(
    work: Work, workers: int, shared: Shared, arguments: tuple[Any, ...], report: Report
) -> list[Any]:
    context = multiprocessing.get_context("spawn")  # a fork would inherit locks of BLAS
    members = _crew(workers, context, processes=True)
    results: dict[int, Any] = {}
    errors: dict[int, str] = {}
    pipes: dict[Any, int] = {}
    processes = []
    try:
        for member in members:
            near, far = context.Pipe(duplex=False)
            given = (far, member, work, shared, arguments)
            process = context.Process(target=_serve, args=given, daemon=True)
            with interrupt.blocked():
                process.start()
                processes.append(process)
                pipes[near] = member.rank
                far.close()  # so that this end closes when the process is gone
        while pipes and not errors:
            for pipe in wait(list(pipes)):
                _listen(pipe, pipes, processes, results, errors, report)
    finally:
        if len(results) < workers:
            members[0].leave()
        _end(processes, pipes)
    for rank, why in sorted(errors.items()):
        raise _failed(rank, workers, why)
    return [results[rank] for rank in range(workers)]


def _listen(
    pipe: Any,
    pipes: dict[Any, int],
    processes: Sequence[Any],
    results: dict[int, Any],
    errors: dict[int, str],
    report: Report,
) -> None:
    """What one worker has to say: a report, its result, why it failed, or nothing any more."""
    rank = pipes[pipe]
    try:
        word, said = pipe.recv()
    except (EOFError, OSError):
        processes[rank].join()
        word, said = "error", exit_reason(processes[rank].exitcode)
    if word == "report":
        report(said)
        return
    del pipes[pipe]
    if word == "result":
        results[rank] = said
    else:
        errors[rank] = said


def _end(processes: Sequence[Any], pipes: dict[Any, int]) -> None:
    until = time.monotonic() + FAREWELL
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
    for pipe in pipes:
        pipe.close()


def _serve(pipe: Connection, member: Member, work: Work, shared: Shared, arguments: Any) -> None:
    """The process of one worker."""
    interrupt.ignore()
    member.report = lambda said: pipe.send(("report", said))
    with suppress(OSError, Abandoned):  # the caller is gone, or knows already
        try:
            pipe.send(("result", work(member, shared, *arguments)))
        except (Abandoned, BrokenPipeError):
            raise
        except BaseException as error:
            pipe.send(("error", sentence(error)))
