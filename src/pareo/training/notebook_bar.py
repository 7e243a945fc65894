"""The progress of a run in a notebook: a bar, and a row for each epoch that is done."""

from html import escape

from pareo import notebook
from pareo.training.history import Epoch, History
from pareo.training.progress import Bar


class NotebookBar(Bar):
    """A scope that also shows the progress of a run in the output of a notebook's cell.

    >>> with NotebookBar("papers-cnn", epochs=2, images=100, shown=False) as bar:
    ...     bar.move(epoch=1, done=50, loss=0.5, speed=1000.0)
    """

    def __init__(self, name: str, epochs: int, images: int, shown: bool = True) -> None:
        super().__init__(name, epochs, images, shown)
        self._live = notebook.Live() if shown and notebook.is_running() else None
        self._name, self._whole = name, (epochs, images)
        self._done = History()

    def __enter__(self) -> "NotebookBar":
        super().__enter__()
        return self

    def move(self, epoch: int, done: int, loss: float, speed: float) -> None:
        """Show that `done` images of an epoch (counted from 1) have been trained on."""
        super().move(epoch, done, loss, speed)
        if self._live:
            epochs, images = self._whole
            facts = f"epoch {epoch}/{epochs}, loss {loss:.4f}, {speed:,.0f} images/s"
            self._live.show(self._drawn(facts, (epoch - 1) * images + done))

    def tested(self, epoch: Epoch) -> None:
        """Show an epoch that is done."""
        super().tested(epoch)
        self._done.add(epoch)
        if self._live:
            epochs, images = self._whole
            trained = f"{epoch.number} of {epochs} epochs"
            self._live.show(self._drawn(trained, epoch.number * images), final=True)

    def _drawn(self, facts: str, trained: int) -> str:
        epochs, images = self._whole
        bar = f'<progress value="{trained}" max="{epochs * images}"></progress>'
        epochs_done = self._done._repr_html_() if self._done else ""
        return f"<p>{escape(self._name)} {bar} {escape(facts)}</p>{epochs_done}"
