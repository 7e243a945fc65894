"""Options that several commands have, and checks of what they were given."""

import math
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from pareo.errors import PareoError

Network = Annotated[str, typer.Argument(help="One of those that `pareo networks` lists.")]
Batch = Annotated[int, typer.Option(min=1, help="Images per step.")]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Train so many.", show_default="until times are known well"),
]
Precision = Annotated[str, typer.Option(help="float32; on a GPU also tf32 or bfloat16.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads for everyone.", show_default="all cores")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write every sample, and where, to this file.")
]
Html = Annotated[Path | None, typer.Option(help="Write the report to this file.")]
Save = Annotated[bool, typer.Option("--save", help="Keep the result for `pareo history`.")]


def named(text: str | None) -> list[str]:
    """The contestants in a list with commas, none where it was not given.

    >>> named("pareo-compiled, torch"), named(None)
    (['pareo-compiled', 'torch'], [])
    >>> named("")
    Traceback (most recent call last):
    pareo.errors.PareoError: --contestants expects names with commas between them; got ''
    """
    if text is None:
        return []
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise PareoError(f"--contestants expects names with commas between them; got {text!r}")
    return names


def check_finite(option: str, value: float | None) -> None:
    """Refuse infinity and what is no number.

    >>> check_finite("--seconds", float("inf"))
    Traceback (most recent call last):
    pareo.errors.PareoError: --seconds expects a finite number; got inf
    """
    if value is not None and not math.isfinite(value):
        raise PareoError(f"{option} expects a finite number; got {value}")


def check_choice(option: str, value: str, known: Collection[str]) -> None:
    """Refuse what is none of the choices.

    >>> check_choice("--precision", "float16", ["float32", "tf32"])
    Traceback (most recent call last):
    pareo.errors.PareoError: --precision expects one of float32, tf32; got 'float16'
    """
    if value not in known:
        raise PareoError(f"{option} expects one of {', '.join(known)}; got {value!r}")


def check_folders(*files: Path | None) -> None:
    """Refuse files that could not be written in the end, before anything is measured.

    >>> check_folders(Path("no/such/folder/race.json"), None)
    Traceback (most recent call last):
    pareo.errors.PareoError: no/such/folder/race.json: its folder is not there
    """
    given = [path for path in files if path is not None]
    for path in given:
        if sum(path.absolute() == other.absolute() for other in given) > 1:
            raise PareoError(f"{path}: expected a file for each of what is written; got one twice")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise PareoError(f"{path}: its folder is not there")
        if path.is_dir():
            raise PareoError(f"{path}: expected a file to write; got a folder")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise PareoError(f"{path}: cannot be written here")
