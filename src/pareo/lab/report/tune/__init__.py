"""The report of a search: the best trial, all others, and which hyper-parameters mattered."""

from html import escape

from pareo.lab.formatting import counted
from pareo.lab.report.charts import figure
from pareo.lab.report.page import head, page
from pareo.lab.report.tables import machine, table
from pareo.lab.report.tune.figures import figures
from pareo.lab.tune.result import TuneResult
from pareo.lab.tune.summary import headline, shown

CAPTIONS = {
    "history": "Accuracy on the validation images by trial, and the best so far.",
    "parallel": "Each line is a trial, from its hyper-parameters to its accuracy; the thick one is "
    "the best.",
    "importance": "How much each hyper-parameter decided whether a trial was a good one.",
}


def html(result: TuneResult) -> str:
    """The report as one page."""
    title = f"{result.network}: {len(result.trials)} trials"
    drawn = figures(result)
    trained = f"on {result.device}, {result.data}, {counted(result.epochs, 'epoch')} in each trial"
    sections = [
        head(result, title, headline(result), more=trained),
        *(figure(name, CAPTIONS[name]) for name in drawn),
        "<h2>Trials</h2>",
        _trials(result),
        _fixed(result),
        "<h2>Machine</h2>",
        machine(result),
    ]
    return page(title, sections, drawn)


def _trials(result: TuneResult) -> str:
    names = result.parsed_space.searched
    rows = [
        [
            trial.number, trial.state,
            "" if trial.accuracy is None else f"{trial.accuracy:.2%}",
            len(trial.curve), trial.seconds,
            *(trial.parameters.get(name) for name in names), trial.error,
        ]
        for trial in sorted(result.trials, key=lambda trial: -(trial.accuracy or 0.0))
    ]  # fmt: skip
    return table(["trial", "state", "accuracy", "epochs", "seconds", *names, "error"], rows)


def _fixed(result: TuneResult) -> str:
    fixed = (f"{name} {shown(value)}" for name, value in result.parsed_space.fixed.items())
    said = ", ".join(fixed)
    return f"<p>Fixed: {escape(said)}.</p>" if said else ""
