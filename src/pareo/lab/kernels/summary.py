"""What the times of `pareo kernels` say: shares, totals, and the third paper's finding today."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pareo.lab.formatting import digits, few_digits, seconds
from pareo.lab.kernels.events import MATRIX, KernelTime, Kind, by_kind
from pareo.lab.kernels.result import KernelsResult, Look
from pareo.lab.papers import trindade_lima

# Table 1 of Trindade and Lima, added up: calls of SGEMM in Caffe; plain and batched in TensorFlow.
PAPER = tuple(calls for _, calls in trindade_lima.totals().values())


@dataclass(frozen=True)
class Section:
    """One profile of one contestant, beside its step as in a race.

    raced: seconds of a step in the fastest turn.
    peak: FLOP/s measured where it computes; None if unknown.
    """

    contestant: str
    raced: float
    peak: float | None
    profile: Look

    @property
    def step(self) -> float:
        """Seconds that shares are of: of the step as raced, or of the one that ran instead."""
        return self.profile.seconds if self.profile.mode else self.raced

    @property
    def kernels(self) -> list[KernelTime]:
        """All rows but the last, which is the rest of the step."""
        return self.profile.rows[:-1]

    @property
    def rest(self) -> KernelTime:
        """The time between kernels."""
        return self.profile.rows[-1]

    @property
    def in_kernels(self) -> float:
        """The share of the step that the kernels account for."""
        return sum(row.seconds for row in self.kernels) / self.step

    @property
    def accounted(self) -> float:
        """The same with the time between kernels."""
        return sum(row.seconds for row in self.profile.rows) / self.step

    @property
    def one_piece(self) -> bool:
        """Whether one kernel is the whole step, of which no parts are known."""
        return len(self.kernels) == 1

    @property
    def totals(self) -> dict[Kind, KernelTime]:
        """Sums by kind."""
        return by_kind(self.profile.rows)

    @property
    def matrix(self) -> KernelTime:
        """Products and convolutions, added up."""
        found = KernelTime("products and convolutions", "other", "")
        for kind, total in self.totals.items():
            if kind in MATRIX:
                found.add(total)
        return found

    @property
    def title(self) -> str:
        """The contestant, and how it ran."""
        mode = self.profile.mode
        return f"{self.contestant}, {mode}" if mode else self.contestant


def sections(result: KernelsResult) -> Iterator[Section]:
    """Every profile of a result, in the order of its rows."""
    for row in result.rows:
        if row.samples:
            # The fastest turn beside the fastest profile: a disturbance of one is not in the other.
            step = min(row.samples) * result.batch / result.images
            for profile in row.profiles:
                yield Section(row.contestant, step, row.floor.peak_flops, profile)


HEADS = ("calls", "ms a step", "of the step", "GFLOP/s", "of peak")


def figures(row: KernelTime, section: Section) -> list[str]:
    """A row's cells under HEADS; empty where something is not known."""
    speed = row.rate
    return [
        digits(row.calls) if row.calls else "",
        digits(row.seconds * 1e3),
        f"{row.seconds / section.step:.1%}",
        digits(speed / 1e9) if speed else "",
        f"{speed / section.peak:.0%}" if speed and section.peak else "",
    ]


def total_rows(result: KernelsResult, section: Section) -> list[list[str]]:
    """The sums of each kind, a name and its cells; the last is of all products and convolutions.

    There the FLOPs are those of the program, because all contestants compute the same. A kind has
    FLOP/s where those of all its kernels are known.
    """
    found = [
        [
            kind,
            *figures(total if _all_known(section, kind) else replace(total, flops=None), section),
        ]
        for kind, total in section.totals.items()
    ]
    matrix = section.matrix
    if matrix.calls:
        matrix.flops = float(result.matrix_flops)
        found.append([matrix.name, *figures(matrix, section)])
    return found


def _all_known(section: Section, kind: Kind) -> bool:
    """Whether all FLOPs of a kind are known: those of products and convolutions by each of them."""
    own = [row for row in section.profile.rows if row.kind == kind and row.calls]
    return kind not in MATRIX or all(row.flops is not None for row in own)


def accounts(section: Section, result: KernelsResult) -> str:
    """How much of the step and of its FLOPs a profile accounts for, in one sentence."""
    said = f"{section.title}: kernels are {section.in_kernels:.1%} of the step"
    profile = section.profile
    if profile.mode:
        said += f", which takes {seconds(profile.seconds)}; as raced it is {seconds(section.raced)}"
    else:
        said += (
            f" as raced ({seconds(section.raced)}), with the time between them "
            f"{section.accounted:.1%}"
        )
    counted = sum(row.flops or 0.0 for row in profile.rows)
    if counted == result.flops:
        said += "; FLOPs are those of the program"
    elif section.matrix.flops and result.matrix_flops:
        share = section.matrix.flops / result.matrix_flops
        said += f"; products and convolutions have {share:.1%} of the program's FLOPs in theirs"
    else:
        said += "; FLOPs of single kernels are not known"
    return f"{said}. Measured by {profile.instrument}{'; ' + profile.note if profile.note else ''}."


NAMES = {"gemm": "matrix products", "batched gemm": "batched matrix products",
         "convolution": "convolutions", "elementwise": "elementwise kernels",
         "reduction": "reductions", "copy": "copies", "other": "other kernels"}  # fmt: skip
LEAST = 0.05  # share of a step that is worth a word


def where(section: Section) -> str:
    """Where the time of a step goes: the kinds of kernels that take most of it, in a sentence."""
    taken = f"{section.title}: {seconds(section.step)} a step"
    if section.one_piece:
        return f"{taken}, all of it in one kernel."
    total = sum(row.seconds for row in section.profile.rows) or 1.0
    spent = {"between kernels": section.rest.seconds / total}
    for row in section.kernels:
        name = NAMES[row.kind]
        spent[name] = spent.get(name, 0.0) + row.seconds / total
    most = sorted(spent.items(), key=lambda pair: -pair[1])
    shares = [f"{share:.0%} {name}" for name, share in most if share >= LEAST]
    return f"{taken}, of which {_listed(shares)}." if shares else f"{taken}."


def by_weight(found: list[Section]) -> list[Section]:
    """The profiles of the fastest contestant first, and of its own one with several kernels."""
    raced = {one.contestant: one.raced for one in found}
    return sorted(found, key=lambda one: (raced[one.contestant], one.contestant, one.one_piece))


def _listed(parts: list[str]) -> str:
    """Parts of a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def finding(result: KernelsResult) -> list[str]:
    """The third paper's finding, many small SGEMMs against few batched ones, as it is today."""
    caffe, plain, batched = PAPER
    layers, batch = result.matrix_instructions, result.batch
    said = [
        _verdict([one for one in sections(result) if not one.profile.mode], layers, batch),
        f"The paper counted {caffe:,} calls of SGEMM in Caffe, which multiplied image by image, "
        f"against {plain} and {batched} batched ones in TensorFlow.",
    ]
    for section in sections(result):
        totals, matrix = section.totals, section.matrix
        if not matrix.calls:
            said.append(f"{section.title}: no calls at all, the step is one piece.")
            continue
        counts = [
            f"{digits(totals[kind].calls)} {word}"
            for kind, word in zip(
                MATRIX, ("products", "batched products", "convolutions"), strict=True
            )
            if kind in totals and totals[kind].calls
        ]
        each = seconds(matrix.seconds / matrix.calls)
        said.append(
            f"{section.title}: {', '.join(counts)} a step, {_times(matrix.calls / layers)} as the "
            f"program has, {each} each and {matrix.seconds / section.step:.0%} of the step."
        )
    return said


def _verdict(raced: list[Section], layers: int, batch: int) -> str:
    """Whether a contestant multiplies image by image, as half of that many calls would show."""
    calls = {one.contestant: one.matrix.calls for one in raced if one.matrix.calls}
    whole = (
        f"This step has {layers} products and convolutions; one image at a time they would be "
        f"{layers * batch:,} calls"
    )
    if not calls:
        return f"{whole}. No contestant makes calls here: a step is one piece."
    least, most = min(calls.values()), max(calls.values())
    counts = digits(least) if least == most else f"{digits(least)} to {digits(most)}"
    if batch == 1:
        return f"This step has {layers} products and convolutions, of one image; {counts} calls."
    single = [name for name, count in calls.items() if count > layers * batch / 2]
    if single:
        return f"{whole}. {', '.join(single)} still goes image by image: {counts} calls."
    return f"{whole}. No contestant goes image by image any more: {counts} calls."


def _times(ratio: float) -> str:
    """How many times as many.

    >>> _times(1.0), _times(3.21)
    ('as many', '3.2 times as many')
    """
    return "as many" if 0.995 < ratio < 1.005 else f"{few_digits(ratio)} times as many"
