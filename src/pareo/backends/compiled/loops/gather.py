"""The images of a batch, copied to where a step reads them."""

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit


@jit
def gather(
    rows: Array, row_labels: Array, images: Array, labels: Array, chosen: Array, lo: int, hi: int
) -> None:
    """Rows lo to hi of a batch, and their labels.

    A loop over elements, because assigning a whole row of an array takes up to four times as long.
    """
    for place in range(lo, hi):
        number = chosen[place]
        for j in range(images.shape[1]):
            rows[place, j] = images[number, j]
        row_labels[place] = labels[number]
