"""Several sweeps of one network as one: other batch sizes, other contestants, another day.

The cells of one sweep ran in turns and those of two sweeps did not. So every cell has the number of
its sweep, and contestants are compared within each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pareo.errors import DataError
from pareo.lab.sweep.result import Ceiling, SweepResult


def together(results: Mapping[str, SweepResult]) -> SweepResult:
    """The sweeps as one result, ordered by age; the keys are their sources, for errors."""
    (source, first), *others = results.items()
    for name, other in others:
        for what, expected in _in_common(first).items():
            if (got := _in_common(other)[what]) != expected:
                raise DataError(f"{name}: expected {what} {expected}, as in {source}; got {got}")
    every = sorted(results.values(), key=lambda one: one.when)
    last = every[-1]
    timed = {cell.key for one in every for cell in one.cells if cell.times}
    cells = [
        replace(cell, sweep=number, note=cell.note or f"in the sweep of {one.moment}")
        for number, one in enumerate(every)
        for cell in one.cells
        if cell.times or cell.key not in timed
    ]
    work = {entry.batch: entry for one in every for entry in one.work}
    batches = sorted(work)
    idle = [cores for one in every if (cores := one.machine.idle_cores) is not None]
    return replace(
        last,
        machine=replace(last.machine, idle_cores=min(idle, default=None)),
        settings=replace(last.settings, batches=tuple(batches)),
        work=[work[batch] for batch in batches],
        ceilings=_highest(entry for one in every for entry in one.ceilings),
        cells=sorted(cells, key=lambda cell: cell.batch),
        limits=[entry for one in every for entry in one.limits],
    )


def _in_common(result: SweepResult) -> dict[str, object]:
    """What must be the same."""
    return {
        "network": result.network,
        "precision": result.precision,
        "data": result.data,
        "pixels": result.settings.size,
        "threads": result.settings.threads,
        "machine": result.machine.name,
    }


def _highest(ceilings: Iterable[Ceiling]) -> list[Ceiling]:
    """The highest rates that were measured in each place."""
    found: dict[str, Ceiling] = {}
    for one in ceilings:
        best = found.get(one.place, one)
        found[one.place] = Ceiling(
            place=one.place,
            peak_flops=max(best.peak_flops or 0.0, one.peak_flops or 0.0) or None,
            bandwidth=max(best.bandwidth or 0.0, one.bandwidth or 0.0) or None,
        )
    return list(found.values())
