"""The command line: one module for each command."""

import errno
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from pareo import __version__
from pareo.cli.ceilings import ceilings
from pareo.cli.compare import compare
from pareo.cli.devices import devices
from pareo.cli.history import history
from pareo.cli.kernels import kernels
from pareo.cli.networks import networks
from pareo.cli.ops import ops
from pareo.cli.options import Command
from pareo.cli.parallel import parallel
from pareo.cli.predict import predict
from pareo.cli.race import race
from pareo.cli.report import report
from pareo.cli.sweep import sweep
from pareo.cli.train import train
from pareo.cli.tune import tune
from pareo.errors import PareoError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
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
    """Train neural networks on every device, and measure them beside other frameworks."""


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


for _command in (
    race, sweep, parallel, kernels, train, tune, predict, ops, ceilings, networks, devices, history,
    compare, report,
):  # fmt: skip
    app.command(cls=Command)(_interruptible(_command))


def main() -> None:
    """Run the command line."""
    run(app)


def run(command: Callable[[], Any]) -> None:
    """Run a command; an error of pareo becomes one sentence and exit status 1."""
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except PareoError as error:
        print(f"pareo: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        print(f"pareo: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
