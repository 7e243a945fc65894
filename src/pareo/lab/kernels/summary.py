"""What the figures of `pareo kernels` say: shares, totals, and the third paper's finding today."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pareo.lab.formatting import digits, few_digits, seconds
from pareo.lab.kernels.events import MATRIX, Row, by_kind

# Table 1 of Trindade and Lima, added up: calls of SGEMM in Caffe, in TensorFlow, and its batched.
PAPER = (239_799, 183, 219)


@dataclass(frozen=True)
class Section:
    """One profile of one contestant, beside its step as it is raced.

    raced: seconds of a step in the fastest turn.
    peak: FLOP/s measured where it computes; None if unknown.
    """

    contestant: str
    raced: float
    peak: float | None
    seconds: float
    instrument: str
    mode: str
    note: str
    rows: list[Row]

    @property
    def step(self) -> float:
        """Seconds that shares are of: of the step as raced, else of the one that ran instead."""
        return self.seconds if self.mode else self.raced

    @property
    def kernels(self) -> list[Row]:
        """The rows less the last, which is what is left of the step."""
        return self.rows[:-1]

    @property
    def in_kernels(self) -> float:
        """The share of the step that the kernels account for."""
        return sum(row.seconds for row in self.kernels) / self.step

    @property
    def accounted(self) -> float:
        """The same with the time between kernels."""
        return sum(row.seconds for row in self.rows) / self.step

    @property
    def totals(self) -> dict[str, Row]:
        """Sums by kind."""
        return by_kind(self.rows)

    @property
    def matrix(self) -> Row:
        """Products and convolutions, added up."""
        found = Row("products and convolutions", "", "")
        for kind, row in self.totals.items():
            if kind in MATRIX:
                found.calls += row.calls
                found.seconds += row.seconds
                if row.flops is not None:
                    found.flops = (found.flops or 0.0) + row.flops
        return found

    @property
    def title(self) -> str:
        """Whose it is and how it ran."""
        return f"{self.contestant}, {self.mode}" if self.mode else self.contestant


def sections(result: dict[str, Any]) -> Iterator[Section]:
    """Every profile of a result, in the order of its rows."""
    for row in result["rows"]:
        if not row["samples"]:
            continue
        # The fastest turn beside the fastest look: what disturbs one need not disturb the other.
        step = min(row["samples"]) * result["batch"] / result["images"]
        for profile in row["profiles"]:
            yield Section(
                row["contestant"], step, row["floor"].get("peak_flops"), profile["seconds"],
                profile["instrument"], profile["mode"], profile["note"],
                [Row(**kept) for kept in profile["rows"]],
            )  # fmt: skip


HEADS = ("calls", "ms a step", "of the step", "GFLOP/s", "of peak")


def figures(row: Row, section: Section) -> list[str]:
    """A row's cells under HEADS; empty where something is not known."""
    speed = rate(row)
    return [
        digits(row.calls) if row.calls else "",
        digits(row.seconds * 1e3),
        f"{row.seconds / section.step:.1%}",
        digits(speed / 1e9) if speed else "",
        f"{speed / section.peak:.0%}" if speed and section.peak else "",
    ]


def total_rows(result: dict[str, Any], section: Section) -> list[list[str]]:
    """The sums of each kind, a name and its cells; the last is of all products and convolutions.

    Everyone computes the same, so there the program's FLOPs count, whoever's kernels they are. A
    kind has FLOP/s where those of all its kernels are known.
    """
    whole = {kind for kind in section.totals if _all_known(section.rows, kind)}
    found = [
        [kind, *figures(row if kind in whole else replace(row, flops=None), section)]
        for kind, row in section.totals.items()
    ]
    matrix = section.matrix
    if matrix.calls:
        row = replace(matrix, flops=float(matrix_flops(result)))
        found.append([matrix.name, *figures(row, section)])
    return found


def _all_known(table: Iterable[Row], kind: str) -> bool:
    """Whether all FLOPs of a kind are known: those of products and convolutions by each of them."""
    if kind not in MATRIX:
        return True
    return all(row.flops is not None for row in table if row.kind == kind and row.calls)


def matrix_flops(result: dict[str, Any]) -> int:
    """The program's FLOPs in products and convolutions."""
    return sum(count for kind, count in result["flops_by_kind"].items() if kind in MATRIX)


def rate(row: Row) -> float | None:
    """FLOP/s; None where FLOPs are not known.

    >>> rate(Row("dot", "gemm", "", calls=1, seconds=2.0, flops=8.0))
    4.0
    """
    return row.flops / row.seconds if row.flops and row.seconds else None


def accounts(section: Section, result: dict[str, Any]) -> str:
    """How much of the step and of its FLOPs a profile accounts for, in one sentence."""
    said = f"{section.title}: kernels are {section.in_kernels:.1%} of the step"
    if section.mode:
        said += f", which takes {seconds(section.seconds)}; as raced it is {seconds(section.raced)}"
    else:
        said += (
            f" as raced ({seconds(section.raced)}), with the time between them "
            f"{section.accounted:.1%}"
        )
    counted = sum(row.flops or 0.0 for row in section.rows)
    if counted == result["flops"]:
        said += "; FLOPs are those of the program"
    elif section.matrix.flops and (all_of_them := matrix_flops(result)):
        share = section.matrix.flops / all_of_them
        said += f"; products and convolutions have {share:.1%} of the program's FLOPs in theirs"
    else:
        said += "; FLOPs of single kernels are not known"
    return f"{said}. By {section.instrument}{'; ' + section.note if section.note else ''}."


def finding(result: dict[str, Any]) -> list[str]:
    """The third paper's finding, many small SGEMMs against few batched ones, in today's figures."""
    caffe, plain, batched = PAPER
    layers, batch = result["matrix_instructions"], result["batch"]
    told = [
        _verdict([one for one in sections(result) if not one.mode], layers, batch),
        f"The paper counted {caffe:,} calls of SGEMM in Caffe, which multiplied image by image, "
        f"against {plain} and {batched} batched ones in TensorFlow.",
    ]
    for section in sections(result):
        totals, matrix = section.totals, section.matrix
        if not matrix.calls:
            told.append(f"{section.title}: no calls at all, the step is one piece.")
            continue
        counts = [
            f"{digits(totals[kind].calls)} {word}"
            for kind, word in zip(
                MATRIX, ("products", "batched products", "convolutions"), strict=True
            )
            if kind in totals and totals[kind].calls
        ]
        each = seconds(matrix.seconds / matrix.calls)
        told.append(
            f"{section.title}: {', '.join(counts)} a step, {_times(matrix.calls / layers)} as the "
            f"program has, {each} each and {matrix.seconds / section.step:.0%} of the step."
        )
    return told


def _verdict(raced: list[Section], layers: int, batch: int) -> str:
    """Whether anyone still multiplies image by image, as half of that many calls would show."""
    calls = {one.contestant: one.matrix.calls for one in raced if one.matrix.calls}
    whole = (
        f"This step has {layers} products and convolutions; one image at a time they would be "
        f"{layers * batch:,} calls"
    )
    if not calls:
        return f"{whole}. Nobody makes calls here: a step is one piece."
    least, most = min(calls.values()), max(calls.values())
    counts = digits(least) if least == most else f"{digits(least)} to {digits(most)}"
    if batch == 1:
        return f"This step has {layers} products and convolutions, of one image; {counts} calls."
    single = [name for name, count in calls.items() if count > layers * batch / 2]
    if single:
        return f"{whole}. {', '.join(single)} still goes image by image: {counts} calls."
    return f"{whole}. Nobody goes image by image any more: {counts} calls."


def _times(ratio: float) -> str:
    """How many times as many.

    >>> _times(1.0), _times(3.21)
    ('as many', '3.2 times as many')
    """
    return "as many" if 0.995 < ratio < 1.005 else f"{few_digits(ratio)} times as many"
