"""A machine that is known from the last time: what changed by more than its interval is said."""

from dataclasses import replace
from pathlib import Path

import pytest

from pareo.cli.ceilings import since_last_time
from pareo.lab.machine.ceilings import Ceilings, Measured, store
from pareo.lab.machine.ceilings.changes import changes, earlier
from pareo.lab.machine.ceilings.model import DataSheet, Key

KEY = Key(processor="a processor", cores=2, threads=2, libraries={"numpy": "2.3"})


def made(peak: float, when: str = "2026-01-01T10:00:00", key: Key = KEY) -> Ceilings:
    samples = [peak * share for share in (1.0, 0.99, 0.995, 0.992, 0.998)]
    return Ceilings(
        device="cpu", key=key, when=when, levels=[], datasheet=DataSheet(source="unknown"),
        idle_cores=None,
        samples=[
            Measured("product", "float32", "numpy", 2, 1536, samples=samples),
            Measured("stream", "copy", "loops", 2, 1 << 24, samples=[50e9]),
            Measured("overhead", "a call", "numpy", 1, samples=[2e-6, 1e-6, 3e-6]),
        ],
    )  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_more_than_the_interval_is_said() -> None:
    assert changes(made(70e9), made(70.3e9)) == []
    head, line = changes(made(70e9), made(60e9))
    assert head == "Since 2026-01-01 10:00:"
    assert line.startswith("float32 product, 2 threads changed by -14 %: from 70 (")


def test_what_was_updated_meanwhile_is_named() -> None:
    new = replace(KEY, libraries={"numpy": "2.4"}, cards=[("a GPU", "590")])
    head, _ = changes(made(70e9), made(60e9, key=new))
    assert head == "Since 2026-01-01 10:00: numpy 2.3 to 2.4; driver none to 590."


def test_the_last_time_is_found_whatever_the_versions(folder: Path) -> None:
    now = made(72e9, "2026-04-01T10:00:00")
    assert earlier(now) is None
    store.save(made(70e9))
    store.save(made(65e9, "2026-02-01T10:00:00", replace(KEY, libraries={"numpy": "2.2"})))
    store.save(made(50e9, "2026-03-01T10:00:00", replace(KEY, processor="another")))
    (folder / "ceilings" / "damaged.json").write_text("{")
    found = earlier(now)
    assert found is not None
    assert found.when == "2026-02-01T10:00:00"


def test_what_is_replaced_is_remembered() -> None:
    store.save(made(70e9))
    now = made(60e9, "2026-04-01T10:00:00")
    store.save(now)
    assert store.load(KEY) == now
    assert "-14 %" in since_last_time(now)[1]
    assert since_last_time(made(70e9)) == []  # nothing is known before that
