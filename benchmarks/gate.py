"""How often the gates of a race are wrong: right contestants refused, wrong ones admitted.

    python -m benchmarks.gate --networks 12
    python -m benchmarks.gate --networks 4 --contestants pareo-cuda,torch-cuda,jax-cuda

Each network is drawn as `pareo arena` draws it, and raced for a second. Beside the contestants run
three that are right at first and wrong later (`wrong_later.py`).
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.wrong_later import CHANGES
from pareo.cli import options, run
from pareo.lab.arena.draw import Drawn, drawn, kinds_of
from pareo.lab.arena.settings import INVENTED
from pareo.lab.contestants import Contestant, Task
from pareo.lab.contestants.registry import known
from pareo.lab.race.engine import Race, Rules
from pareo.lab.race.result import Row

USUAL = "pareo-vectorized,pareo-compiled,torch,jax"
RULES = Rules(share=0.05, turn=0.1, seconds=1.0)
FLOPS = 10**7  # of a step, at most: a race is to take seconds
KINDS = ("mlp", "cnn")


class Short(Race):
    """A race without floors, which take longer than all else."""

    @property
    def long(self) -> bool:
        return False

    def measure_floors(self) -> None:
        """Nothing: no time is shown."""


def networks(seed: int, kinds: Sequence[str] = KINDS) -> Iterator[Drawn]:
    """Small networks drawn by a seed, of these kinds in turn."""
    for together in zip(*(_small(seed, kind) for kind in kinds), strict=True):
        yield from together


def _small(seed: int, kind: str) -> Iterator[Drawn]:
    every = (drawn(seed, index, (kind,)) for index in count())
    return (one for one in every if one.flops <= FLOPS)


def raced(one: Drawn, contestants: dict[str, Contestant]) -> list[Row]:
    """The rows of a race on a drawn network."""
    task = Task(one.network, one.batch, rate=one.rate, source=INVENTED)
    return Short(task, contestants, RULES).run().rows


def table(rows: dict[str, list[Row]]) -> Table:
    """How many races each contestant had, and how often it was refused."""
    made = Table(title="Right contestants, and those that are wrong later", title_justify="left")
    made.add_column("contestant")
    for head in ("races", "refused", "failed"):
        made.add_column(head, justify="right")
    for name, found in rows.items():
        refused = sum(row.status == "refused" for row in found)
        failed = sum(row.status not in ("ok", "refused") for row in found)
        made.add_row(CHANGES.get(name, name), *map(str, (len(found), refused, failed)))
    return made


def main(
    most: Annotated[int, typer.Option("--networks", min=1, help="Networks to race on.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 2711,
    contestants: Annotated[str, typer.Option(help="Right ones, separated by commas.")] = USUAL,
    kinds: Annotated[str, typer.Option(help="Of the networks: mlp, cnn, mid.")] = ",".join(KINDS),
) -> None:
    """Race right contestants and wrong ones on drawn networks, and count refusals."""
    names = contestants.split(",")
    for name in names:
        options.check_choice("--contestants", name, list(known()))
    fast = next((name for name in names if name in ("pareo-compiled", "pareo-cuda")), names[0])
    everyone: dict[str, Any] = {name: known()[name] for name in names} | {
        change: Contestant("benchmarks.wrong_later", {"base": fast, "change": change})
        for change in CHANGES
    }
    found: dict[str, list[Row]] = {name: [] for name in everyone}
    console = Console(soft_wrap=True)
    for one in islice(networks(seed, kinds_of(kinds)), most):
        for row in raced(one, everyone):
            found[row.contestant].append(row)
            note = f": {row.note}" if row.note else ""
            console.print(f"{one}; {row.contestant}: {row.status}{note}", highlight=False)
    console.print(table(found))
    right = [row for name in names for row in found[name] if row.status != "ok"]
    missed = [row for change in CHANGES for row in found[change] if row.status == "ok"]
    if right or missed:
        raise typer.Exit(1)


if __name__ == "__main__":
    run(lambda: typer.run(main))
