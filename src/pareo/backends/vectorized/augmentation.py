"""Random changes to training images, one image at a time."""

import numpy as np

from pareo.backends.vectorized.table import Array, backend
from pareo.operators.augmentation import draws


@backend.kernel()
def augment(out: Array, x: Array, seed: Array, flip: bool, crop: int, cutout: int) -> None:
    images, _, height, width = x.shape
    drawn = draws(images, int(seed), height, width, crop)
    for result, image, (mirrored, down, right, row, column) in zip(
        out, x, drawn.tolist(), strict=True
    ):
        source = image[:, :, ::-1] if flip and mirrored else image
        top, bottom = max(0, -down), min(height, height - down)
        left, end = max(0, -right), min(width, width - right)
        if top >= bottom or left >= end:
            result[...] = 0
            continue
        result[:, :top] = 0
        result[:, bottom:] = 0
        result[:, top:bottom, :left] = 0
        result[:, top:bottom, end:] = 0
        np.copyto(
            result[:, top:bottom, left:end],
            source[:, top + down : bottom + down, left + right : end + right],
        )
        above, before = row - cutout // 2, column - cutout // 2
        result[:, max(0, above) : above + cutout, max(0, before) : before + cutout] = 0
