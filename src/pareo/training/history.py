"""The record of a training run: one `Epoch` for each pass over the data."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

from pareo.errors import DataError
from pareo.notebook import table


@dataclass(frozen=True)
class Epoch:
    """One pass over the training data, and the test after it.

    The test is of the validation part where there is one, and else of the test set; where there is
    a moving average of the parameters, it is tested.

    seconds:    of training alone, without the test
    loss:       mean over the epoch's images, each before the update of its step
    accuracy:   in the test, from 0 to 1; None without one, and where labels are not classes
    test_loss:  in the test, without smoothing and class weights; None without one
    images:     images per second of training
    flops:      floating-point operations per second of training
    floor:      FLOP/s as a share of the measured peak of matrix products; None if unknown
    """

    number: int
    seconds: float
    loss: float
    accuracy: float | None
    test_loss: float | None
    images: float
    flops: float
    floor: float | None


class History(Sequence[Epoch]):
    """The epochs of a run, in order.

    >>> epoch = Epoch(1, 2.0, 0.5, 0.9, 0.4, 30000.0, 1e9, 0.25)
    >>> history = History([epoch])
    >>> history.seconds, history[-1].accuracy
    (2.0, 0.9)
    >>> history.column("loss")
    [0.5]
    """

    def __init__(self, epochs: Iterable[Epoch] = ()) -> None:
        self._epochs = list(epochs)

    def add(self, epoch: Epoch) -> None:
        """Append an epoch."""
        self._epochs.append(epoch)

    def column(self, name: str) -> list[Any]:
        """One field of every epoch, for a plot."""
        return [getattr(epoch, name) for epoch in self._epochs]

    @property
    def seconds(self) -> float:
        """Seconds of training alone, over all epochs."""
        return float(sum(epoch.seconds for epoch in self._epochs))

    @property
    def images(self) -> float:
        """Images per second over all epochs; 0 before the first."""
        return self._rate("images")

    @property
    def flops(self) -> float:
        """Floating-point operations per second over all epochs."""
        return self._rate("flops")

    @property
    def floor(self) -> float | None:
        """The share of the peak over all epochs; None if it is unknown for one of them."""
        if not self._epochs or any(epoch.floor is None for epoch in self._epochs):
            return None
        return self._rate("floor")

    @property
    def best(self) -> int | None:
        """The index of the best epoch, the first of equal ones; None before the first.

        It is that of the highest accuracy, then of the lowest loss in the test, then in training.

        >>> [History([Epoch(n, 1.0, 0.5, a, 0.4, 1.0, 1.0, None) for n, a in pairs]).best
        ...  for pairs in ([(1, 0.8), (2, 0.9), (3, 0.9)], [])]
        [1, None]
        """
        if not self._epochs:
            return None
        return min(range(len(self)), key=lambda index: _rank(self[index]))

    def frame(self) -> Any:
        """The epochs as the rows of a pandas data frame, by their number.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("History.frame needs pandas: pip install pandas") from error
        columns = [field.name for field in fields(Epoch)]
        return pandas.DataFrame(self.plain(), columns=columns).set_index("number")

    def _repr_html_(self) -> str:
        """The epochs as a table, for a notebook.

        >>> history = History([Epoch(1, 2.0, 0.5, 0.9, 0.4, 3e4, 1e9, 0.25)])
        >>> "<td>90.00%</td>" in history._repr_html_()
        True
        """
        rows = [
            [str(one.number), f"{one.seconds:.3g}", f"{one.loss:.4f}",
             "" if one.test_loss is None else f"{one.test_loss:.4f}",
             "" if one.accuracy is None else f"{one.accuracy:.2%}",
             f"{one.images:,.0f}", "" if one.floor is None else f"{one.floor:.0%}"]
            for one in self._epochs
        ]  # fmt: skip
        heads = ["epoch", "seconds", "loss", "test loss", "accuracy", "images/s", "of the peak"]
        return table(heads, rows, left=0)

    def plot(self) -> Any:
        """The losses, and the accuracy if there is one, over the epochs, as a plotly figure.

        >>> history = History([Epoch(1, 2.0, 0.5, 0.9, 0.4, 30000.0, 1e9, 0.25)])
        >>> [trace.name for trace in history.plot().data]
        ['loss', 'test loss', 'accuracy']
        """
        import plotly.graph_objects as go  # type: ignore[import-untyped]

        figure = go.Figure(
            layout={
                "xaxis": {"title": "epoch"},
                "yaxis": {"title": "loss", "rangemode": "tozero"},
                "yaxis2": {
                    "title": "accuracy", "overlaying": "y", "side": "right", "tickformat": ".1%",
                },
            }
        )  # fmt: skip
        numbers = self.column("number")
        for name, axis in (("loss", "y"), ("test_loss", "y"), ("accuracy", "y2")):
            values = self.column(name)
            if any(value is not None for value in values):
                label = name.replace("_", " ")
                figure.add_trace(go.Scatter(x=numbers, y=values, name=label, yaxis=axis))
        return figure

    def _rate(self, name: str) -> float:
        whole = sum(getattr(epoch, name) * epoch.seconds for epoch in self._epochs)
        return float(whole / self.seconds) if self.seconds else 0.0

    def plain(self) -> list[dict[str, Any]]:
        """The history as values that JSON can represent."""
        return [asdict(epoch) for epoch in self._epochs]

    @classmethod
    def from_plain(cls, found: Any) -> "History":
        """The history that `plain` returned; anything else raises `DataError`."""
        names = {field.name for field in fields(Epoch)}
        if not isinstance(found, list) or not all(
            isinstance(entry, dict) and set(entry) == names for entry in found
        ):
            raise DataError("its history is not a list of epochs")
        for entry in found:
            for name, value in entry.items():
                optional = name in ("accuracy", "test_loss", "floor")
                if type(value) not in (int, float) and not (optional and value is None):
                    raise DataError(f"its history has {name} {value!r:.60}, which is not a number")
        return cls(Epoch(**entry) for entry in found)

    @overload
    def __getitem__(self, index: int) -> Epoch: ...
    @overload
    def __getitem__(self, index: slice) -> "History": ...
    def __getitem__(self, index: int | slice) -> "Epoch | History":
        if isinstance(index, slice):
            return History(self._epochs[index])
        return self._epochs[index]

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self._epochs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._epochs == other._epochs

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"History({self._epochs!r})"


def _rank(epoch: Epoch) -> tuple[float, float, float]:
    """A key that is lowest for the best epoch."""
    accuracy = 0.0 if epoch.accuracy is None else epoch.accuracy
    tested = 0.0 if epoch.test_loss is None else epoch.test_loss
    return -accuracy, tested, epoch.loss
