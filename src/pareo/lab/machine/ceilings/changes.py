"""What changed on a machine since its ceilings were measured last."""

import json
from collections.abc import Callable, Iterator
from functools import partial

from pareo.cache import cache_folder
from pareo.errors import DataError
from pareo.lab.experiment import results
from pareo.lab.machine.ceilings.model import Ceilings, Key, Limit

STREAMS = ("copy", "triad", "read")


def earlier(than: Ceilings) -> Ceilings | None:
    """The latest ceilings of this machine before these, with whatever versions of libraries."""
    found = [one for one in _kept() if _same_machine(one.key, than.key) and one.when < than.when]
    return max(found, key=lambda one: one.when, default=None)


def _same_machine(one: Key, other: Key) -> bool:
    def facts(key: Key) -> tuple[object, ...]:
        names = [name for name, _ in key.cards]
        return key.probes, key.device, key.processor, key.cores, key.threads, names

    return facts(one) == facts(other)


def _kept() -> Iterator[Ceilings]:
    try:
        files = sorted(cache_folder().joinpath("ceilings").glob("*.json"))
    except OSError:
        return
    for file in files:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            yield results.convert(data, Ceilings, "ceilings")
        except (DataError, OSError, ValueError, RecursionError):
            continue


def changes(before: Ceilings, after: Ceilings) -> list[str]:
    """Every limit that changed by more than its interval, in a sentence.

    Two limits differ if their intervals do not overlap.
    """
    lines = []
    for name, limit, unit in _limits(after):
        old = _found(before, name)
        if old is None or old.agrees(limit):
            continue
        change = limit.value / old.value - 1
        lines.append(
            f"{name} changed by {change * 100:+.2g} %: from {_shown(old, unit)} to "
            f"{_shown(limit, unit)}."
        )
    if not lines:
        return []
    versions = {
        library: (before.key.libraries.get(library), version)
        for library, version in after.key.libraries.items()
        if before.key.libraries.get(library) != version
    }
    drivers = [one for _, one in before.key.cards], [one for _, one in after.key.cards]
    head = f"Since {before.when[:16].replace('T', ' ')}:"
    told = [f"{name} {old or 'none'} to {new or 'none'}" for name, (old, new) in versions.items()]
    if drivers[0] != drivers[1]:
        first, second = (", ".join(one) or "none" for one in drivers)
        told.append(f"driver {first} to {second}")
    if before.busy or after.busy:
        told.append("other programs were running")
    return [f"{head} {'; '.join(told)}." if told else head, *lines]


def _limits(found: Ceilings) -> Iterator[tuple[str, Limit, str]]:
    """Every limit with its name and unit."""
    for count in sorted({1, found.threads}):
        threads = f"{count} thread{'' if count == 1 else 's'}"
        for dtype in dict.fromkeys(p.name for p in found.samples if p.kind == "product"):
            peak = partial(found.peak, dtype, count)
            yield from _one(peak, f"{dtype} product, {threads}", "GFLOP/s")
        for level, _, size in found.hierarchy(count):
            for name in STREAMS:
                stream = partial(found.stream, name, size, count)
                yield from _one(stream, f"{name} in {level}, {threads}", "GB/s")
    for name, limit in found.overheads():
        yield f"overhead of {name}", limit, "us"


def _one(measured: Callable[[], Limit], name: str, unit: str) -> Iterator[tuple[str, Limit, str]]:
    try:
        yield name, measured(), unit
    except LookupError:  # not every library does everything with every number of threads
        return


def _found(ceilings: Ceilings, name: str) -> Limit | None:
    return next((limit for one, limit, _ in _limits(ceilings) if one == name), None)


def _shown(limit: Limit, unit: str) -> str:
    """A limit with its interval.

    >>> _shown(Limit(73.8e9, 73.4e9, 74.2e9, ""), "GFLOP/s")
    '73.8 (73.4 to 74.2) GFLOP/s'
    """
    scale = 1e6 if unit == "us" else 1e-9
    value, low, high = (f"{one * scale:.4g}" for one in (limit.value, limit.low, limit.high))
    return f"{value} ({low} to {high}) {unit}"
