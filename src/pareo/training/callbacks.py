"""Callbacks: what `fit` calls while it trains."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pareo.training.result import Result


class Callback:
    """The methods that `fit` calls; each does nothing until a subclass overrides it.

    The result is the one that `fit` will return: its history has the epochs so far, and its
    parameters are those of the end of the last. A plain function is called as `on_epoch` is.

    >>> class Printer(Callback):
    ...     def on_epoch(self, result):
    ...         print(f"epoch {result.history[-1].number}: {result.accuracy:.0%}")
    >>> from pareo.data import load
    >>> from pareo.nn import networks
    >>> from pareo.training import fit
    >>> how = {"epochs": 9, "batch_size": 20, "callbacks": [Printer()]}
    >>> _ = fit(networks.mlp([16, 8, 3]), load("synthetic:16:3:120"), **how)
    epoch 1: ...
    """

    def on_start(self, result: "Result") -> None:
        """Before the first step; in a resumed run the history has epochs already."""

    def on_epoch(self, result: "Result") -> bool | None:
        """After an epoch, its test and its checkpoint; True ends the run."""

    def on_end(self, result: "Result") -> None:
        """After the last epoch, or after Ctrl-C; not after an error."""


Function = Callable[["Result"], Any]


class Callbacks:
    """Several callbacks as one."""

    def __init__(self, given: Sequence[Callback | Function]) -> None:
        self._given = [_callback(one) for one in given]

    def start(self, result: "Result") -> None:
        """Call `on_start` of each."""
        for one in self._given:
            one.on_start(result)

    def epoch(self, result: "Result") -> bool:
        """Call `on_epoch` of each; whether one of them ends the run."""
        return True in [one.on_epoch(result) for one in self._given]

    def end(self, result: "Result") -> None:
        """Call `on_end` of each."""
        for one in self._given:
            one.on_end(result)


class _Plain(Callback):
    def __init__(self, function: Function) -> None:
        self._function = function

    def on_epoch(self, result: "Result") -> bool | None:
        found: bool | None = self._function(result)
        return found


def _callback(given: Callback | Function) -> Callback:
    return given if isinstance(given, Callback) else _Plain(given)
