"""Steps that belong together: those of all contestants, if the machine or the driver changed."""

from collections import defaultdict
from dataclasses import dataclass

from pareo.lab.history.lines import Series


@dataclass(frozen=True)
class Group:
    """Steps of contestants that changed together, because the machine or the driver did."""

    title: str
    moment: str
    result: int
    whose: str
    because: str
    changes: dict[str, float]

    @property
    def change(self) -> str:
        """The change, or from the least to the most.

        >>> Group("", "", 1, "machine", "", {"a": 0.1, "b": 0.152}).change
        '+10.0% to +15.2%'
        """
        ends = [f"{end:+.1%}" for end in (min(self.changes.values()), max(self.changes.values()))]
        return " to ".join(dict.fromkeys(ends))


def groups(together: list[Series]) -> list[Group]:
    """The steps of lines that were trained alike, the latest first."""
    found: dict[tuple[str, ...], Group] = {}
    for one in together:
        for step in one.steps:
            name, point = one.line.contestant, step.point
            shared = step.whose in ("machine", "driver")
            key = (point.moment, step.whose, "" if shared else name)
            made = Group(one.line.title, point.moment, point.number, step.whose, step.because, {})
            found.setdefault(key, made).changes[name] = step.step.change
    return sorted(found.values(), key=lambda group: group.moment, reverse=True)


def every_group(lines: list[Series]) -> list[Group]:
    """The steps of all lines, the latest first."""
    by_work: dict[object, list[Series]] = defaultdict(list)
    for one in lines:
        by_work[one.line.work].append(one)
    found = [group for together in by_work.values() for group in groups(together)]
    return sorted(found, key=lambda group: group.moment, reverse=True)
