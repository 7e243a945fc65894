"""Race a contestant with itself, to see whether the verdicts of a race can be trusted.

    python -m benchmarks.self_race --json races.json

Each race runs three new processes in turn: a contestant, the same one again, and the same one
slowed by 10 %. The verdict should be "cannot tell" on the second and "slower" on the third. As in
`pareo race`, rounds end when the times are precise enough, or after a maximum number of rounds.
"""

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from pareo.cli import options, run
from pareo.errors import PareoError
from pareo.lab.atomic_write import write_whole
from pareo.lab.contestants import CONTESTANTS, Task
from pareo.lab.contestants.slowed import slowed
from pareo.lab.experiment import statistics
from pareo.lab.experiment.admission import Admission
from pareo.lab.experiment.rounds import rounds
from pareo.lab.race.result import Row
from pareo.nn import networks

MOST = 8 * statistics.ROUNDS
RACERS = ("one", "same", "slowed")
DATA = "synthetic:1x28x28:10:1200"  # MNIST would take longer to unpack than a race takes


def race(task: Task, contestant: str, seconds: float) -> dict[str, list[float]]:
    """Samples of three new processes that ran in turn, by their names in RACERS."""
    entered = {"one": CONTESTANTS[contestant], "same": CONTESTANTS[contestant]}
    entered["slowed"] = slowed(contestant)
    rows = [Row(name) for name in RACERS]

    def over(number: int, took: float) -> bool:
        known = all(statistics.enough(row.samples) for row in rows if row.status == "ok")
        failed = any(row.status != "ok" for row in rows)
        return failed or number >= MOST or (number >= statistics.ROUNDS and known)

    with ExitStack() as stack:
        admission = Admission[Row](stack, task, task.count())
        admitted = [admission.admit(row, entered[row.contestant], 10**9, seconds) for row in rows]
        running = [one for one in admitted if one is not None]
        rounds(lambda: running, lambda one, number: one.run(number), over)
    for row in rows:
        if row.status != "ok":
            raise PareoError(f"{row.contestant}: {row.note}")
    return {row.contestant: row.samples for row in rows}


def verdicts(races: list[dict[str, list[float]]]) -> dict[str, Counter[str]]:
    """How often each verdict was given on the same contestant and on the slowed one.

    >>> verdicts([{"one": [1.0] * 8, "same": [1.0] * 8, "slowed": [1.1] * 8}])["slowed"]
    Counter({'slower': 1})
    """
    return {
        name: Counter(statistics.compare(found[name], found["one"]).word for found in races)
        for name in RACERS[1:]
    }


def report(races: list[dict[str, list[float]]]) -> str:
    """The verdicts in words, and by how much two processes of one contestant differed."""
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


def main(
    contestant: Annotated[str, typer.Option(help="Contestant to race.")] = "pareo-vectorized",
    races: Annotated[int, typer.Option(min=1, help="Number of races.")] = 50,
    turn: Annotated[float, typer.Option(help="Seconds of a turn, about.")] = 0.02,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads to use.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep all samples here, and continue from them.")
    ] = None,
) -> None:
    """Race a contestant with itself; exit with status 1 where too many verdicts are wrong."""
    options.check_choice("--contestant", contestant, CONTESTANTS)
    task = Task(networks.mlp("small"), 128, threads, source=DATA)
    found = json.loads(json_file.read_text()) if json_file and json_file.exists() else []
    for _ in track(range(len(found), races), "racing", transient=True):
        found.append(race(task, contestant, turn))
        if json_file:  # after every race, so that an interrupted run keeps its samples
            write_whole(json_file, json.dumps(rounded(found)))
    print(report(found))
    counts = verdicts(found)
    same, slow = counts["same"]["cannot tell"], counts["slowed"]["slower"]
    if same < 0.94 * races or slow < 0.9 * races:
        raise typer.Exit(1)


def rounded(races: list[dict[str, list[float]]]) -> Any:
    """The samples rounded to five digits."""
    return [
        {name: [float(f"{value:.5g}") for value in samples] for name, samples in found.items()}
        for found in races
    ]


if __name__ == "__main__":
    run(lambda: typer.run(main))
