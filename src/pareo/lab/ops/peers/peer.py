"""The interface of a peer: a library, or a device of pareo."""

from collections.abc import Callable
from typing import Any, Protocol

from pareo.lab.ops.work import Work


class Missing(Exception):
    """The peer lacks an operator; the message is one sentence."""


class Peer(Protocol):
    """Runs operators."""

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these NumPy arrays, and returns its results."""

    def wait(self) -> None:
        """Wait until all calls have finished."""

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
