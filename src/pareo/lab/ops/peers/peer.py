"""What a peer is."""

from collections.abc import Callable
from typing import Any, Protocol

from pareo.lab.ops.work import Work


class Missing(Exception):
    """A peer has no such operator, in one sentence."""


class Peer(Protocol):
    """What runs operators."""

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays of NumPy's, and returns its results."""

    def wait(self) -> None:
        """Until all that was called is done."""

    def host(self, result: Any) -> Any:
        """NumPy's array of a result."""
