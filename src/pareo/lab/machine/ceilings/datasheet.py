"""What data sheets promise, for models that are known; a third column, never a limit.

A card's figures hold at its boost clock, and are scaled to the highest clock that its driver
allows here. A processor's are FLOPs a cycle, and need a clock that the system tells.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pareo import machine
from pareo.device import Device

T = 1e12
CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")  # in kHz


@dataclass(frozen=True)
class Sheet:
    """FLOP/s by precision, bytes a second, and the clock (MHz) they hold at.

    float32 is IEEE's; float64 and those below float32 are by tensor cores, without sparsity.
    """

    flops: dict[str, float]
    bandwidth: float
    clock: int
    source: str


def _rates(
    float32: float, float64: float, tf32: float = 0, bfloat16: float = 0, float16: float = 0
) -> dict[str, float]:
    """In TFLOP/s; what a card does not have is left out."""
    named = {
        "float32": float32,
        "float64": float64,
        "tf32": tf32,
        "bfloat16": bfloat16,
        "float16": float16,
    }
    return {name: rate * T for name, rate in named.items() if rate}


CARDS = {
    "NVIDIA H200": Sheet(
        _rates(66.9, 66.9, 494.7, 989.4, 989.4), 4.8 * T, 1980, "NVIDIA H200 data sheet, SXM"
    ),
    "NVIDIA H100 80GB HBM3": Sheet(
        _rates(66.9, 66.9, 494.7, 989.4, 989.4), 3.35 * T, 1980, "NVIDIA H100 data sheet, SXM"
    ),
    "NVIDIA A100-SXM4-80GB": Sheet(
        _rates(19.5, 19.5, 156, 312, 312), 2.039 * T, 1410, "NVIDIA A100 data sheet"
    ),
    "NVIDIA A100-SXM4-40GB": Sheet(
        _rates(19.5, 19.5, 156, 312, 312), 1.555 * T, 1410, "NVIDIA A100 data sheet"
    ),
    "Tesla V100-SXM2-16GB": Sheet(
        _rates(15.7, 7.8, float16=125), 0.9 * T, 1530, "NVIDIA V100 data sheet"
    ),
    "Tesla T4": Sheet(_rates(8.1, 0.25, float16=65), 0.32 * T, 1590, "NVIDIA T4 data sheet"),
    "NVIDIA L4": Sheet(
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


def promised(device: Device) -> dict[str, Any]:
    """FLOP/s by precision, bandwidth and source, or one line that says why that is unknown."""
    if device.name == "cuda":
        cards = machine.gpus()
        return _card(cards[device.index]) if device.index < len(cards) else _unknown("this card")
    return _processor(machine.processor(), device.threads, _clock())


def _card(card: machine.Gpu) -> dict[str, Any]:
    """A card's sheet at its highest clock here.

    >>> card = machine.Gpu("NVIDIA H200", "580", 0, 0, 345, 990, 3201)
    >>> round(_card(card)["flops"]["float32"] / 1e12, 2)
    33.45
    """
    sheet = CARDS.get(card.name)
    if sheet is None:
        return _unknown(card.name)
    scale = card.highest_clock / sheet.clock if card.highest_clock else 1.0
    source = f"{sheet.source}, at {card.highest_clock or sheet.clock} MHz"
    flops = {name: rate * scale for name, rate in sheet.flops.items()}
    return {"flops": flops, "bandwidth": sheet.bandwidth, "source": source}


def _processor(name: str, threads: int, clock: float | None) -> dict[str, Any]:
    """A processor's arithmetic, one thread on each core.

    >>> _processor("Arm Neoverse N1", 2, 2.5e9)["flops"]["float32"]
    80000000000.0
    >>> _processor("Arm Neoverse N1", 2, None)["source"]
    'unknown: Arm Neoverse N1 has 16 FLOP a cycle and core, but the system tells no clock'
    """
    if name not in CORES:
        return _unknown(name)
    cycle, source = CORES[name]
    if clock is None:
        return _unknown(f"{name} has {cycle} FLOP a cycle and core, but the system tells no clock")
    rate = cycle * clock * threads
    told = f"{source}; {clock / 1e6:.0f} MHz"
    return {"flops": {"float32": rate, "float64": rate / 2}, "bandwidth": None, "source": told}


def _unknown(what: str) -> dict[str, Any]:
    return {"flops": {}, "bandwidth": None, "source": f"unknown: {what}"}


def _clock() -> float | None:
    """Cycles a second, where the system tells."""
    try:
        return int(CLOCK.read_text()) * 1e3
    except (OSError, ValueError):
        return None
