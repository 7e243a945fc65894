"""Clocks, throttling and energy: read where they can be, and samples under throttling left out."""

import time
from pathlib import Path
from typing import Any

import pytest
from devices import needs_gpu

from pareo.lab.experiment.conditions import Conditions, Seen, summarise
from pareo.lab.experiment.entry import Mark
from pareo.lab.machine import clocks, nvml
from pareo.lab.machine.clocks import Reading
from pareo.lab.machine.energy import Energy, Rapl
from pareo.lab.race.result import Row

# Lines of /proc/stat, the second a while after the first: 200 of 2,000 ticks were stolen.
BEFORE = "cpu  1000 0 100 5000 10 0 5 300 0 0"
AFTER = "cpu  1800 0 200 5900 10 0 5 500 0 0"


def machine(folder: Path, stat: str, kilohertz: str = "2500000") -> str:
    """A file system with what a kernel shows."""
    (folder / "proc").mkdir(exist_ok=True)
    (folder / "proc" / "stat").write_text(f"{stat}\ncpu0 1 2 3\n")
    for core in range(2):
        place = folder / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        place.mkdir(parents=True, exist_ok=True)
        (place / "scaling_cur_freq").write_text(kilohertz)
    return str(folder)


def test_stolen_time_and_frequency_are_read(tmp_path: Path) -> None:
    before = clocks.read(machine(tmp_path, BEFORE))
    after = clocks.read(machine(tmp_path, AFTER, "1900000"))
    assert before == Reading(2500.0, 300, 6415)
    assert clocks.stolen_share(before, after) == 0.1
    assert after.megahertz == 1900.0
    assert clocks.read(str(tmp_path / "nothing")) == Reading()
    assert clocks.stolen_share(Reading(), after) is None


def test_a_sample_is_marked_by_rule() -> None:
    here = Conditions()
    assert here.mark(Seen(stolen=0.01, megahertz=3000.0)) == ""
    assert here.mark(Seen(stolen=0.1)) == "10 % of the processor's time went elsewhere"
    assert here.mark(Seen(megahertz=2500.0)) == "2500 MHz, not 3000"
    assert here.mark(Seen(megahertz=2900.0)) == ""


class Library:
    """A pynvml with recorded values: of an H200 under load, then too hot."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    class NVMLError(Exception):
        """What pynvml raises."""

    def __init__(self) -> None:
        self.reasons, self.millijoules = 0x4, 1_000_000

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        return 41

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 345_678

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self.millijoules += 50_000
        return self.millijoules

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return self.reasons


def test_a_gpu_is_read_and_marked_when_it_is_hot() -> None:
    library = Library()
    gpu = nvml.opened(library=library)
    assert gpu is not None
    found = gpu.read()
    assert (found.megahertz, found.celsius, found.watts) == (1980, 41, 345.678)
    assert found.joules == 1050.0
    here, seen = Conditions(gpu=gpu, source="NVML"), Seen()
    summarise(seen, [found, nvml.Reading(megahertz=1200, celsius=88, reasons=0x20)])
    assert (seen.megahertz, seen.celsius, seen.watts) == (1200, 88, 345.678)
    assert here.mark(seen) == "software thermal slowdown"
    assert here.mark(Seen(reasons=0x4)) == ""  # the power cap is as fast as it gets


def test_what_a_gpu_does_not_tell_is_unknown() -> None:
    class Silent(Library):
        def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
            raise self.NVMLError

        def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
            raise self.NVMLError

    gpu = nvml.opened(library=Silent())
    assert gpu is not None
    assert (gpu.read().watts, gpu.joules()) == (None, None)
    assert nvml.opened(library=object()) is None


def test_a_turn_has_its_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pareo.lab.experiment.conditions.IDLE", 0.01)
    monkeypatch.setattr("pareo.lab.experiment.conditions.FIRST", 0.001)
    here = Conditions(gpu=nvml.opened(library=Library()), source="NVML")
    here.rest()
    row = Row("one", slice=1.0)
    for number in (1, 2):
        with here.turn() as seen:
            give_up = time.monotonic() + 60
            while not here.lately and time.monotonic() < give_up:
                time.sleep(0.02)
        row.add(number, 1.0)
        here.note(row, number, seen, images=100)
    assert row.energy.source == "NVML"
    assert row.energy.joules >= 100
    assert (row.energy.images, row.energy.turns) == (200, 2)
    assert row.energy.idle_watts is not None
    assert row.clocks.megahertz == 1980
    assert row.energy.per_image is None  # turns of less than a second in all
    row.end("refused", "it was wrong")
    assert row.energy == Energy()


def powercap(root: Path, zones: dict[str, tuple[str, str]]) -> str:
    """A tree as the kernel lays it out: /sys/class/powercap has links to the devices."""
    links = root / "sys" / "class" / "powercap"
    links.mkdir(parents=True)
    for zone, (name, microjoules) in zones.items():
        place = root / "sys" / "devices" / "virtual" / "powercap" / zone.partition(":")[0] / zone
        place.mkdir(parents=True)
        (place / "name").write_text(f"{name}\n")
        (place / "max_energy_range_uj").write_text("1000\n")
        (place / "energy_uj").write_text(f"{microjoules}\n")
        (links / zone).symlink_to(place)
    return str(root)


LAPTOP = {
    "intel-rapl:0": ("package-0", "900"),
    "intel-rapl:0:0": ("core", "5"),  # a part of the package
    "intel-rapl:0:1": ("uncore", "6"),
    "intel-rapl:1": ("psys", "7000"),  # the board, which has the package in it
    "intel-rapl-mmio:0": ("package-0", "900"),  # the same once more
}


def test_rapl_counts_packages_and_nothing_twice(tmp_path: Path) -> None:
    rapl = Rapl.opened(powercap(tmp_path, LAPTOP))
    assert rapl is not None
    assert rapl.read() == [900]


def test_rapl_adds_packages_and_notices_that_a_counter_started_over(tmp_path: Path) -> None:
    zones = {"intel-rapl:0": ("package-0", "900"), "intel-rapl:1": ("package-1", "100")}
    rapl = Rapl.opened(powercap(tmp_path, zones))
    assert rapl is not None
    before = rapl.read()
    for zone, value in (("intel-rapl:0", "50"), ("intel-rapl:1", "300")):
        (tmp_path / "sys" / "class" / "powercap" / zone / "energy_uj").write_text(value)
    assert rapl.joules(before, rapl.read()) == pytest.approx(350e-6)
    (tmp_path / "sys" / "class" / "powercap" / "intel-rapl:1" / "energy_uj").unlink()
    assert rapl.joules(before, rapl.read()) is None
    # A package that cannot be read, as for users other than root: the sum would be too small.
    assert Rapl.opened(str(tmp_path)) is None
    assert Rapl.opened(str(tmp_path / "nothing")) is None


def test_a_turn_on_a_processor_with_rapl_has_its_energy(tmp_path: Path) -> None:
    here = Conditions(rapl=Rapl.opened(powercap(tmp_path, LAPTOP)), source="RAPL")
    row = Row("one", slice=1.0)
    with here.turn() as seen:
        (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("950")
    row.add(1, 1.0)
    here.note(row, 1, seen, images=100)
    assert (row.energy.source, row.energy.images) == ("RAPL", 100)
    assert row.energy.joules == pytest.approx(50e-6)


def timed(times: list[float], marked: dict[int, str]) -> Row:
    marks = [Mark(round=number, why=why) for number, why in marked.items()]
    rounds = [*range(1, len(times) + 1)]
    return Row("pareo-x", samples=times, rounds=rounds, slice=1.0, marks=marks)


def test_marked_samples_are_left_out_of_the_verdict() -> None:
    other = timed([1.0, 1.01, 0.99] * 4, {})
    slow = timed([1.0, 1.01, 0.99] * 3 + [3.0, 3.1, 2.9], {10: "hot", 11: "hot", 12: "hot"})
    assert slow.median == 1.0
    assert slow.compared_with(other).ratio == 1.0
    assert len(slow.samples) == 12
    assert slow.left_out().startswith("pareo-x: 3 of 12 samples were taken under throttling (hot)")
    few = timed([3.0] * 12, dict.fromkeys(range(1, 7), "hot"))
    assert len(few.counted_times) == 12
    assert few.left_out().endswith("too few others remain, so all count.")
    assert other.left_out() == ""


@pytest.mark.gpu
@needs_gpu
def test_the_energy_of_a_gpu_agrees_with_its_power() -> None:
    cupy: Any = pytest.importorskip("cupy")
    here = Conditions.of(on_gpu=True)
    if here.gpu is None or not here.source:
        pytest.skip("this machine has no nvidia-ml-py, or no energy counter")
    here.rest()
    a = cupy.ones((8192, 8192), cupy.float32)
    with here.turn() as seen:
        end = time.perf_counter() + 20
        while time.perf_counter() < end:
            a @ a
            cupy.cuda.Device().synchronize()
    assert seen.joules is not None
    assert seen.watts is not None
    assert seen.joules == pytest.approx(seen.watts * seen.seconds, rel=0.1)
    assert here.idle_watts is not None
    assert seen.watts > 1.5 * here.idle_watts
