"""The Device scope: it nests, ends, and is seen by nobody else."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from pareo import Device, op
from pareo.backends.base import Backend
from pareo.device import carried, cores, current, names, why_unavailable
from pareo.errors import DeviceError

pytestmark = pytest.mark.smoke

CPU = ("sequential", "vectorized", "compiled")


@pytest.fixture(autouse=True)
def _mode() -> Iterator[None]:
    """Whatever a test chooses is taken back."""
    before = op.get_mode()
    yield
    op.set_mode(before)
    assert current().name == before


def test_scopes_nest() -> None:
    with Device("sequential") as outer:
        assert current() is outer
        with Device("compiled", threads=1) as inner:
            assert current() is inner
        assert current() is outer
    assert op.get_mode() == "vectorized"


def test_one_device_can_be_entered_again() -> None:
    device = Device("sequential")
    with device, Device("compiled"), device:
        assert op.get_mode() == "sequential"
    assert op.get_mode() == "vectorized"


def test_operators_run_where_the_scope_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run(self: Backend, *_: object) -> None:
        ran.append(self.name)

    monkeypatch.setattr(Backend, "run", run)
    for name in CPU:
        with Device(name):
            op.exp(np.ones(2))
    op.exp(np.ones(2))
    assert ran == [*CPU, "vectorized"]


def test_an_exception_leaves_the_scope() -> None:
    with pytest.raises(ZeroDivisionError), Device("sequential"), Device("compiled"):
        _ = 1 / 0
    assert op.get_mode() == "vectorized"


def test_threads_never_see_each_other() -> None:
    """Eight threads, in scopes of eight different depths and names, all at the same moment."""
    workers, rounds = 8, 200
    together = threading.Barrier(workers, timeout=60)

    def work(number: int) -> None:
        mine = Device(CPU[number % 3], threads=number + 1)
        for turn in range(rounds):
            assert current().name == "vectorized"
            with ExitStack() as scopes:
                for depth in range(1 + (number + turn) % 3):
                    scopes.enter_context(Device(CPU[(number + depth) % 3]))
                with mine:
                    together.wait()
                    assert current() is mine
                    together.wait()
                    assert current() is mine
                assert current() is not mine

    with ThreadPoolExecutor(workers) as pool:
        for result in [pool.submit(work, number) for number in range(workers)]:
            result.result()


def test_a_new_thread_starts_outside_all_scopes() -> None:
    with Device("sequential"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(op.get_mode).result() == "vectorized"


def test_set_mode_holds_in_all_threads() -> None:
    op.set_mode("sequential")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(op.get_mode).result() == "sequential"


def test_tasks_never_see_each_other() -> None:
    async def work(name: str) -> None:
        for _ in range(50):
            with Device(name):
                await asyncio.sleep(0)
                assert op.get_mode() == name
            await asyncio.sleep(0)
            assert op.get_mode() == "vectorized"

    async def all_at_once() -> None:
        await asyncio.gather(*(work(name) for name in CPU * 3))

    asyncio.run(all_at_once())


def test_a_task_inherits_the_scope_it_was_made_in() -> None:
    async def mode() -> str:
        return op.get_mode()

    async def made() -> str:
        with Device("sequential"):
            task = asyncio.create_task(mode())
        return await task

    assert asyncio.run(made()) == "sequential"


def test_carried_takes_the_scope_along() -> None:
    """Also when it runs later, in several threads at once, and enters scopes of its own."""
    together = threading.Barrier(4, timeout=60)

    def work() -> list[str]:
        seen = [op.get_mode()]
        with Device("compiled"):
            together.wait()
            seen.append(op.get_mode())
        return [*seen, op.get_mode()]

    with Device("sequential"):
        carry = carried(work)
    with Device("vectorized"), ThreadPoolExecutor(4) as pool:
        for result in [pool.submit(carry) for _ in range(4)]:
            assert result.result() == ["sequential", "compiled", "sequential"]
        assert op.get_mode() == "vectorized"


def test_carried_hands_arguments_and_exceptions_through() -> None:
    assert carried(divmod)(7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        carried(divmod)(7, 0)


def test_threads_are_bounded() -> None:
    assert Device("compiled").threads == cores() >= 1
    assert Device("sequential").threads == 1
    assert Device("vectorized", threads=3).threads == 3


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_wrong_threads(threads: object) -> None:
    with pytest.raises(DeviceError, match=r"^Device expects 1 to 1,024 threads; got"):
        Device("compiled", threads=threads)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("abacus", "Device expects one of sequential, vectorized, compiled, cuda; got 'abacus'"),
        ("", "Device expects one of sequential, vectorized, compiled, cuda; got ''"),
        ("Compiled", "Device expects one of sequential, vectorized, compiled, cuda; got 'Compil"),
        ("compiled:1", "Device expects an index only as in 'cuda:1'; got 'compiled:1'"),
        ("cuda:", "Device expects an index only as in 'cuda:1'; got 'cuda:'"),
        ("cuda:-1", "Device expects an index only as in 'cuda:1'; got 'cuda:-1'"),
        ("cuda:x", "Device expects an index only as in 'cuda:1'; got 'cuda:x'"),
        ("cuda:²", "Device expects an index only as in 'cuda:1'; got 'cuda:²'"),
        (None, "Device expects a name such as 'compiled'; got None"),
        (1, "Device expects a name such as 'compiled'; got 1"),
    ],
)
def test_wrong_names(name: object, sentence: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Device(name)  # type: ignore[arg-type]
    assert str(caught.value).startswith(sentence)


def test_names_and_aliases() -> None:
    assert names() == [*CPU, "cuda"]
    assert Device("gpu") == Device("cuda") == Device("cuda:0")
    assert Device("gpu:1") == Device("cuda:1") != Device("cuda")
    assert [str(Device(name)) for name in ("gpu", "cuda:1", "compiled")] == [
        "cuda",
        "cuda:1",
        "compiled",
    ]


def test_availability() -> None:
    assert all(why_unavailable(name) is None for name in CPU)


def test_a_device_that_is_not_here_cannot_be_entered() -> None:
    reason = why_unavailable("cuda")
    if reason is None:
        pytest.skip("this machine has a GPU")
    assert "'cuda'" in reason
    with pytest.raises(DeviceError, match="cuda"), Device("cuda"):
        pass
    with pytest.raises(DeviceError, match="cuda"):
        op.set_mode("gpu")
    assert why_unavailable("gpu") == reason
    assert op.get_mode() == "vectorized"
