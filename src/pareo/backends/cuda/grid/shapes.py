"""Convolutions and matrix products as products of M x K by K x N elements, in groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

INDEX = 12  # instructions to read a pixel of a window
PLAIN = 4  # the same of a matrix


@dataclass(frozen=True)
class Product:
    """For each of `groups`: a sum of `k` terms for each of `m` rows and `n` columns.

    along: neighbouring elements lie along "n", or along "k", in the operand of the columns.
    index: instructions to read an element of that operand.
    """

    groups: int
    m: int
    n: int
    k: int
    along: str
    index: int = PLAIN


def conv_name(
    images: Sequence[int], results: Sequence[int], window: Sequence[int], how: Any
) -> str:
    """The sizes of a convolution, as images/shapes.cuh has them."""
    numbers = (
        *images, *results[1:], *window, *how["stride"], *how["padding"][:2], *how["dilation"],
        how["groups"],
    )  # fmt: skip
    return f"Conv<{', '.join(map(str, numbers))}>"


def conv_product(images: Sequence[int], results: Sequence[int], window: int, how: Any) -> Product:
    """A convolution: rows are filters, columns the pixels of all results."""
    groups, inner = how["groups"], images[1] // how["groups"]
    pixels = results[0] * prod(results[2:])
    return Product(groups, results[1] // groups, pixels, inner * window, "n", INDEX)


def input_product(images: Sequence[int], results: Sequence[int], window: int, how: Any) -> Product:
    """The gradient of images: rows are channels, columns the pixels of all images."""
    groups, inner = how["groups"], results[1] // how["groups"]
    pixels = images[0] * prod(images[2:])
    return Product(groups, images[1] // groups, pixels, inner * window, "n", INDEX)


def weight_product(images: Sequence[int], results: Sequence[int], how: Any) -> Product:
    """The gradient of filters: rows are filters, columns their taps.

    >>> how = {"groups": 1, "size": (5, 5)}
    >>> weight_product((16, 3, 12, 12), (16, 6, 8, 8), how)
    Product(groups=1, m=6, n=75, k=1024, along='k', index=12)
    """
    groups = how["groups"]
    taps = images[1] // groups * prod(how["size"])
    return Product(groups, results[1] // groups, taps, results[0] * prod(results[2:]), "k", INDEX)
