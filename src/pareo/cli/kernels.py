"""`pareo kernels`: the kernels of a training step and their times, in every framework."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import end, finish, not_existing, outputs, say_notes
from pareo.cli.tables import kernels as kernels_table
from pareo.device import PRECISIONS, cores
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment.tasks import check_pixels, task_for
from pareo.lab.kernels import chrome_trace
from pareo.lab.kernels.study import TURNS, Study, usual

QUICK = 2  # turns


def kernels(
    network: options.AnyNetwork = "papers-cnn",
    batch: options.Batch = 128,
    contestants: Annotated[
        str | None, options.contestants("pareo-compiled,torch", "pareo, torch, jax")
    ] = None,
    precision: options.Precision = "float32",
    inputs: options.Input = None,
    pixels: options.Pixels = None,
    rows: Annotated[
        int, typer.Option(min=0, help="Kernels to show in each table; 0 shows all.")
    ] = 12,
    threads: options.Threads = None,
    together: options.Together = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a Chrome trace to this file; ui.perfetto.dev opens it."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two turns of each contestant instead of six.")
    ] = False,
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Show the kernels of a training step and their times, one table for each framework.

    Contestants are checked and timed as in a race. The exit status is 1 if a contestant was refused
    or failed, or if none could run.
    """
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_writable(trace, json_file, html)
    check_pixels(pixels, network)
    task = task_for(network, batch, threads or cores(), pixels, shape=options.shape(inputs))
    say_notes(network, task.notes)
    named = chosen(options.named(contestants) or usual())
    study = Study(
        task,
        named,
        precision,
        together=together,
        turns=QUICK if quick else TURNS,
        say=live.activity(),
    )
    live.say_if_busy(task.threads)
    result = study.run()
    if study.interrupted:
        trace, json_file, html = not_existing(trace, json_file, html)
    wanted = outputs(result, json_file, html, save and not study.interrupted)
    if trace is not None:
        wanted.insert(0, partial(_traced, study, trace))

    def show() -> None:
        console = live.console(160)
        for part in kernels_table.everything(result, rows):
            console.print(
                part, highlight=False, soft_wrap=isinstance(part, str) and not console.is_terminal
            )

    written = finish(show, wanted)
    if study.interrupted:
        print("Interrupted: contestants that were not measured are marked.")
        raise typer.Exit(130)
    end(result.rows, written)


def _traced(study: Study, file: Path) -> str:
    chrome_trace.write(study.profiles, file)
    return f"trace       {file.absolute()}"
