"""A machine's ceilings: what follows from samples, where they are kept, and that they are real."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from devices import needs_gpu

from pareo import machine
from pareo.device import Device
from pareo.errors import DataError
from pareo.lab.experiment import results
from pareo.lab.machine.ceilings import (
    Ceilings,
    Limit,
    Measured,
    Probe,
    ceilings_of,
    cpu,
    gpu,
    limits,
    store,
)
from pareo.lab.machine.ceilings.caches import levels
from pareo.lab.machine.ceilings.model import DataSheet, Key, Level

MB = 1 << 20


def made(key=None):
    """Ceilings of a machine that does not exist."""
    return Ceilings(
        device="cpu",
        key=key or Key(),
        when="2026-01-01",
        levels=[],
        samples=[
            Measured("product", "float32", "numpy", 1, 1536, samples=[30e9, 31e9]),
            Measured("product", "float32", "numpy", 2, 1536, samples=[60e9, 58e9, 59e9]),
            Measured("product", "float32", "torch", 2, 4096, samples=[61e9, 55e9, 60e9]),
            Measured("stream", "copy", "loops", 2, 1 * MB, samples=[90e9]),
            Measured("stream", "copy", "loops", 2, 4 * MB, samples=[40e9]),
            Measured("stream", "copy", "loops", 2, 16 * MB, samples=[50e9]),
            Measured("stream", "triad", "loops", 2, 16 * MB, samples=[45e9]),
            Measured("overhead", "np.add of one number", "numpy", 1, samples=[2e-6, 1e-6, 3e-6]),
        ],
        datasheet=DataSheet(source="unknown"),
        idle_cores=None,
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """Measure in two seconds: real probes, of small sizes."""
    chosen = [
        Probe("product", "float32", "numpy", 2, 256),
        Probe("stream", "copy", "loops", 2, MB),
        Probe("overhead", "np.add of one number", "numpy", 1),
    ]
    monkeypatch.setattr(cpu, "probes", lambda threads: chosen)
    monkeypatch.setattr(cpu, "ROUNDS", 2)
    return chosen


@pytest.mark.smoke
def test_a_peak_is_the_best_of_all_libraries_and_sizes():
    peak = made().peak("float32")
    assert (peak.value, peak.how) == (61e9, "torch, 4096 x 4096")
    assert 55e9 <= peak.low < 60e9
    assert peak.high - peak.value == peak.value - peak.low, "a better round may come"
    assert made().peak("float32", threads=1).value == 31e9


def test_less_to_move_never_has_a_lower_limit():
    found = made()
    assert found.bandwidth(2 * MB).value == 90e9, "2 MB may lie where 1 MB did"
    assert found.bandwidth(5 * MB).value == 50e9, "what 16 MB reached, 5 MB can reach, too"
    assert found.bandwidth(1000 * MB).value == found.memory().value == 50e9
    assert found.memory(mix=2.0).value == 45e9


def test_an_overhead_is_a_median_with_its_interval():
    ((name, overhead),) = made().overheads()
    assert name == "np.add of one number"
    assert overhead.low <= overhead.value == 2e-6 <= overhead.high


def test_what_was_not_measured_is_said():
    with pytest.raises(LookupError, match="cpu: no measurement of a product of tf32"):
        made().peak("tf32")


def test_agreement_is_of_intervals():
    a = Limit(10.0, 9.0, 10.0, "")
    assert a.agrees(Limit(9.5, 8.0, 9.5, ""))
    assert a.agrees(Limit(12.0, 9.9, 12.0, ""))
    assert not a.agrees(Limit(8.9, 8.0, 8.9, ""))
    assert not a.agrees(Limit(12.0, 10.1, 12.0, ""))


def test_kept_ceilings_come_back_whole_and_only_for_their_machine():
    key = store.key_of(Device("compiled", threads=2))
    found = made(key=key)
    store.save(found)
    assert store.load(key) == found
    assert store.load(replace(key, threads=3)) is None
    assert limits(Device("compiled", threads=2)).peak.value == 61e9


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda kept: kept.update(schema=0), "in schema; got 0"),
        (
            lambda kept: kept["samples"][0].update(samples=[]),
            r">= 1 in samples\[0\].samples",
        ),
        (lambda kept: kept["samples"][0].update(samples=[-1.0]), r"> 0.0 in samples\[0\].samples"),
        (lambda kept: kept["samples"][0].update(kind="rumour"), r"in samples\[0\].kind; got"),
        (lambda kept: kept["samples"][0].pop("threads"), r"expected threads in samples\[0\]"),
        (lambda kept: kept.pop("levels"), "expected levels"),
    ],
)
def test_a_damaged_file_is_measured_again(damage, said):
    key = store.key_of(Device("compiled"))
    path = store.save(made(key=key))
    kept = json.loads(path.read_text())
    damage(kept)
    path.write_text(json.dumps(kept))
    assert store.load(key) is None
    with pytest.raises(DataError, match=f"kept: .*{said}"):
        results.convert(kept, Ceilings, "kept")
    path.write_text("{")
    assert store.load(key) is None


def test_ceilings_that_cannot_be_kept_are_not_lost(small, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    device = Device("compiled", threads=2)
    small[:] = small[:1]
    assert ceilings_of(device).samples
    assert store.load(store.key_of(device)) is None


@pytest.mark.slow
def test_measured_once_then_kept_while_nothing_better_can_be(small, monkeypatch):
    idle = [2.0]
    monkeypatch.setattr(machine, "idle_cores", lambda: idle[0])
    device, seen = Device("compiled", threads=2), []
    first = ceilings_of(device, watch=lambda done, of, what: seen.append((done, of)))
    assert [len(measured.samples) for measured in first.samples] == [2, 2, 2]
    assert seen == [(n, 6) for n in range(6)]
    assert ceilings_of(device) == first
    assert not first.busy
    disturbed, idle[0] = replace(first, idle_cores=0.5), 0.5
    store.save(disturbed)
    assert ceilings_of(device) == disturbed, "it is as busy as it was"
    idle[0] = 2.0
    small.append(Probe("product", "no such dtype", "pareo", 2, 16))
    second = ceilings_of(device)
    assert second.samples != first.samples, "now it can be measured better"
    assert [str(measured) for measured in second.samples] == [str(probe) for probe in small[:-1]], (
        "a library that fails sets no limit"
    )


def test_limits_without_ceilings_are_measured_briefly(folder):
    found = limits(Device("compiled", threads=1))
    assert min(found.peak.value, found.bandwidth.value) > 1e8
    assert not [*folder.glob("ceilings/*")], "a brief measurement is not kept"


def test_every_size_class_is_streamed():
    sizes = cpu.sizes(threads=2)
    assert sizes[0] == 32 << 10
    assert sizes[-1] >= 256 * MB
    assert all(b == 2 * a for a, b in pairwise(sizes))


@pytest.mark.gpu
@needs_gpu
def test_every_probe_of_a_gpu_answers():
    prober = gpu.Prober()
    for probe in gpu.probes(threads=1):
        if probe.size <= max(gpu.SMALLEST_CALL, min(gpu.SIDES)):
            assert prober(probe) > 0, probe
    assert gpu.levels()[0].nbytes > MB


def test_caches_as_linux_reports_them(tmp_path):
    told = [
        ("index0", "Data", "1", "64K", "0"),
        ("index1", "Instruction", "1", "64K", "0"),
        ("index2", "Unified", "2", "1024K", "0"),
        ("index3", "Unified", "3", "32768K", "0-1,4"),
        ("index4", "Unified", "4", "much", "0-1"),
    ]
    for name, *texts in told:
        (tmp_path / name).mkdir()
        for file, text in zip(("type", "level", "size", "shared_cpu_list"), texts, strict=True):
            (tmp_path / name / file).write_text(text + "\n")
    assert levels(tmp_path) == [Level("L1", 65536, 1), Level("L2", MB, 1), Level("L3", 32 * MB, 3)]
    assert levels(tmp_path / "nowhere") == []
