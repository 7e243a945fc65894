"""The command line: one module for each command."""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from pareo import __version__
from pareo.cli.options import Command, plain_flags
from pareo.errors import PareoError

COMMANDS = (
    "race", "arena", "sweep", "parallel", "kernels", "train", "tune", "predict", "ops", "ceilings",
    "networks", "contestants", "devices", "doctor", "history", "compare", "report", "export",
    "papers", "paper",
)  # fmt: skip


class Imported(Mapping[str, Any]):
    """The commands by name, each of which is imported when it is asked for: most are not."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """A group of commands that are not imported yet."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Imported()  # type: ignore[assignment]  # nothing is ever added to it

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; the help shows no type beside those that are flags."""
        return plain_flags(super().get_params(ctx))


@cache
def _command(name: str) -> Any:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    function = getattr(import_module(f"pareo.cli.{name}"), name)
    alone.command(cls=Command)(_interruptible(function))
    found = typer.main.get_command(alone)
    found.name = name
    return found


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"pareo {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Train neural networks on every device, and measure them beside other frameworks.

    Exit status: 0, all is well; 1, a result failed; 2, the command was wrong; 130, Ctrl-C.
    """


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which ends with one sentence on Ctrl-C where it does not handle it itself."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            raise typer.Exit(130) from None

    return run


def main() -> None:
    """Run the command line."""
    run(lambda: app(prog_name="pareo"))


def run(command: Callable[[], Any]) -> None:
    """Run a command; an error of pareo becomes one sentence and its exit status."""
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except PareoError as error:
        from pareo.cli.live import complain  # which imports more than --help needs

        complain(str(error))
        sys.exit(error.exit_status)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        print(f"pareo: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
