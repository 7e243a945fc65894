"""Nested tuples, lists and dicts as a flat list of leaves, and back."""

from collections.abc import Callable
from typing import Any


def transform(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same nesting with `function` applied to every leaf, in order.

    >>> transform(len, {"a": "xyz", "b": ("x", "")})
    {'a': 3, 'b': (1, 0)}
    """
    if isinstance(tree, dict):
        return {key: transform(function, value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(transform(function, item) for item in tree)
    return function(tree)


def leaves(tree: Any) -> list[Any]:
    """Every leaf, in order.

    >>> leaves({"a": 1, "b": (2, [3])})
    [1, 2, 3]
    """
    found: list[Any] = []
    transform(found.append, tree)
    return found


def filled(tree: Any, values: list[Any]) -> Any:
    """The same nesting with other leaves.

    >>> filled({"a": None, "b": (None, None)}, [1, 2, 3])
    {'a': 1, 'b': (2, 3)}
    """
    rest = iter(values)
    return transform(lambda _: next(rest), tree)
