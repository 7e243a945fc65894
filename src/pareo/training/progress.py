"""The progress bar: epoch, loss, accuracy, images per second, and remaining time."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pareo.training.history import Epoch

if TYPE_CHECKING:
    from rich.progress import Progress


LEAST = 10  # columns of the bar itself
LEFT = len("-:--:-- left")


def fitting(facts: Sequence[str], width: int) -> str:
    """The first of the facts, as many as fit in a width.

    >>> fitting(["epoch 1/40", "loss 0.1234", "accuracy 98.12%"], 24)
    'epoch 1/40  loss 0.1234'
    """
    shown = ""
    for fact in facts:
        longer = f"{shown}  {fact}" if shown else fact
        if len(longer) > width:
            break
        shown = longer
    return shown


class Bar:
    """A scope that shows the progress of a run, on standard error if that is a terminal.

    >>> with Bar("papers-cnn", epochs=2, images=100, shown=False) as bar:
    ...     bar.move(epoch=1, done=50, loss=0.5, speed=1000.0)
    """

    def __init__(self, name: str, epochs: int, images: int, shown: bool = True) -> None:
        self._epochs, self._images = epochs, images
        self._progress: Progress | None = None
        if shown and sys.stderr.isatty():
            self._progress = _bar()
            self._width = self._progress.console.width - len(name) - LEAST - LEFT - 4
            facts = fitting(["building the step", "the first time, code is compiled"], self._width)
            self._task = self._progress.add_task(name, total=epochs * images, facts=facts)
        self._accuracy: list[str] = []

    def __enter__(self) -> "Bar":
        if self._progress:
            self._progress.start()
        return self

    def move(self, epoch: int, done: int, loss: float, speed: float) -> None:
        """Show that `done` images of an epoch (counted from 1) have been trained on."""
        if self._progress:
            facts = [f"epoch {epoch}/{self._epochs}", f"loss {loss:.4f}", *self._accuracy]
            try:
                self._progress.update(
                    self._task,
                    completed=(epoch - 1) * self._images + done,
                    facts=fitting([*facts, f"{speed:,.0f} images/s"], self._width),
                )
            except OSError:  # the terminal is closed, but the run can still be saved
                self._progress = None

    def tested(self, epoch: Epoch) -> None:
        """Show the accuracy from now on."""
        if epoch.accuracy is not None:
            self._accuracy = [f"accuracy {epoch.accuracy:.2%}"]

    def __exit__(self, *_: object) -> None:
        if self._progress:
            with suppress(OSError):
                self._progress.stop()


def _bar() -> "Progress":
    # Imported here, so that training without a bar does not import rich.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
