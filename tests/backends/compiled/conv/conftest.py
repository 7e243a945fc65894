"""Small convolutions are shared among threads, too, so that tests of small arrays see it."""

import pytest

from pareo.backends.compiled.runtime import thread_pool


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "LEAST_FLOPS", 1)
