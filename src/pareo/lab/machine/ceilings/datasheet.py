"""What data sheets promise, for models that are known; shown beside a limit, never used as one.

The figures of a GPU hold at its boost clock, and are scaled to the highest clock that its driver
allows here. Those of a processor are FLOPs a cycle, and need a clock that the system reports.
"""

from dataclasses import dataclass
from pathlib import Path

from pareo import machine
from pareo.device import Device
from pareo.lab.machine.ceilings.model import DataSheet

T = 1e12
CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")  # in kHz


@dataclass(frozen=True)
class Model:
    """FLOP/s of a GPU by precision, bytes a second, and the clock (MHz) at which they hold.

    float32 is IEEE's. float64 and precisions below float32 are those of tensor cores, without
    sparsity.
    """

    flops: dict[str, float]
    bandwidth: float
    clock: int
    source: str


def _rates(
    float32: float, float64: float, tf32: float = 0, bfloat16: float = 0, float16: float = 0
) -> dict[str, float]:
    """In TFLOP/s; what a GPU does not have is left out."""
    named = {
        "float32": float32,
        "float64": float64,
        "tf32": tf32,
        "bfloat16": bfloat16,
        "float16": float16,
    }
    return {name: rate * T for name, rate in named.items() if rate}


GPUS = {
    "NVIDIA H200": Model(
        _rates(66.9, 66.9, 494.7, 989.4, 989.4), 4.8 * T, 1980, "NVIDIA H200 data sheet, SXM"
    ),
    "NVIDIA H100 80GB HBM3": Model(
        _rates(66.9, 66.9, 494.7, 989.4, 989.4), 3.35 * T, 1980, "NVIDIA H100 data sheet, SXM"
    ),
    "NVIDIA A100-SXM4-80GB": Model(
        _rates(19.5, 19.5, 156, 312, 312), 2.039 * T, 1410, "NVIDIA A100 data sheet"
    ),
    "NVIDIA A100-SXM4-40GB": Model(
        _rates(19.5, 19.5, 156, 312, 312), 1.555 * T, 1410, "NVIDIA A100 data sheet"
    ),
    "Tesla V100-SXM2-16GB": Model(
        _rates(15.7, 7.8, float16=125), 0.9 * T, 1530, "NVIDIA V100 data sheet"
    ),
    "Tesla T4": Model(_rates(8.1, 0.25, float16=65), 0.32 * T, 1590, "NVIDIA T4 data sheet"),
    "NVIDIA L4": Model(
        _rates(30.3, 0.47, 60, 121, 121), 0.3 * T, 2040, "NVIDIA L4 data sheet, halved: no sparsity"
    ),
}

# float32 FLOPs a cycle and core: vector units times lanes times two, for a multiply and an add.
CORES = {
    "Arm Neoverse N1": (16, "Arm Neoverse N1 software optimization guide: 2 units of 128 bits"),
    "Arm Neoverse N2": (16, "Arm Neoverse N2 software optimization guide: 2 units of 128 bits"),
    "Arm Neoverse V1": (32, "Arm Neoverse V1 software optimization guide: 4 units of 128 bits"),
    "Arm Neoverse V2": (32, "Arm Neoverse V2 software optimization guide: 4 units of 128 bits"),
}


def promised(device: Device) -> DataSheet:
    """The data sheet of a device; if it is unknown, its source says why."""
    if device.name == "cuda":
        gpus = machine.gpus()
        return _gpu(gpus[device.index]) if device.index < len(gpus) else _unknown("this GPU")
    return _processor(machine.processor(), device.threads, _clock())


def _gpu(gpu: machine.Gpu) -> DataSheet:
    """The data sheet of a GPU at its highest clock here.

    >>> gpu = machine.Gpu("NVIDIA H200", "580", 0, 0, 345, 990, 3201)
    >>> round(_gpu(gpu).flops["float32"] / 1e12, 2)
    33.45
    """
    model = GPUS.get(gpu.name)
    if model is None:
        return _unknown(gpu.name)
    scale = gpu.highest_clock / model.clock if gpu.highest_clock else 1.0
    return DataSheet(
        flops={name: rate * scale for name, rate in model.flops.items()},
        bandwidth=model.bandwidth,
        source=f"{model.source}, at {gpu.highest_clock or model.clock} MHz",
    )


def _processor(name: str, threads: int, clock: float | None) -> DataSheet:
    """The arithmetic of a processor, one thread on each core.

    >>> _processor("Arm Neoverse N1", 2, 2.5e9).flops["float32"]
    80000000000.0
    >>> _processor("Arm Neoverse N1", 2, None).source
    'unknown: Arm Neoverse N1 has 16 FLOP a cycle and core, but the system reports no clock'
    """
    if name not in CORES:
        return _unknown(name)
    cycle, source = CORES[name]
    if clock is None:
        return _unknown(
            f"{name} has {cycle} FLOP a cycle and core, but the system reports no clock"
        )
    rate = cycle * clock * threads
    return DataSheet(
        flops={"float32": rate, "float64": rate / 2}, source=f"{source}; {clock / 1e6:.0f} MHz"
    )


def _unknown(what: str) -> DataSheet:
    return DataSheet(source=f"unknown: {what}")


def _clock() -> float | None:
    """Cycles a second; None if the system does not report it."""
    try:
        return int(CLOCK.read_text()) * 1e3
    except (OSError, ValueError):
        return None
