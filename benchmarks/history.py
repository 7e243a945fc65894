"""How many steps `pareo history` finds in simulated years, and how many that are none.

`python -m benchmarks.history [--real FILE]` prints the table of docs/results/history.md. A year has
a run a day. Its noise is normal, normal with days that are slow, lasting from day to day, or that
of real samples: those of tests/lab/experiment/self_races.json, of the two-core machine.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pareo.lab.history.steps import steps

DAYS = 365
NEAR = 10  # days by which a step may be found too early or too late
SIZES = (0.02, 0.05, 0.1)
REAL = Path(__file__).parents[1] / "tests" / "lab" / "experiment" / "self_races.json"
Noise = Callable[[np.random.Generator], Any]


def normal(spread: float, slow: float = 0.0, lasts: float = 0.0) -> Noise:
    """Logarithms of a year of times: their spread, the share of slow days, how alike neighbours."""

    def drawn(draw: np.random.Generator) -> Any:
        found = draw.normal(0, spread, DAYS)
        for day in range(1, DAYS if lasts else 0):
            found[day] = lasts * found[day - 1] + (1 - lasts**2) ** 0.5 * found[day]
        return found + (draw.random(DAYS) < slow) * draw.exponential(0.2, DAYS)

    return drawn


def real(file: Path, ratio: bool) -> Noise:
    """A day's median of real samples of one program that ran twice in turn, drawn at random.

    ratio: of the two to each other, round by round, which cancels what slows both.
    """
    races = [pair for pair in _pairs(json.loads(file.read_text())) if min(map(len, pair)) >= 8]
    middle = float(np.median([np.median(np.log(one)) for one, _ in races]))

    def drawn(draw: np.random.Generator) -> Any:
        days = []
        for _ in range(DAYS):
            one, other = races[draw.integers(len(races))]
            count = min(len(one), len(other))
            chosen = draw.integers(0, count, count)
            values = np.log(np.asarray(one)[chosen])
            values -= np.log(np.asarray(other)[chosen]) if ratio else middle
            days.append(float(np.median(values)))
        return np.asarray(days)

    return drawn


def _pairs(data: Any) -> list[tuple[list[float], list[float]]]:
    """All pairs of lists of samples in a file, wherever they lie."""
    if isinstance(data, dict):
        lists = [v for v in data.values() if _samples(v)]
        return [(lists[0], lists[1])] if len(lists) >= 2 else _all(data.values())
    if isinstance(data, list) and len(data) == 2 and all(map(_samples, data)):
        return [(data[0], data[1])]
    return _all(data) if isinstance(data, list) else []


def _all(values: Any) -> list[tuple[list[float], list[float]]]:
    return [pair for value in values for pair in _pairs(value)]


def _samples(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, float) for v in value)


def judged(noise: Noise, size: float, years: int, seed: int = 0) -> tuple[int, int]:
    """Of so many years with a step of this size: how many it was found in, and false alarms."""
    draw = np.random.default_rng(seed)
    found = alarms = 0
    for _ in range(years):
        values, at = np.exp(noise(draw)), int(draw.integers(30, DAYS - 30))
        if size:
            values[at:] *= 1 + size
        seen = steps(values)
        hits = [one for one in seen if size and abs(one.index - at) <= NEAR and one.change > 0]
        found += bool(hits)
        alarms += len(seen) - min(1, len(hits))
    return found, alarms


def table(years: int, file: Path) -> list[str]:
    """The rows of the page, in Markdown."""
    kinds = {
        "normal, 0.5 %": normal(0.005),
        "normal, 1 %": normal(0.01),
        "normal, 2 %": normal(0.02),
        "normal, 4 %": normal(0.04),
        "1 %, and 3 % of days slow": normal(0.01, slow=0.03),
        "1 %, lasting (0.6 from day to day)": normal(0.01, lasts=0.6),
        "real samples, times": real(file, ratio=False),
        "real samples, ratio to a peer": real(file, ratio=True),
    }
    heads = " | ".join(f"{size:.0%} found" for size in SIZES)
    rows = [f"| noise | {heads} | false alarms a year |", "| --- |" + " --- |" * (len(SIZES) + 1)]
    for name, noise in kinds.items():
        shares = [f"{judged(noise, size, years)[0] / years:.0%}" for size in SIZES]
        alarms = judged(noise, 0.0, years)[1] / years
        rows.append(f"| {name} | {' | '.join(shares)} | {alarms:.2f} |")
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=200)
    parser.add_argument("--real", type=Path, default=REAL)
    asked = parser.parse_args()
    print("\n".join(table(asked.years, asked.real)))


if __name__ == "__main__":
    main()
