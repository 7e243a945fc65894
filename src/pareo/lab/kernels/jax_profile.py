"""Profiles of JAX on a CPU: events of XLA's profiler, with shapes from the compiled text."""

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pareo.lab.contestants import Trainer
from pareo.lab.kernels import hlo
from pareo.lab.kernels.events import Event, Profile

ASYNC = 2e-5  # seconds after its call's return from which an instruction ran on by itself


def profiles(trainer: Trainer, order: Any) -> list[Profile]:
    """The steps under XLA's profiler."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            trainer.run(order)  # it starts up, and a new number of steps may be compiled again
        with jax.profiler.trace(folder, profiler_options=options):
            start = time.perf_counter()
            trainer.run(order)
            seconds = (time.perf_counter() - start) / len(order)
        written = max(Path(folder).rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
        seen = jax.profiler.ProfileData.from_file(str(written))
        events = list(_events(seen, compiled()))
    note = "" if events else "this JAX's profiler tells nothing of instructions on a CPU"
    return [Profile("XLA's profiler", len(order), seconds, events, note=note)]


def compiled() -> dict[str, hlo.Module]:
    """The modules that JAX has compiled for steps, by name, from its live executables."""
    from jax.extend import backend

    modules: dict[str, hlo.Module] = {}
    for executable in backend.get_backend().live_executables():
        for part in executable.hlo_modules():
            if part.name.startswith("jit_step"):
                module, read = (
                    modules.setdefault(part.name, hlo.Module()),
                    hlo.parsed(part.to_string()),
                )
                module.ops |= read.ops
                module.computations |= read.computations
    return modules


def merged(modules: dict[str, hlo.Module]) -> hlo.Module:
    """All modules as one, for records that do not name the module of an instruction."""
    module = hlo.Module()
    for one in modules.values():
        module.ops |= one.ops
        module.computations |= one.computations
    return module


def _events(seen: Any, modules: dict[str, hlo.Module]) -> Iterator[Event]:
    """An event for each instruction that ran, until its end, on whichever thread that was."""
    ends: dict[Any, float] = {}
    begun = []
    for line in (line for plane in seen.planes for line in plane.lines):
        for event in line.events:
            known = dict(event.stats)
            if "hlo_op" in known:
                begun.append((line.name, event, known))
            elif event.name.startswith("end: "):
                ends[known.get("_c")] = event.end_ns * 1e-9
    for lane, event, known in begun:
        name, module = str(known["hlo_op"]), modules.get(str(known["hlo_module"]), hlo.Module())
        returned = event.end_ns * 1e-9
        end = max(returned, ends.get(known.get("_p"), returned))
        if end - returned > ASYNC:
            lane = f"{lane} {name}"  # beside what its thread did meanwhile
        shape, flops = module.shapes(name), module.flops(name)
        yield Event(
            shown(name, module), module.kind(name), event.start_ns * 1e-9, end, lane, shape, flops
        )


def shown(name: str, module: hlo.Module) -> str:
    """The name of an instruction without its number, with the product inside a fusion.

    >>> shown("add_fusion.12", hlo.Module())
    'add_fusion'
    """
    inside = {op.opcode for op in module.products(name) if op.name != name}
    plain = re.sub(r"[._]\d+$", "", name)
    return f"{plain} ({', '.join(sorted(inside))})" if inside else plain
