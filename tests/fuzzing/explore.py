"""Run many random programs and networks by hand: `python tests/fuzzing/explore.py --help`."""

import faulthandler
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzzing.compare import PLAIN, Example, Hang, Wrong, check, refused, within
from fuzzing.draw import drawn
from fuzzing.networks import Trained, check_network, drawn_network
from fuzzing.recipe import Recipe
from fuzzing.shrink import shrunk

from pareo.device import names, why_unavailable

DTYPES = ("float32", "float64")
SLOW = 20  # `sequential` gets one of so many programs
console = Console(soft_wrap=True, highlight=False)
Attempt = Callable[[], None]


def outcome(attempt: Attempt, limit: float) -> tuple[str, str]:
    """How it went in a word, and what is to be said of it."""
    faulthandler.dump_traceback_later(10 * limit, exit=True)  # where not even the alarm is heard
    try:
        with within(limit):
            attempt()
    except Hang as hang:
        return "hung", str(hang)
    except Wrong as wrong:
        return "wrong", str(wrong)
    except Exception as error:  # whatever a random program raises is a finding
        return type(error).__name__, str(error) or repr(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return "right", ""


def one_program(
    example: Example, device: str, limit: float, shrink: bool, counts: Counter[str]
) -> bool:
    """Check a program; print what is wrong with it."""
    seed, dtype = example.seed, DTYPES[example.seed % 2]

    def attempt(recipe: Recipe) -> Attempt:
        tried = example if recipe is example.recipe else Example(recipe, seed)

        def run() -> None:
            check(tried, device, dtype, threads=1 + seed % 2)
            if seed % 10 == 0:
                refused(recipe, device)

        return run

    word, message = outcome(attempt(example.recipe), limit)
    counts[word] += 1
    counts["not told apart by float32"] += not example.stable
    if word == "right":
        return True
    console.print(f"\nseed {seed} on {device} in {dtype}: {word}: {message}", markup=False)
    if shrink:
        quick = min(limit, 3)

        def fails(recipe: Recipe) -> bool:
            return outcome(attempt(recipe), quick)[0] == word

        console.print(str(shrunk(example.recipe, fails)), markup=False)
    return False


def one_network(trained: Trained, device: str, limit: float, counts: Counter[str]) -> bool:
    """Check a network; print what is wrong with it."""
    seed, dtype = trained.seed, DTYPES[trained.seed % 4 == 3]
    word, message = outcome(lambda: check_network(trained, device, dtype), limit)
    counts[word] += 1
    if word == "right":
        return True
    console.print(f"\nnetwork {seed} on {device} in {dtype}: {word}: {message}", markup=False)
    console.print(str(trained.drawn), markup=False)
    return False


def main(
    programs: Annotated[int, typer.Option(help="How many random programs.")] = 1000,
    networks: Annotated[int, typer.Option(help="How many random networks.")] = 0,
    seed: Annotated[int, typer.Option(help="The first seed; each example has its own.")] = 0,
    devices: Annotated[str, typer.Option(help="Devices, with commas.")] = "vectorized,compiled",
    limit: Annotated[float, typer.Option(help="Seconds after which an example hangs.")] = 120,
    shrink: Annotated[bool, typer.Option(help="Print the smallest program that fails.")] = True,
) -> None:
    """Run random programs and networks on devices against float64; exit with 1 if one is wrong."""
    warnings.simplefilter("error")
    chosen = devices.split(",")
    for device in chosen:
        reason = why_unavailable(device) if device in names() else f"no device '{device}'"
        if reason:
            raise typer.BadParameter(str(reason))
    counts = {(d, kind): Counter[str]() for d in chosen for kind in ("programs", "networks")}
    fine = True
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        for one in progress.track(range(seed, seed + programs), description="programs"):
            example = Example(drawn(one), one)
            for device in chosen:
                slow = one % SLOW or example.program.flops > PLAIN
                if device != "sequential" or not slow:
                    fine &= one_program(example, device, limit, shrink, counts[device, "programs"])
        for one in progress.track(range(seed, seed + networks), description="networks"):
            trained = Trained(drawn_network(one), one)
            for device in chosen:
                if device != "sequential" or one % SLOW == 0:
                    fine &= one_network(trained, device, limit, counts[device, "networks"])
    for (device, kind), count in counts.items():
        told = ", ".join(f"{number} {word}" for word, number in count.most_common() if number)
        console.print(f"{device}, {kind} from seed {seed}: {told or 'none'}")
    raise typer.Exit(not fine)


if __name__ == "__main__":
    typer.run(main)
