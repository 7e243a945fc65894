"""`pareo papers`: the five papers, what each asked and what it found."""

from pareo.cli import live
from pareo.cli.tables import papers as papers_table
from pareo.lab.papers.published import NAMES, paper


def papers() -> None:
    """List the five papers that `pareo paper NAME` repeats: title, authors, question, finding."""
    console = live.console(80)
    console.print(papers_table.everyone({name: paper(name) for name in NAMES}))
    console.print("[dim]pareo paper NAME --quick repeats one here.[/]")
