"""Fashion-MNIST, images of clothes in the format of MNIST, from a folder."""

import os
from pathlib import Path

import numpy as np

from pareo.data import idx, mnist
from pareo.data.dataset import Dataset
from pareo.errors import DataError

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read(folder: str | os.PathLike[str], *, name: str | None = None) -> Dataset:
    """Return Fashion-MNIST from its four IDX files, with the names of its classes.

    Args:
        folder: with the files under their original names, the same as those of MNIST, each with or
            without `.gz`.
        name: of the dataset; the folder if not given.

    Raises:
        DataError: a file is missing or damaged, has other sizes or a label out of range, or these
            are the digits of MNIST itself.
    """
    top = Path(folder)
    _check_no_digits(top)
    found = mnist.load(top, check=False)
    for part, labels in (("train", found.train_labels), ("t10k", found.test_labels)):
        wrong = labels >= len(CLASS_NAMES)
        if wrong.any():
            where = int(wrong.argmax())
            raise DataError(
                f"{mnist.find(top, f'{part}-labels-idx1-ubyte')}: expected labels from 0 to "
                f"{len(CLASS_NAMES) - 1}; got {labels[where]} at index {where}"
            )
    return Dataset(
        str(folder) if name is None else name,
        found.train_images[:, None],
        found.train_labels.astype(np.int64),
        found.test_images[:, None],
        found.test_labels.astype(np.int64),
        len(CLASS_NAMES),
        CLASS_NAMES,
    )


def _check_no_digits(folder: Path) -> None:
    # Files, sizes and labels of both are alike: digits would be trained under the names of clothes.
    for name in ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"):
        file = mnist.find(folder, name)
        if idx.unpack(file).sha256() == mnist.SHA256[name]:
            raise DataError(f"{file}: expected Fashion-MNIST; got the digits of MNIST")
