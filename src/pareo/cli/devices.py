"""`pareo devices`: the devices that pareo can use, and this machine."""

import json

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo import machine
from pareo.backends import blas
from pareo.cli import options
from pareo.device import get_mode, names, why_unavailable

WHAT = {
    "sequential": "plain Python loops: the specification",
    "vectorized": "NumPy and its BLAS",
    "compiled": "Numba loops and BLAS, over pareo's own threads",
    "cuda": "hand-written CUDA on an NVIDIA GPU",
}


def devices(
    as_json: options.PrintJson = False,
) -> None:
    """List the devices, with the reason where one is not available, and describe this machine."""
    reasons = {name: why_unavailable(name) for name in names()}
    found = {**machine.describe(), "blas": blas.describe()}
    if as_json:
        print(json.dumps({"machine": found, "devices": reasons}, indent=2))
        return
    console = Console()
    console.print(_devices(reasons))
    console.print(_machine(found))


def _devices(reasons: dict[str, str | None]) -> Table:
    table = Table("device", "available", "what it is", title="Devices", title_justify="left")
    for name, reason in reasons.items():
        state = "[green]yes[/]" if reason is None else "[red]no[/]"
        shown = WHAT.get(name, "") if reason is None else reason
        table.add_row(f"{name} (default)" if name == get_mode() else name, state, escape(shown))
    return table


def _machine(found: dict[str, object]) -> Table:
    table = Table(title="Machine", title_justify="left", show_header=False)
    table.add_row("processor", escape(str(found["processor"])))
    table.add_row("cores", str(found["cores"]))
    size = machine.memory()
    table.add_row("memory", f"{size / 2**30:.1f} GiB" if size else "unknown")
    library = blas.describe()
    table.add_row("BLAS", f"{library['name']} {library['version']}, {library['threads']} threads")
    table.add_row("Python", str(found["python"]))
    for number, gpu in enumerate(machine.gpus()):
        table.add_row(f"cuda:{number}", escape(_gpu(gpu)))
    for name, version in machine.libraries().items():
        table.add_row(name, version or "[dim]not installed[/]")
    return table


def _gpu(gpu: machine.Gpu) -> str:
    """A GPU in one line.

    >>> _gpu(machine.Gpu("NVIDIA H200", "580.159.04", 143771 << 20, 140 << 30, 345, 1980, 3201))
    'NVIDIA H200, driver 580.159.04, 140.0 of 140.4 GiB free, 345 of 1980 MHz, memory 3201 MHz'
    """
    return (
        f"{gpu.name}, driver {gpu.driver}, {gpu.free / 2**30:.1f} of "
        f"{gpu.memory / 2**30:.1f} GiB free, {gpu.clock} of {gpu.highest_clock} MHz, "
        f"memory {gpu.memory_clock} MHz"
    )
