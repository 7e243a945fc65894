"""Augmentation as text: which random changes the training images of a step get."""

from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.array import Array
from pareo.training.checks import SettingError, whole


@dataclass(frozen=True)
class Augmentation:
    """Random changes to images, drawn again in each step from its seed; see `op.augment`.

    flip:   half of the images are mirrored, left to right
    crop:   each is moved by up to so many pixels in both directions
    cutout: a square of so many pixels is set to zero

    >>> Augmentation.parse("flip,crop:4,cutout:8")
    Augmentation(flip=True, crop=4, cutout=8)
    """

    flip: bool = False
    crop: int = 0
    cutout: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.flip, bool):
            raise SettingError(f"fit expects flip to be True or False; got {self.flip!r}")
        for name in ("crop", "cutout"):
            pixels = whole(f"the pixels of {name}", getattr(self, name), 0)
            object.__setattr__(self, name, pixels)

    def __bool__(self) -> bool:
        return self != Augmentation()

    def __call__(self, images: Array, seed: Any) -> Array:
        """The images of a batch, changed."""
        return op.augment(images, seed, self.flip, self.crop, self.cutout)

    def __str__(self) -> str:
        """The text from which `parse` makes the same.

        >>> str(Augmentation(flip=True, crop=2))
        'flip,crop:2'
        """
        words = ["flip"] if self.flip else []
        words += [f"crop:{self.crop}"] if self.crop else []
        words += [f"cutout:{self.cutout}"] if self.cutout else []
        return ",".join(words)

    @classmethod
    def parse(cls, text: Any) -> "Augmentation":
        """What a text such as 'flip,crop:4,cutout:8' names; an empty text names nothing."""
        if isinstance(text, cls):
            return text
        found: dict[str, Any] = {}
        words = text.split(",") if isinstance(text, str) and text.strip() else []
        for word in words:
            name, _, pixels = word.strip().partition(":")
            right = pixels.isascii() and pixels.isdigit() and name in ("crop", "cutout")
            if name in found or not (right or word.strip() == "flip"):
                raise _unknown(text)
            found[name] = int(pixels) if pixels else True
        if not isinstance(text, str):
            raise _unknown(text)
        return cls(**found)


def _unknown(text: Any) -> SettingError:
    return SettingError(f"fit expects augment such as 'flip,crop:4,cutout:8'; got {text!r}")
