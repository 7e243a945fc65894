"""Memory of processes: read, and limited, in real ones."""

from collections.abc import Callable

import numpy as np
import pytest

from pareo.errors import PareoError
from pareo.lab.experiment.worker import Failed, Raised, ShortOfMemory, Worker
from pareo.lab.machine import memory

MEGA = 10**6


def taking() -> Callable[..., int]:
    """Touches so many bytes, keeps them, and answers with the peak of its process."""
    kept = []

    def answer(touched: int, reserved: int = 0) -> int:
        kept.append(np.ones(touched, np.uint8))
        kept.append(np.empty(reserved, np.uint8))
        return memory.peak()

    return answer


def failing() -> Callable[..., None]:
    def answer(text: str) -> None:
        raise RuntimeError(text)

    return answer


@pytest.fixture(scope="module")
def base() -> int:
    with Worker(taking) as worker:
        return int(worker.ask(0))


def test_a_process_over_its_limit_is_ended_and_says_why(base: int) -> None:
    limit = base + 100 * MEGA
    with Worker(taking, memory=limit) as worker:
        assert worker.ask(20 * MEGA) < limit
        with pytest.raises(ShortOfMemory, match="more than 0"):
            worker.ask(2000 * MEGA)


def test_what_is_only_reserved_is_not_counted(base: int) -> None:
    with Worker(taking, memory=base + 100 * MEGA) as worker:
        assert worker.ask(MEGA, 2000 * MEGA) < base + 100 * MEGA


def test_a_limit_that_was_lifted_ends_nothing(base: int) -> None:
    with Worker(taking, memory=base + 50 * MEGA) as worker:
        worker.unlimit()
        assert worker.ask(200 * MEGA) > base + 150 * MEGA


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", ShortOfMemory),
        (
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
            ShortOfMemory,
        ),
        ("shapes do not fit", Raised),
    ],
)
def test_frameworks_words_for_too_little_memory_are_known(text: str, kind: type) -> None:
    with Worker(failing) as worker, pytest.raises(Failed) as failure:
        worker.ask(text)
    assert type(failure.value) is kind


def test_a_peak_can_be_forgotten() -> None:
    np.ones(300 * MEGA, np.uint8)
    high = memory.peak()
    if not memory.forget_peak():
        pytest.skip("this system does not let a process forget its peak")
    assert memory.peak() < high - 200 * MEGA


@pytest.mark.parametrize("text", ["2", "GB", "-1GB", "0MB", "two GB", "", "nanGB"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(PareoError, match="expected a size such as 2GB"):
        memory.parsed(text)
