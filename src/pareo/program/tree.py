"""Nested tuples, lists and dicts as flat lists of leaves, and back."""

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
        items = [transform(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return function(tree)


def leaves(tree: Any) -> list[Any]:
    """All leaves, in order.

    >>> leaves({"a": 1, "b": (2, [3])})
    [1, 2, 3]
    """
    found: list[Any] = []
    transform(found.append, tree)
    return found


def leaves_like(form: Any, tree: Any, name: str = "the arguments") -> list[Any]:
    """All leaves of a tree, in the order of a form's leaves: dicts are matched by key.

    Without dicts only the order matters, not the nesting.

    >>> leaves_like({"a": None, "b": None}, {"b": 2, "a": 1})
    [1, 2]
    >>> leaves_like({"a": None}, {"c": 1})
    Traceback (most recent call last):
    TypeError: the arguments must have the keys 'a'; got 'c'
    """
    if isinstance(tree, dict):
        if not isinstance(form, dict):
            raise TypeError(f"{name} must not be a dict: the program was traced with none there")
        if form.keys() != tree.keys():
            wanted, got = (", ".join(map(repr, keys)) or "none" for keys in (form, tree))
            raise TypeError(f"{name} must have the keys {wanted}; got {got}")
        return [
            leaf for key in form for leaf in leaves_like(form[key], tree[key], f"argument {key!r}")
        ]
    if not isinstance(tree, (tuple, list)):
        return [tree]
    alike = isinstance(form, (tuple, list)) and len(form) == len(tree)
    forms = form if alike else [None] * len(tree)
    pairs = enumerate(zip(forms, tree, strict=True))
    return [leaf for i, (f, t) in pairs for leaf in leaves_like(f, t, f"argument {i}")]


def unflatten(tree: Any, values: list[Any]) -> Any:
    """The nesting of a tree with other leaves.

    >>> unflatten({"a": None, "b": (None, None)}, [1, 2, 3])
    {'a': 1, 'b': (2, 3)}
    """
    rest = iter(values)
    return transform(lambda _: next(rest), tree)
