"""Results that are wrong in one place, for tests of what is said then."""

from typing import Any


def damaged(result: Any, path: tuple[Any, ...], value: object) -> Any:
    """The result, with another value at a path of keys and numbers."""
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return result
