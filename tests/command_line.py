"""The command line in this process, which is quick: what it prints, and its exit status."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from pareo.cli import app, run


@dataclass
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str


def pareo(*words: str) -> Done:
    """Run `pareo` with these words; an exception that is not one of pareo's is raised here."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run(lambda: app(list(words), prog_name="pareo"))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return Done(status, out.getvalue(), err.getvalue())
