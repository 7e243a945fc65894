"""`pareo race`: train one network in every contestant, with intervals and the floor."""

from functools import partial
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import end, finish, not_existing, outputs, say_notes
from pareo.cli.tables import race as race_table
from pareo.device import PRECISIONS, cores
from pareo.errors import PareoError
from pareo.lab.contestants.registry import chosen, usual
from pareo.lab.experiment.tasks import task_for
from pareo.lab.race.engine import Race, Rules


def race(
    network: options.AnyNetwork = "papers-cnn",
    batch: options.Batch = 128,
    epochs: options.Epochs = None,
    contestants: Annotated[
        str | None, options.contestants("pareo-compiled,torch-best", "all")
    ] = None,
    precision: options.Precision = "float32",
    data: Annotated[
        str | None, options.data("mnist, or synthetic images for networks of other sizes")
    ] = None,
    inputs: options.Input = None,
    loss: Annotated[
        str,
        typer.Option(
            help="cross-entropy, squared-error, binary-cross-entropy, or your own: FILE.py:OBJECT, "
            "a function of outputs and labels, or a Loss of pareo. The file is executed."
        ),
    ] = "cross-entropy",
    target_accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Train until all reach this test accuracy, such as 0.95."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter turns: about three minutes in all.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="Seconds for rounds, after which none starts. Building is not counted.",
            show_default="600, with --quick 100",
        ),
    ] = None,
    threads: options.Threads = None,
    together: options.Together = False,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with this contestant.", show_default="the fastest peer"),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Race so many times, and show how much sessions differ.")
    ] = 1,
    every: Annotated[
        str | None,
        typer.Option(
            help="Time from one start to the next with --repeat: 30m, 1h.", show_default="no pause"
        ),
    ] = None,
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:  # fmt: skip
    """Train one network on every device and in every framework, and compare with the limit.

    Only contestants whose first steps match float64 are timed. The exit status is 1 if a contestant
    was refused or failed, or if none could run. Ctrl-C shows and writes what there is.
    """
    if repeat > 1:
        from pareo.cli import repeated

        repeated.check(json_file, html)
        pause = repeated.duration(every or "0s")
        again = partial(
            race, network, batch, epochs, contestants, precision, data, inputs, loss,
            target_accuracy, quick, seconds, threads, together, against, save=True,
        )  # fmt: skip
        repeated.repeat(repeat, pause, again)
        return
    if every is not None:
        raise PareoError("--every expects --repeat 2 or more")
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_finite("--seconds", seconds)
    shape = options.shape(inputs)
    task = task_for(network, batch, threads or cores(), source=data, shape=shape, loss=loss)
    say_notes(network, task.notes)
    entered = chosen(options.named(contestants) or usual(task))
    if against is not None:
        options.check_choice("--against", against, entered)
    options.check_writable(json_file, html)
    rules = Rules.asked(quick, epochs, target_accuracy, seconds, together)
    interrupted = False
    with live.display(race_table.running, race_table.line) as watch:
        under_way = Race(task, entered, rules, precision, watch)
        live.say_if_busy(task.threads)
        try:
            result = under_way.run()
        except KeyboardInterrupt:
            result, interrupted = under_way.result(), True
    if interrupted:
        timed = any(row.samples for row in result.rows)
        asked = [file for file in (json_file, html) if file is not None]
        json_file, html = not_existing(json_file, html) if timed else (None, None)

    def show() -> None:
        console = live.console(140)
        console.print(race_table.table(result, against, target_accuracy))
        for line in race_table.lines(result):
            live.print_line(console, line)

    written = finish(show, outputs(result, json_file, html, save and not interrupted))
    if interrupted:
        print("Interrupted: this is what there was by then; `--save` keeps finished races only.")
        if asked and not timed:
            print("No file was written, because no contestant had been timed yet.")
        raise typer.Exit(130)
    end(result.rows, written)
