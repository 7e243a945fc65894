"""Ctrl-C: a wish where one is welcome, at once elsewhere, and never lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from pareo.interrupt import ImmediateInterrupt, Interrupt, blocked


@pytest.fixture(autouse=True)
def hearing() -> Iterator[None]:
    """Whoever runs tests in the background has them ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def at_once(work: Callable[[], object]) -> None:
    with ImmediateInterrupt():
        work()


def test_at_once_no_wish_is_made_of_it() -> None:
    reached = []

    def work() -> None:
        with Interrupt():
            ctrl_c()
            reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        at_once(work)
    assert not reached


class Collected:
    """Python drops what is raised while an object is collected."""

    def __del__(self) -> None:
        ctrl_c()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_dropped_is_raised_at_the_end() -> None:
    reached = []

    def work() -> None:
        made: Collected | None = Collected()
        assert made
        made = None
        reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        at_once(work)
    assert reached


def test_one_that_a_library_takes_for_an_error_is_raised_at_the_end() -> None:
    def work() -> None:
        try:
            ctrl_c()
        except BaseException as error:
            raise RuntimeError from error

    with pytest.raises(KeyboardInterrupt):
        at_once(work)


def test_a_process_that_starts_meanwhile_is_not_left_without_orders() -> None:
    reached = []

    def elsewhere() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def work() -> None:
        with blocked():
            signal.raise_signal(signal.SIGINT)
            # Sent to the process, it could wait for some thread beyond the end of the test.
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
            reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        at_once(work)
    assert reached


def test_whoever_ignores_it_keeps_it_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ImmediateInterrupt(), Interrupt() as interrupt:
        ctrl_c()
    assert not interrupt.asked
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)
