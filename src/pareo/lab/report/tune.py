"""The report of a search: the best trial, the way to it, and which hyper-parameters mattered."""

from html import escape
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.report.page import page
from pareo.lab.report.tables import table
from pareo.lab.report.tune_figures import figures, searched, shown, told

CAPTIONS = {
    "history": "Accuracy on the validation images by trial, and the best so far.",
    "parallel": "Each line is a trial, from its hyper-parameters to the accuracy it came to; the "
    "thick one is the best.",
    "importance": "How much each hyper-parameter decided whether a trial was a good one.",
}


def write(result: dict[str, Any], path: Path) -> None:
    """Write the report of a search to a file."""
    write_whole(path, html(result))


def html(result: dict[str, Any]) -> str:
    """The report as one page."""
    title = f"{result['network']}: {len(result['trials'])} trials"
    drawn = figures(result)
    return page(title, _body(result, title, drawn), drawn)


def _body(result: dict[str, Any], title: str, drawn: dict[str, Any]) -> str:
    trials, names = result["trials"], [n for n, of in result["space"].items() if searched(of)]
    done = sorted(trials, key=lambda trial: -(trial["accuracy"] or 0.0))
    cells = [
        [
            trial["number"], trial["state"],
            "" if trial["accuracy"] is None else f"{trial['accuracy']:.2%}",
            len(trial["curve"]), trial["seconds"],
            *(trial["parameters"].get(name) for name in names), trial["error"],
        ]
        for trial in done
    ]  # fmt: skip
    heads = ["trial", "state", "accuracy", "epochs", "seconds", *names, "error"]
    fixed = ", ".join(
        f"{name} {shown(of)}" for name, of in result["space"].items() if not searched(of)
    )
    place = [[name, result["machine"].get(name)] for name in ("processor", "cores", "python")]
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_circumstances(result))}</p>",
        f'<p class="headline">{escape(_headline(result))}</p>',
        *(
            f"<figure><figcaption>{escape(CAPTIONS[name])}</figcaption>"
            f'<div id="{name}"></div></figure>'
            for name in drawn
        ),
        "<h2>Trials</h2>",
        table(heads, cells),
        f"<p>Fixed: {escape(fixed)}.</p>" if fixed else "",
        "<h2>Machine</h2>",
        table(["what", "value"], [*place, *result["versions"].items()]),
    ]
    return "\n".join(section for section in sections if section)


def _headline(result: dict[str, Any]) -> str:
    """The best trial in one sentence."""
    best = next((t for t in result["trials"] if t["number"] == result["best"]), None)
    if best is None:
        return "No trial came to its end; the errors below say why."
    test = result["test_accuracy"]
    unseen = "" if test is None else f", {test:.2%} on the test images, which no trial has seen"
    return f"The best is {told(best)} on the validation images{unseen}."


def _circumstances(result: dict[str, Any]) -> str:
    place = result["machine"].get("processor", "an unknown processor")
    return (
        f"{result['when'][:16].replace('T', ' ')}, {place}, on {result['device']}, "
        f"{result['data']}, {result['epochs']} epochs in each trial."
    )
