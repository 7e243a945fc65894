"""Reports: one HTML file for each result, which needs no network."""

from importlib import import_module
from pathlib import Path

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.results import Result

__all__ = ["fragment", "html", "write"]

# The module that draws each kind of result, by its function `html`.
PAGES = {
    "race": "pareo.lab.report.race",
    "kernels": "pareo.lab.report.kernels",
    "sweep": "pareo.lab.report.sweep",
    "ops": "pareo.lab.report.ops",
    "parallel": "pareo.lab.report.parallel",
    "parallel-papers": "pareo.lab.report.parallel",
    "tune": "pareo.lab.report.tune",
    "arena": "pareo.lab.report.arena",
    "paper": "pareo.lab.report.paper",
}


def html(result: Result) -> str:
    """The report of a result of any kind, as one page."""
    return str(import_module(PAGES[result.kind]).html(result))


def fragment(result: Result) -> str | None:
    """The main finding and the tables of a race or a sweep, for a notebook; else None."""
    sections = getattr(import_module(PAGES[result.kind]), "fragment", None)
    return None if sections is None else "\n".join(part for part in sections(result) if part)


def write(result: Result, path: Path) -> None:
    """Write the report of a result to a file."""
    write_whole(path, html(result))
