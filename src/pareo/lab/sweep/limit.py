"""The largest batch that fits: found by bisection, each probe in a process of its own.

On a CPU the process of a probe is ended (`lab.machine.memory`) when it has more than the limit; its
peak, which the system records, is compared as well. On a GPU another process first allocates all
memory but the limit, so every framework meets the same limit.
"""

from collections.abc import Callable

from pareo.lab.contestants import Contestant
from pareo.lab.experiment.answers import fitting
from pareo.lab.experiment.bounds import Natural
from pareo.lab.experiment.results import plain
from pareo.lab.experiment.worker import Failed, Raised, ShortOfMemory, Worker
from pareo.lab.machine import memory
from pareo.lab.sweep.ballast import Ballast
from pareo.lab.sweep.journal import Journal
from pareo.lab.sweep.result import Cell, Limit, Probe
from pareo.lab.sweep.runner import data_bytes, is_pareo, predicted, probing
from pareo.lab.sweep.settings import LARGEST, Settings

SAME = 0.99  # of a limit: a GPU's memory comes in pieces
CAREFUL = 0.85  # of where a line through other cells ends: libraries and code need room, too


def predicting(contestant: Contestant, settings: Settings) -> Callable[..., int]:
    """A function of the batch size: the least bytes of data and program."""

    def answer(batch: int) -> int:
        task = settings.task(batch)
        images = task.count()
        return data_bytes(task, images) + (predicted(contestant, task) or 0)

    return answer


class Limits:
    """Searches the largest batch for one contestant after another."""

    def __init__(
        self,
        settings: Settings,
        probes: list[Probe],
        journal: Journal,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._journal, self._say = settings, journal, say
        self._probes = probes

    def wanted(self) -> bool:
        """Whether it was asked for, under a limit or in all the memory there is."""
        return self._settings.largest or self._settings.memory_limit is not None

    def largest(self, name: str, contestant: Contestant, known: list[Cell]) -> Limit:
        """The largest batch of one contestant, the probes, and the prediction."""
        probes = [probe for probe in self._probes if probe.contestant == name]
        # A search continues under the limit that it had, if there is still as much memory.
        kept = next((one.under for one in probes), None)
        limit = self._settings.memory_limit or kept
        most, note, expected = 0, "", None
        try:
            with Ballast.leaving(limit, contestant.gpu) as ballast:
                most = ballast.left if contestant.gpu else self._allowed(limit)
                if not kept or not SAME <= most / kept <= 1 / SAME:
                    probes = []
                if not most:
                    raise Failed("free memory is unknown on this system: give --memory-limit")
                hint, within = _hint(known, most), self._settings.within
                while (batch := next_batch(probes, most, hint, within)) is not None:
                    self._say(f"{name}: does batch {batch} fit under {most / 1e9:g} GB?")
                    worked = {one.batch for one in probes if one.fits}
                    worked |= {cell.batch for cell in known if cell.seconds_per_batch}
                    smaller = min(worked, default=batch) < batch
                    probe = self._probe(contestant, batch, most, ballast, smaller)
                    probe.contestant, probe.under = name, most
                    probes.append(probe)
                    self._journal.add({"probe": plain(probe)})
                if is_pareo(contestant):
                    self._say(f"{name}: which batch was to be expected?")
                    expected = self._prediction(contestant, probes, most)
        except Failed as failure:  # for another reason than memory
            note = str(failure)
        fit = [probe for probe in probes if probe.fits]
        best = max(fit, key=lambda probe: probe.batch, default=None)
        return Limit(
            contestant=name,
            limit=most,
            largest=None if note else (best.batch if best else 0),
            used=best.used if best else None,
            predicted=expected,
            note=note,
            probes=probes,
        )

    def _allowed(self, limit: int | None) -> int:
        """Bytes that a probe may use on a CPU: the limit asked for, or what is free."""
        if self._settings.memory_limit is not None:
            return self._settings.memory_limit
        free = memory.safe() or 0
        return min(limit or free, free)

    def _probe(
        self, contestant: Contestant, batch: int, most: int, ballast: Ballast, smaller: bool
    ) -> Probe:
        """Whether a batch size fits, and what it used; `smaller` says that a smaller one did fit.

        On a GPU, a contestant that worked and fails on more images has met a limit, whatever it
        calls it: when memory is short not even code finds room, and libraries report that a launch
        failed.
        """
        task = self._settings.task(batch)
        watched = None if contestant.gpu else most
        probe = Probe(batch=batch, fits=False)
        with (
            Worker(probing, contestant, task, threads=task.threads, memory=watched) as worker,
            ballast.counting() as taken,
        ):
            try:
                answer = worker.ask(patience=self._settings.patience)
                sizes = fitting(answer, dict[str, Natural | None], "its memory")
                probe.used, probe.before = sizes["used"], sizes["before"]
                if contestant.gpu:
                    own, kept, probe.used = probe.used, probe.before, taken()
                    known = own is not None and kept is not None
                    # Beside its arrays there are code and what the driver keeps.
                    probe.before = probe.used - own + kept if known else None
                probe.fits = contestant.gpu or probe.used <= most
            except ShortOfMemory as failure:
                probe.note = str(failure)
            except Raised as failure:  # whatever it reports where there is no room for code
                if not (contestant.gpu and smaller):
                    raise
                probe.note = str(failure)
        return probe

    def _prediction(self, contestant: Contestant, probes: list[Probe], most: int) -> int | None:
        """The largest batch whose program, data and process fit; None where no probe did.

        A program uses more memory where there is plenty, so its least counts, and on a GPU it is
        predicted under the same limit. The process is that of the largest batch that did fit.
        """
        best = max((p for p in probes if p.fits), key=lambda p: p.batch, default=None)
        if best is None or best.before is None:
            return None
        missed = sorted(p.batch for p in probes if not p.fits)
        likely = [best.batch, *missed[:1]]
        found: list[Probe] = []
        within = self._settings.within
        while batch := likely.pop(0) if likely else next_batch(found, most, 1, within):
            try:
                with Worker(predicting, contestant, self._settings) as worker:
                    used = worker.ask(batch) + best.before
                found.append(Probe(batch=batch, fits=used <= most, used=used))
            except ShortOfMemory:  # for timing one convolution alone
                found.append(Probe(batch=batch, fits=False))
            except Failed:
                return None
        return max((one.batch for one in found if one.fits), default=0)


def next_batch(probes: list[Probe], most: int, hint: int, within: float = 0.0) -> int | None:
    """The batch size to try next; None when the largest that fits is known within a share.

    Memory grows nearly in proportion to the batch, so a line through the known sizes says where to
    look. Where it has misled, or points to a size that did not fit, the middle is taken.

    >>> next_batch([Probe(batch=8, fits=True, used=40)], most=100, hint=1)
    20
    >>> next_batch([Probe(batch=80, fits=True), Probe(batch=84, fits=False)], 1, 1, within=0.05)
    """
    fit = {p.batch: p.used for p in probes if p.fits}
    low = max(fit, default=0)
    high = min((p.batch for p in probes if not p.fits), default=LARGEST + 1)
    step = max(1, int(within * low))
    if high - low <= (step if high <= LARGEST else 1):
        return None
    if not probes:
        return max(1, hint)
    if not fit:
        return high // 2
    straight = _on_line(fit, most)
    missed = sum(1 for probe in probes if not probe.fits)
    if straight is None or missed > 1 or straight >= high:
        straight = 2 * low if high > LARGEST else (low + high) // 2
    return min(max(straight, low + step), high - 1, 8 * low)


def _on_line(fit: dict[int, int | None], most: int) -> int | None:
    """The batch size at which a line through the two largest that fit meets the limit.

    Through one and zero, if there is only one: a smaller batch than what fits.
    """
    known = sorted((batch, used) for batch, used in fit.items() if used is not None)[-2:]
    if not known:
        return None
    (a, at_a), (b, at_b) = known if len(known) > 1 else [(0, 0), *known]
    slope = (at_b - at_a) / (b - a)
    return int(b + (most - at_b) / slope) if slope > 0 else None


def _hint(known: list[Cell], most: int) -> int:
    """Where a search begins: the largest batch that was timed, or a larger one that should fit."""
    timed = {cell.batch: cell.memory.used for cell in known if cell.seconds_per_batch}
    largest = max(timed, default=1)
    likely = int(CAREFUL * (_on_line(timed, most) or 0))
    return min(max(largest, likely), 8 * largest, LARGEST)
