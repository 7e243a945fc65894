"""How much memory a process takes for the generated modules of many small networks.

`python -m benchmarks.evicted_modules` trains 68 networks of a convolution and a dense layer for an
epoch each, and prints what the process grew by after the first four. With `--kept 100000` none of
their modules is evicted. Machine code is compiled the first time, and later loaded from disk.
"""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pareo import Device, nn
from pareo.backends.compiled.runtime import generated_module
from pareo.cli import run
from pareo.data import load
from pareo.training import fit

NETWORKS, BEFORE = 68, 4


def resident() -> int:
    """The memory of this process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(
    kept: Annotated[int, typer.Option(min=1, help="Modules.")] = generated_module.KEPT,
) -> None:
    """Print what a process grows by."""
    generated_module.KEPT = kept
    data, before = load("synthetic:2x9x9:3:40"), 0
    for number in range(NETWORKS):
        if number == BEFORE:
            before = resident()
        layers = [nn.Conv(2 + number, 3), nn.ReLU(), nn.Flatten(), nn.Dense(3)]
        network = nn.Sequential(layers, (2, 9, 9), "one")
        fit(network, data, epochs=1, batch_size=8, device=Device("compiled", 1), progress=False)
    modules = sum(name.startswith("pareo_generated") for name in sys.modules)
    grown = (resident() - before) / 1e6
    print(f"{NETWORKS - BEFORE} networks, {modules} modules kept: grown by {grown:.0f} MB")


if __name__ == "__main__":
    run(lambda: typer.run(main))
