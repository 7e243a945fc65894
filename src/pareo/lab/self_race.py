"""Whether a race can be believed: `python -m pareo.lab.self_race` races a contestant with itself.

In every race, three new processes run in turn: a contestant, the same one again, and the same one
slowed by 10 %. The verdict on the second should be "cannot tell", and "slower" on the third. As in
`pareo race`, rounds end when times are known well, or when there were enough of them.
"""

import argparse
import json
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import track

from pareo.lab.arguments import least_one
from pareo.lab.atomic_write import write_or_say
from pareo.lab.contestants import CONTESTANTS, Task
from pareo.lab.contestants.slowed import slowed
from pareo.lab.experiment import statistics
from pareo.lab.experiment.admission import Gate, Racer, Row
from pareo.nn import networks

MOST = 8 * statistics.ROUNDS
RACERS = ("one", "same", "slowed")
DATA = "synthetic:1x28x28:10:1200"  # MNIST would take longer to unpack than a race takes


def race(task: Task, contestant: str, seconds: float) -> dict[str, list[float]]:
    """Samples of three new processes that ran in turn, by their names in RACERS."""
    entered = {"one": CONTESTANTS[contestant], "same": CONTESTANTS[contestant]}
    entered["slowed"] = slowed(contestant)
    images = task.count()
    with ExitStack() as stack:
        gate = Gate(stack, task, images)
        found = [gate.admit(Row(name), entered[name], 10**9, seconds) for name in RACERS]
        racers = [racer for racer in found if racer is not None]
        for number in range(MOST):
            for racer in racers:
                racer.run(number)
            known = all(statistics.enough(_samples(racer)) for racer in racers)
            if known and number + 1 >= statistics.ROUNDS:
                break
    return {racer.row.contestant: _samples(racer) for racer in racers}


def _samples(racer: Racer) -> list[float]:
    if racer.row.status != "ok":
        raise RuntimeError(f"{racer.row.contestant}: {racer.row.note}")
    return racer.row.samples


def verdicts(races: list[dict[str, list[float]]]) -> dict[str, Counter[str]]:
    """How often each word was said of the same contestant, and of the slowed one.

    >>> verdicts([{"one": [1.0] * 8, "same": [1.0] * 8, "slowed": [1.1] * 8}])["slowed"]
    Counter({'slower': 1})
    """
    return {
        name: Counter(statistics.compare(found[name], found["one"]).word for found in races)
        for name in RACERS[1:]
    }


def report(races: list[dict[str, list[float]]]) -> str:
    """The verdicts in words, and how far two processes of one contestant were apart."""
    said = verdicts(races)
    same = [statistics.compare(found["same"], found["one"]) for found in races]
    apart = sorted(abs(verdict.ratio - 1) for verdict in same)
    lines = [
        f"{name}: {', '.join(f'{word} {count}' for word, count in words.most_common())}"
        for name, words in said.items()
    ]
    lines.append(
        f"two processes of one contestant were {apart[len(apart) // 2] * 100:.2g} % apart in the "
        f"median, {apart[-1] * 100:.2g} % at most"
    )
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Race, and say how often the verdict was right; 1 where that is not often enough."""
    parser = argparse.ArgumentParser(prog="python -m pareo.lab.self_race", description=__doc__)
    parser.add_argument("--contestant", choices=list(CONTESTANTS), default="pareo-vectorized")
    parser.add_argument("--races", type=least_one, default=50)
    parser.add_argument("--seconds", type=float, default=0.02, help="length of a turn, about")
    parser.add_argument("--threads", type=least_one, default=1)
    parser.add_argument("--json", type=Path, help="keep all samples here, and go on from them")
    asked = parser.parse_args(words)
    task = Task(networks.mlp("small"), 128, asked.threads, source=DATA)
    races = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else []
    written = True
    for _ in track(range(len(races), asked.races), "racing", transient=True):
        races.append(race(task, asked.contestant, asked.seconds))
        if asked.json:  # after every race, so that a run cut short leaves what it has
            written = write_or_say(asked.json, json.dumps(rounded(races)))
    print(report(races))
    said = verdicts(races)
    enough = said["same"]["cannot tell"] >= 0.94 * asked.races
    return 0 if written and enough and said["slowed"]["slower"] >= 0.9 * asked.races else 1


def rounded(races: list[dict[str, list[float]]]) -> Any:
    """Samples with five digits, as a file needs no more."""
    return [
        {name: [float(f"{value:.5g}") for value in samples] for name, samples in found.items()}
        for found in races
    ]


if __name__ == "__main__":
    sys.exit(main())
