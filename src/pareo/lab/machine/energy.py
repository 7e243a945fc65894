"""Energy of what a device computes: by counters, or not at all; it is never estimated.

A GPU has NVML's counter, an x86 CPU has RAPL's where the kernel lets us read it. A counter moves in
steps, so a difference is uncertain by the energy of one step at each end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pareo.lab.experiment.bounds import Amount, Natural

NOT_HERE = "not measurable here"
# Seconds between two steps of a counter. NVML's documentation does not say; 0.1 is cautious.
STEP = {"NVML": 0.1, "RAPL": 0.001}
LEAST = 1.0  # seconds of all turns, below which the steps of a counter count
PACKAGES = "sys/class/powercap/intel-rapl:[0-9]*"


@dataclass(kw_only=True)
class Energy:
    """Joules of all turns of a contestant.

    source: the counter, or empty where there is none. seconds: of these turns. images: trained in
    them. turns: how many. idle_watts: what the device takes when nothing runs, if it was measured.
    """

    source: str = ""
    joules: Amount = 0.0
    seconds: Amount = 0.0
    images: Natural = 0
    turns: Natural = 0
    idle_watts: Amount | None = None

    def add(self, joules: float, seconds: float, images: int) -> None:
        """One more turn."""
        self.joules += joules
        self.seconds += seconds
        self.images += images
        self.turns += 1

    @property
    def known(self) -> bool:
        """Whether turns were long enough for the counter."""
        return bool(self.source and self.images and self.seconds >= LEAST and self.joules > 0)

    @property
    def watts(self) -> float | None:
        """The mean power of all turns."""
        return self.joules / self.seconds if self.known else None

    @property
    def per_image(self) -> float | None:
        """Joules an image, with what the device takes anyway."""
        return self.joules / self.images if self.known else None

    @property
    def net_per_image(self) -> float | None:
        """Joules an image, less what the device would have taken idle; never below 0.

        >>> Energy(source="NVML", joules=700.0, seconds=2.0, images=100, idle_watts=100.0
        ...     ).net_per_image
        5.0
        """
        if not self.known or self.idle_watts is None:
            return None
        return max(0.0, self.joules - self.idle_watts * self.seconds) / self.images

    @property
    def uncertainty(self) -> float | None:
        """The relative error that the steps of the counter make, one at each end of a turn.

        Steps fall anywhere in a turn, so the errors of turns add up as their square root.

        >>> Energy(source="NVML", joules=700.0, seconds=2.0, images=100, turns=4).uncertainty
        0.1
        """
        if not self.known:
            return None
        return STEP.get(self.source, 0.1) * max(self.turns, 1) ** 0.5 / self.seconds


def words(energy: Energy, images: int | None = None) -> str:
    """What a line says of the energy of a contestant; `images` are those of an epoch.

    >>> words(Energy())
    'energy not measurable here'
    >>> words(Energy(source="NVML", joules=700.0, seconds=2.0, images=100, idle_watts=100.0), 1000)
    'energy 7 J an image (NVML, within 5 %), 5 J without the 100 W of idling; 7000 J an epoch'
    """
    each = energy.per_image
    if each is None:
        return f"energy {NOT_HERE}"
    text = f"energy {each:.3g} J an image ({energy.source}, within {energy.uncertainty:.0%})"
    text = text.replace("%)", " %)")
    if energy.net_per_image is not None:
        text += f", {energy.net_per_image:.3g} J without the {energy.idle_watts:.3g} W of idling"
    return text + (f"; {each * images:.4g} J an epoch" if images else "")


class Rapl:
    """The energy counters of a processor's packages, where the kernel shows them."""

    def __init__(self, packages: Sequence[Path]) -> None:
        self._files = [
            (one / "energy_uj", _number(one / "max_energy_range_uj")) for one in packages
        ]

    @classmethod
    def opened(cls, root: str = "/") -> "Rapl | None":
        """All packages; None where there are none, or where one cannot be read."""
        packages = [one for one in sorted(Path(root).glob(PACKAGES)) if _is_package(one)]
        known = all(_number(one / "energy_uj") is not None for one in packages)
        return cls(packages) if packages and known else None

    def read(self) -> list[int | None]:
        """Microjoules of each package."""
        return [_number(file) for file, _ in self._files]

    def joules(self, before: list[int | None], after: list[int | None]) -> float | None:
        """Joules between two readings; a counter that has started again is noticed."""
        total = 0
        for start, end, (_, most) in zip(before, after, self._files, strict=True):
            if start is None or end is None:
                return None
            total += end - start if end >= start else end - start + (most or 0)
        return total / 1e6 if total >= 0 else None


def _is_package(place: Path) -> bool:
    """Whether a counter is a processor's: not of a part of it, nor of the whole board (psys)."""
    try:
        name = (place / "name").read_text().strip()
    except OSError:
        name = "package"
    return place.name.count(":") == 1 and name.startswith("package")


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
