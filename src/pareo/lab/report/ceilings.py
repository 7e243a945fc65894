"""The report of `pareo ceilings`: a picture of the hierarchy, and bandwidth by size."""

from html import escape
from math import log2
from pathlib import Path

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.statistics import warned
from pareo.lab.formatting import digits, span
from pareo.lab.machine.ceilings import Ceilings, Limit
from pareo.lab.ops.sizes import shown
from pareo.lab.report.charts import Figure, chart, colours, figure, line
from pareo.lab.report.page import items, page
from pareo.lab.report.tables import table

WIDEST, TALL, GAP = 760, 44, 8  # pixels of the picture's boxes
STREAMS = ("copy", "triad", "read")


def write(found: list[Ceilings], path: Path) -> None:
    """Write the report to a file."""
    write_whole(path, html(found))


def html(found: list[Ceilings]) -> str:
    """All devices on one page."""
    drawn: dict[str, Figure] = {}
    parts = ["<h1>What this machine can do at most</h1>"]
    parts += [f'<p class="headline">{escape(headline(one))}</p>' for one in found]
    for number, one in enumerate(found):
        drawn[f"bandwidth{number}"] = bandwidth(one)
        parts.append(section(one, f"bandwidth{number}"))
    return page("Ceilings", parts, drawn)


def headline(found: Ceilings) -> str:
    """The peak, the bandwidth of memory, and where the one ends and the other begins."""
    peak, memory = found.peak("float32").value, found.memory().value
    return (
        f"{found.name}: at most {digits(peak / 1e9)} GFLOP/s in float32 and {digits(memory / 1e9)} "
        f"GB/s from memory. Below {digits(peak / memory)} FLOPs for each byte, bandwidth is the "
        "limit."
    )


def section(found: Ceilings, name: str) -> str:
    """One device: its picture, its figure's place, and its tables."""
    return "\n".join(
        [
            f"<h2>{escape(found.name)}</h2>",
            f"<p>Measured {escape(found.when[:16].replace('T', ' '))}. Data sheet: "
            f"{escape(found.datasheet.source)}.</p>",
            items(warned({}, found.threads, found.idle_cores), "noticed") if found.busy else "",
            picture(found),
            figure(name, "Bytes read and written a second, by the bytes of all arrays together."),
            products(found),
            _overheads(found),
        ]
    )


def picture(found: Ceilings) -> str:
    """Boxes from arithmetic down to memory: the more a level holds, the wider it is."""
    peak = found.peak("float32")
    rows = [("arithmetic", 0, f"{digits(peak.value / 1e9)} GFLOP/s in float32")]
    for name, nbytes, at in found.hierarchy():
        rate = found.stream("copy", at).value
        size = f" of {shown(nbytes)}" if nbytes else ""
        rows.append((name, nbytes, f"{name}{size}: copies {digits(rate / 1e9)} GB/s"))
    sizes = [nbytes for _, nbytes, _ in rows if nbytes]
    low, high = log2(min(sizes, default=1)), log2(max(sizes, default=2))
    boxes = []
    for number, (name, nbytes, text) in enumerate(rows):
        share = (log2(nbytes) - low) / max(high - low, 1) if nbytes else 0.0
        wide = WIDEST * (0.45 + 0.55 * (1.0 if name == "memory" else share))
        left, top = (WIDEST - wide) / 2, number * (TALL + GAP)
        boxes.append(
            f'<rect x="{left:.0f}" y="{top}" width="{wide:.0f}" height="{TALL}" rx="6" '
            'fill="none" stroke="currentColor"/>'
            f'<text x="{WIDEST / 2:.0f}" y="{top + TALL / 2 + 5:.0f}" text-anchor="middle" '
            f'fill="currentColor">{escape(text)}</text>'
        )
    high_in_all = len(rows) * (TALL + GAP)
    return (
        f'<svg viewBox="-1 -1 {WIDEST + 2} {high_in_all}" role="img" '
        f'aria-label="The hierarchy of memory" style="max-width:100%;width:{WIDEST}px">'
        f"{''.join(boxes)}</svg>"
    )


def products(found: Ceilings) -> str:
    """Matrix products: the peak, its interval, what reached it, and the data sheet's."""
    rows = []
    measured = [p for p in found.samples if p.kind == "product"]
    for dtype in dict.fromkeys(p.name for p in measured):
        for count in sorted({p.threads for p in measured if p.name == dtype} & {1, found.threads}):
            peak = found.peak(dtype, count)
            sheet = found.datasheet.flops.get(dtype) if count == found.threads else None
            stated = digits(sheet / 1e9) if sheet else "unknown"
            rows.append([dtype, count, *_rate(peak), peak.how, stated])
    heads = ["product in", "threads", "GFLOP/s", "interval", "reached by", "data sheet"]
    return table(heads, rows)


def _overheads(found: Ceilings) -> str:
    rows = [
        [name, digits(limit.value * 1e6), span(limit.low * 1e6, limit.high * 1e6)]
        for name, limit in found.overheads()
    ]
    return table(["a call that computes next to nothing", "us", "95 % interval"], rows)


def bandwidth(found: Ceilings) -> Figure:
    """Bytes a second of every stream, by size."""
    counts = sorted({1, found.threads})
    names = [(stream, count) for count in counts for stream in STREAMS]
    palette = colours(
        f"{stream}, {count} thread{'' if count == 1 else 's'}" for stream, count in names
    )
    lines = []
    for (stream, count), (label, colour) in zip(names, palette.items(), strict=True):
        sizes = sorted({p.size for p in found.samples if (p.name, p.threads) == (stream, count)})
        rates = [found.stream(stream, size, count).value for size in sizes]
        lines.append(line(label if found.device == "cpu" else stream, colour, sizes, rates))
    return chart(lines, "bytes of all arrays", "bytes a second", marks(found))


def marks(found: Ceilings) -> list[tuple[str, float]]:
    """Where caches end, for all threads together."""
    return [(level.name, float(level.total(found.threads))) for level in found.levels]


def _rate(limit: Limit) -> tuple[str, str]:
    low, best, high = (digits(value / 1e9) for value in (limit.low, limit.value, limit.high))
    return best, f"{low} to {high}"
