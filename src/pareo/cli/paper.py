"""`pareo paper`: repeat a paper's experiment here, every published figure beside its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import finish, not_existing, outputs
from pareo.cli.tables import papers as papers_table
from pareo.device import cores
from pareo.lab.papers.published import NAMES
from pareo.lab.replication.earlier import earlier
from pareo.lab.replication.engine import Replication
from pareo.lab.replication.plans import plan_of


def paper(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller sizes: at most five minutes on two cores.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Go on from an interrupted result of this paper."),
    ] = None,
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Repeat a paper's experiment here, and show every published figure beside the one measured.

    Without --quick the sizes are the paper's own, which may take hours. A part that this machine
    cannot run says so, and shows the paper's figure. --resume measures only what an earlier result
    lacks; --json may name the same file. The exit status is 1 if a part was refused or failed, 2 if
    the command was wrong.
    """
    plan = plan_of(name, quick)
    options.check_writable(json_file, html)
    before = earlier(resume, name, quick) if resume else None
    live.say_if_busy(cores())
    under_way = Replication(plan, quick, _progress(), before)
    result = under_way.run()
    if under_way.interrupted:
        continued = resume is not None and json_file == resume  # all that it had is still there
        kept, html = not_existing(json_file, html)
        json_file = json_file if continued else kept
    wanted = outputs(result, json_file, html, save and not under_way.interrupted)

    def show() -> None:
        console = live.console(100)
        for part in papers_table.report(result):
            console.print(part, highlight=False, soft_wrap=False)

    written = finish(show, wanted)
    if under_way.interrupted:
        print("Interrupted: lines that were not measured say so.")
        if json_file is not None:
            print(f"To go on, give --resume {json_file}")
        raise typer.Exit(130)
    wrong = any(line.status in ("refused", "failed") for line in result.lines)
    if wrong or not written:
        raise typer.Exit(1)


def _progress() -> Callable[[Replication], None]:
    """Prints a line for each phase, and what is done in it, also where output is piped."""
    log, phase = live.Log(), ""

    def show(now: Replication) -> None:
        nonlocal phase
        if now.phase != phase:
            phase = now.phase
            log(phase)
        if now.doing:
            log(f"   {now.doing}")

    return show
