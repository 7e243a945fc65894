"""Words on the command lines of the lab's own commands: understood, or refused in one line."""

import argparse
from collections.abc import Callable, Collection


def least_one(text: str) -> int:
    """A whole number of at least 1.

    >>> least_one("8")
    8
    """
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return int(text)


def numbers(text: str) -> list[int]:
    """Sizes, as in 1,32,128.

    >>> numbers("1,32")
    [1, 32]
    """
    return [least_one(part) for part in text.split(",")]


def among(names: Collection[str]) -> Callable[[str], list[str]]:
    """Some of these names, as in torch,jax.

    >>> among(["torch", "jax"])("jax")
    ['jax']
    """

    def chosen(text: str) -> list[str]:
        for name in text.split(","):
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return text.split(",")

    return chosen
