"""Workers that train one network together, as threads or as processes.

They see the same arrays, signal each other and meet at barriers. When one of them fails or dies,
all of them end, and the caller gets one error. A process that hangs is ended (`hang_monitor`).
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from typing import Any

from pareo import interrupt
from pareo.errors import PareoError, exit_reason
from pareo.parallel.group.errors import Aborted, WorkerError, sentence
from pareo.parallel.group.hang_monitor import HangMonitor
from pareo.parallel.group.shared_memory import SharedArrays, Specs
from pareo.spec import Spec

HOWS = ("threads", "processes")
CHECK_SECONDS = 0.5  # while a worker waits, it checks this often that the group still runs
FOR_WORKERS, FOR_CALLER = 1, 2  # whom a worker waits for
SHUTDOWN_SECONDS = 10.0  # for the other workers to end by themselves after one has failed

Work = Callable[..., Any]  # (group, shared, *arguments) to a result
Report = Callable[[Any], Any]


def ignore_report(report: Any) -> None:
    """Do nothing with a report."""


class WorkerGroup:
    """A group of workers, as one of them sees it.

    rank:    this worker's number
    workers: the size of the group
    idle:    the seconds that this worker has waited for others
    report:  passes a message to the caller of `run_workers`
    """

    def __init__(
        self, rank: int, semaphores: Sequence[Sequence[Semaphore]], state: SharedArrays
    ) -> None:
        self.rank, self.workers = rank, len(semaphores)
        self.idle = 0.0
        self.report: Report = ignore_report
        self._semaphores, self._state = semaphores, state

    def signal(self, other: int) -> None:
        """Let another worker proceed from its next `wait_for` this one."""
        self._semaphores[self.rank][other].release()

    def wait_for(self, other: int) -> None:
        """Wait for a signal from another worker; each signal counts once."""
        semaphore = self._semaphores[other][self.rank]
        if not semaphore.acquire(False):
            begin, waiting = time.perf_counter(), self._state["waiting"]
            waiting[self.rank] = FOR_WORKERS
            while not semaphore.acquire(True, CHECK_SECONDS):
                self._check()
            waiting[self.rank] = 0
            self.idle += time.perf_counter() - begin
        self._check()

    def barrier(self) -> None:
        """Wait until all workers have reached this point."""
        others = [rank for rank in range(self.workers) if rank != self.rank]
        for other in others:
            self.signal(other)
        for other in others:
            self.wait_for(other)

    def _check(self) -> None:
        """Raise `Aborted` if a worker has failed or the parent process has died."""
        parent = multiprocessing.parent_process()
        if self._state["aborted"][0] or (parent is not None and not parent.is_alive()):
            raise Aborted

    def is_waiting(self) -> bool:
        """Whether this worker waits for one that does not wait; the caller's process asks."""
        waiting = self._state["waiting"]
        return bool(waiting[self.rank]) and not bool((waiting == FOR_WORKERS).all())

    @contextmanager
    def sending(self) -> Iterator[None]:
        """A scope in which this worker sends something to the caller, who may be busy."""
        self._state["waiting"][self.rank] = FOR_CALLER
        yield
        self._state["waiting"][self.rank] = 0

    def done(self) -> None:
        """Note that this worker will signal nobody any more."""
        self._state["waiting"][self.rank] = FOR_WORKERS

    def abort(self) -> None:
        """Make all workers end: none of them waits any longer."""
        self._state["aborted"][0] = 1
        for semaphore in self._semaphores[self.rank]:
            semaphore.release()


def run_workers(
    work: Work,
    workers: int,
    how: str,
    specs: Specs,
    *arguments: Any,
    prepare: Callable[[SharedArrays], None] = lambda shared: None,
    report: Report = ignore_report,
) -> tuple[list[Any], SharedArrays]:
    """Run work(group, shared, *arguments) in all workers at the same time.

    Args:
        work: a function of a module, so that processes can import it.
        how: 'threads' or 'processes'.
        specs: the arrays that all workers see; `prepare` fills them before the workers start.
        report: called in this process with whatever a worker passes to `group.report`.

    Returns:
        The results in the order of ranks, and the shared arrays.

    Raises:
        WorkerError: a worker failed or died; all have ended.
    """
    if how not in HOWS:
        raise PareoError(f"workers are {' or '.join(HOWS)}; got {how!r}")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise PareoError(f"expected a whole number of workers from 1; got {workers!r}")
    shared = SharedArrays(specs, how == "processes")
    prepare(shared)
    run = _run_in_processes if how == "processes" else _run_in_threads
    return run(work, workers, shared, arguments, report), shared


def _new_group(workers: int, context: BaseContext, processes: bool) -> list[WorkerGroup]:
    """A group, as each of its workers sees it."""
    semaphores = [[context.Semaphore(0) for _ in range(workers)] for _ in range(workers)]
    specs = {"aborted": Spec((1,), "int64"), "waiting": Spec((workers,), "int64")}
    state = SharedArrays(specs, processes)
    return [WorkerGroup(rank, semaphores, state) for rank in range(workers)]


def _failed(rank: int, workers: int, reason: str) -> WorkerError:
    return WorkerError(f"worker {rank} of {workers} failed: {reason}")


def run_threads(works: Sequence[Callable[[], Any]], stop: Callable[[], Any]) -> None:
    """Run functions at the same time, each in a thread, and wait for them; none of them may raise.

    If this thread is interrupted, for example by Ctrl-C, `stop` is called, which makes them end.
    """
    # Daemons, so that the process can exit even if a thread does not stop.
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stop()
        until = time.monotonic() + SHUTDOWN_SECONDS
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, until - time.monotonic()))
        raise


def _run_in_threads(
    work: Work, workers: int, shared: SharedArrays, arguments: tuple[Any, ...], report: Report
) -> list[Any]:
    # Semaphores for processes work between threads, too, and are faster than Python's own.
    groups = _new_group(workers, multiprocessing.get_context("fork"), processes=False)
    results: list[Any] = [None] * workers
    errors: dict[int, BaseException] = {}

    def run(group: WorkerGroup) -> None:
        group.report = report
        try:
            results[group.rank] = work(group, shared, *arguments)
        except Aborted:
            pass
        except BaseException as error:
            errors[group.rank] = error
            group.abort()

    run_threads([partial(run, group) for group in groups], groups[0].abort)
    for rank, error in sorted(errors.items()):
        raise _failed(rank, workers, sentence(error)) from error
    return results


def _run_in_processes(
    work: Work, workers: int, shared: SharedArrays, arguments: tuple[Any, ...], report: Report
) -> list[Any]:
    context = multiprocessing.get_context("spawn")  # a fork would inherit locks of BLAS
    groups = _new_group(workers, context, processes=True)
    results: dict[int, Any] = {}
    errors: dict[int, str] = {}
    pipes: dict[Any, int] = {}
    processes: list[BaseProcess] = []
    monitor = HangMonitor()
    try:
        for group in groups:
            near, far = context.Pipe(duplex=False)
            process = context.Process(
                target=_serve, args=(far, group, work, shared, arguments), daemon=True
            )
            with interrupt.blocked():
                process.start()
                processes.append(process)
                pipes[near] = group.rank
                far.close()  # so that this end closes when the process ends
            monitor.watch(process, group.is_waiting)
        while pipes and not errors:
            for pipe in wait(list(pipes)):
                _receive(pipe, pipes, processes, results, errors, report, monitor)
    finally:
        monitor.stop()
        if len(results) < workers:
            groups[0].abort()
        _end(processes, pipes)
    for rank, reason in sorted(errors.items()):
        raise _failed(rank, workers, reason)
    return [results[rank] for rank in range(workers)]


def _receive(
    pipe: Any,
    pipes: dict[Any, int],
    processes: Sequence[BaseProcess],
    results: dict[int, Any],
    errors: dict[int, str],
    report: Report,
    monitor: HangMonitor,
) -> None:
    """Handle one message of a worker: a report, its result, its error, or the end of its pipe."""
    rank = pipes[pipe]
    try:
        kind, content = pipe.recv()
    except (EOFError, OSError):
        process = processes[rank]
        process.join()
        kind, content = "error", monitor.reason(process) or exit_reason(process.exitcode)
    if kind == "report":
        report(content)
        return
    del pipes[pipe]
    monitor.forget(processes[rank])
    if kind == "result":
        results[rank] = content
    else:
        errors[rank] = content


def _end(processes: Sequence[BaseProcess], pipes: dict[Any, int]) -> None:
    until = time.monotonic() + SHUTDOWN_SECONDS
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
    for pipe in pipes:
        pipe.close()


def _serve(
    pipe: Connection, group: WorkerGroup, work: Work, shared: SharedArrays, arguments: Any
) -> None:
    """The main function of a worker's process."""
    interrupt.ignore()
    interrupt.end_with_parent()

    def send(kind: str, content: Any) -> None:
        with group.sending():
            pipe.send((kind, content))

    group.report = partial(send, "report")
    with suppress(OSError, Aborted):  # the caller has gone, or knows already
        try:
            send("result", work(group, shared, *arguments))
            group.done()
        except (Aborted, BrokenPipeError):
            raise
        except BaseException as error:
            send("error", sentence(error))
