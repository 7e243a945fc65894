"""How fast a GPU trains, here and in the other frameworks: `python -m pareo.lab.gpu_speed`.

As `train_speed`, whose gate and race these are: the same network, weights and batches for everyone,
each in a process of its own, all data on the card before the clock starts. `--operators` holds
single operators against the card's memory and cuBLAS; `--transfers` shows what it costs to move
arrays at each call, and the size from which the card wins.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pareo.device import PRECISIONS, Device, cores
from pareo.lab import gpu_operators, gpu_transfers, train_speed
from pareo.lab.arguments import among, least_one, numbers
from pareo.lab.atomic_write import write_or_say
from pareo.lab.contestants import Contestant, Task
from pareo.lab.contestants.registry import ON_GPU
from pareo.lab.experiment.tasks import LARGE, LARGE_RATE, network_of
from pareo.lab.machine.ceilings import limits
from pareo.lab.train_speed import EPOCH, Cell
from pareo.nn import networks

CONTESTANTS: dict[str, Contestant] = {
    "pareo": ON_GPU["pareo-cuda"],
    "torch": ON_GPU["torch-cuda"],
    "torch-compile": ON_GPU["torch-cuda-compile"],
    "torch-graph": ON_GPU["torch-cudagraph"],
    "torch-compile-graph": ON_GPU["torch-cudagraph-compile"],
    "jax": ON_GPU["jax-cuda"],
    "jax-scan": ON_GPU["jax-cuda-scan"],
    "jax-last": ON_GPU["jax-cuda-last"],
}


def floor(cell: Cell, moved: int, bandwidth: float) -> float:
    """Seconds below which no step can be: its FLOPs at the measured peak, or its bytes."""
    return max(cell.flops / cell.peak, moved / bandwidth)


def table(cell: Cell, precision: str, moved: int, bandwidth: float) -> Table:
    """What was measured, a row for each contestant."""
    epochs = cell.inputs == (1, 28, 28)
    least = floor(cell, moved, bandwidth)
    scale, unit = (EPOCH / cell.batch, "s an epoch") if epochs else (1e3, "ms a step")
    made = Table(
        title=f"{cell.network}, batch {cell.batch}, {precision}: {cell.flops / 1e9:.3g} GFLOP a "
        f"step; {cell.peak / 1e12:.3g} TFLOP/s and {bandwidth / 1e12:.3g} TB/s measured: floor "
        f"{least * scale:.3g} {unit}",
        title_justify="left",
    )
    heads = [unit, "fastest", "slowest", "us a step", "best peer / this", "of floor", "GiB"]
    for head in ["contestant", *heads, "note"]:
        made.add_column(head, justify="left" if head in ("contestant", "note") else "right")
    for entry in cell.entries:
        if not entry.samples:
            made.add_row(entry.contestant, "not timed", *[""] * (len(heads) - 1), entry.note)
            continue
        middle = entry.median
        made.add_row(
            entry.contestant,
            *(f"{s * scale:.4g}" for s in (middle, min(entry.samples), max(entry.samples))),
            f"{middle * 1e6:.4g}",
            f"{cell.best_peer / middle:.2f}",
            f"{least / middle:.0%}",
            f"{entry.peak_bytes / 2**30:.2f}" if entry.peak_bytes else "",
            entry.note,
        )
    return made


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line, understood."""
    parser = argparse.ArgumentParser(
        prog="python -m pareo.lab.gpu_speed",
        description="Race one training step on a GPU: the same network in pareo and in its peers.",
        epilog=f"Contestants: {', '.join(CONTESTANTS)}. Dropout is taken out of every network.",
    )
    parser.add_argument("network", nargs="*", help=f"of {', '.join(networks.NETWORKS)}")
    parser.add_argument("--batches", type=numbers, help="sizes, as in 1,32,128 (default: 128)")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--contestants", type=among(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--rounds", type=least_one, default=9, help="samples for each")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of a sample, about")
    parser.add_argument("--size", type=least_one, default=224, help="pixels, for the large ones")
    parser.add_argument("--json", type=Path, help="write samples, versions and machine here")
    parser.add_argument("--operators", action="store_true", help="single operators instead")
    parser.add_argument("--transfers", action="store_true", help="the cost of moving instead")
    found = parser.parse_args(words)
    found.network = found.network or ["papers-cnn", "mlp-small", "mlp-medium", "mlp-big"]
    for name in found.network:
        if name not in networks.NETWORKS:
            parser.error(f"network {name!r} is none of {', '.join(networks.NETWORKS)}")
    return found


def race_all(found: argparse.Namespace, console: Console) -> int:
    """Every network at every batch size; 1 where a contestant failed, 0 otherwise."""
    contestants = {
        name: CONTESTANTS[name].in_precision(found.precision) for name in found.contestants
    }
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(found).items()}
    cells: list[Cell] = []
    written = True
    card = limits(Device("cuda", precision=found.precision))
    bandwidth = card.bandwidth.value
    with train_speed.bars() as progress:
        for name in found.network:
            for batch in found.batches or [128]:
                rate = LARGE_RATE if name in LARGE else train_speed.RATE
                network = network_of(name, found.size)
                task = Task(network, batch, cores(), rate)
                cells.append(
                    train_speed.race(
                        task, contestants, found.rounds, found.seconds, progress,
                        found.precision, lambda task: card.peak.value, together=True,
                    )
                )  # fmt: skip
                console.print(table(cells[-1], found.precision, task.least_bytes(), bandwidth))
                if found.json:  # after every cell, so that a run cut short leaves what it has
                    kept = train_speed.record(cells, settings, "gpu_speed", found.precision)
                    written = write_or_say(found.json, json.dumps(kept, indent=1))
    return int(not written or any(entry.failed for cell in cells for entry in cell.entries))


def main(words: list[str] | None = None) -> int:
    """Race, or show what was asked for instead."""
    found = arguments(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file has no edge
    if found.operators:
        console.print(gpu_operators.elementwise_table())
        console.print(gpu_operators.product_table())
        return 0
    if found.transfers:
        console.print(gpu_transfers.table())
        return 0
    return race_all(found, console)


if __name__ == "__main__":
    sys.exit(main())
