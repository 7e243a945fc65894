"""`load`: a dataset by name, from a file or from a folder."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import cifar, fashion_mnist, idx, images, mnist, npz, synthetic
from pareo.data.dataset import Dataset, count_classes
from pareo.errors import DataError

# As MNIST, Fashion-MNIST, EMNIST (a prefix, and "test") and some mirrors (a dot) name them.
_IDX_NAME = re.compile(r".*?(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?")
_PARTS = {"train": "train", "t10k": "test", "test": "test"}
_IDX_ROLES = tuple((part, what) for part in ("train", "test") for what in ("images", "labels"))


def load(
    what: str | os.PathLike[str], *, seed: int = 0, shape: tuple[int, ...] | None = None
) -> Dataset:
    """Return a dataset by name, from a folder or from a file.

    Args:
        what: one of

            - `"mnist"`, which is included;
            - `"synthetic:CxHxW[:CLASSES[:COUNT]]"`, synthetic images, by default
              10 classes and 600 images;
            - `"cifar10:FOLDER"`, `"cifar100:FOLDER"` or, with its 20 coarse labels,
              `"cifar100-coarse:FOLDER"`: the `.bin` files of the binary version, or its archive;
            - `"fashion-mnist:FOLDER"`, its four IDX files, gzipped or not;
            - a folder with the four IDX files of MNIST or the like, gzipped or not;
            - a folder with the `.bin` files of CIFAR-10 or CIFAR-100;
            - a folder of images, `train/CLASS/*.png` and `test/CLASS/*.png`, or `CLASS/*.png`;
            - an `.npz` file with the arrays `images` and `labels`, or `x_train`, `y_train`, ...

            If the source does not define a test set, it is the last sixth of each class.
        seed: of the synthetic images; other datasets do not use it.
        shape: (C, H, W) to which the images of a folder are resized, if they have another.

    Raises:
        DataError: it is none of these, or a file does not have the expected content.

    Example:
        >>> load("mnist")
        <Dataset mnist: 60,000 images of 1x28x28 uint8, 10,000 more for testing, 10 classes>
        >>> load("synthetic:3x8x8:2:60").shape
        (3, 8, 8)
    """
    if what == "mnist":
        digits = mnist.load()
        return Dataset(
            "mnist",
            digits.train_images[:, None],
            digits.train_labels.astype(np.int64),
            digits.test_images[:, None],
            digits.test_labels.astype(np.int64),
            classes=10,
        )
    if isinstance(what, str) and what.split(":")[0] == "synthetic":
        return synthetic.parse(what, seed)
    if isinstance(what, str) and ":" in what:
        name, _, folder = what.partition(":")
        # A shell replaces ~ only at the beginning of a word.
        if name in cifar.KINDS:
            return cifar.read(os.path.expanduser(folder), name, name=what)
        if name == "fashion-mnist":
            return fashion_mnist.read(os.path.expanduser(folder), name=what)
    path = Path(what)
    kind = cifar.recognised(path)
    if kind is not None and path.is_file():
        return cifar.read(path, kind)
    if path.is_dir():
        return _load_folder(path, shape)
    if path.suffix == ".npz":
        return npz.read(path)
    missing = "" if path.exists() else ", which does not exist"
    raise DataError(
        "expected 'mnist', 'synthetic:CxHxW', 'cifar10:FOLDER', 'cifar100:FOLDER', "
        "'fashion-mnist:FOLDER', a folder of IDX files or of images, or an .npz file; "
        f"got '{what}'{missing}"
    )


def is_image_folder(what: str | os.PathLike[str]) -> bool:
    """Whether `load` reads it as a folder of images, which it can resize.

    Example:
        >>> is_image_folder("mnist"), is_image_folder("no/such/folder")
        (False, False)
    """
    path = Path(what)
    if not path.is_dir() or cifar.recognised(path) is not None:
        return False
    inside = list(path.iterdir())
    idx_files = any(_IDX_NAME.fullmatch(file.name) for file in inside)
    return not idx_files and any(one.is_dir() for one in inside)


def _load_folder(folder: Path, shape: tuple[int, ...] | None) -> Dataset:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder}: expected a folder to read; got: {error.strerror}") from error
    if any(_IDX_NAME.fullmatch(file.name) for file in inside):
        return _load_idx(folder, inside)
    kind = cifar.recognised(folder)
    if kind is not None:
        return cifar.read(folder, kind)
    if any(one.is_dir() for one in inside):
        return images.read_folder(folder, shape)
    raise DataError(
        f"{folder}: expected four IDX files, such as train-images-idx3-ubyte.gz, the .bin files of "
        "CIFAR, or one folder of images for each class; found none of them"
    )


def _load_idx(folder: Path, inside: list[Path]) -> Dataset:
    files = {role: _find_idx(folder, inside, *role) for role in _IDX_ROLES}
    arrays = {role: _read_idx(file, role[1]) for role, file in files.items()}
    for part in ("train", "test"):
        count, labelled = len(arrays[part, "images"]), len(arrays[part, "labels"])
        if count != labelled:
            raise DataError(
                f"{files[part, 'labels']}: expected {count:,} labels, one for each image in "
                f"{files[part, 'images'].name}; got {labelled:,}"
            )
    classes = count_classes(arrays["train", "labels"], arrays["test", "labels"])
    train_images, train_labels, test_images, test_labels = arrays.values()
    return Dataset(str(folder), train_images, train_labels, test_images, test_labels, classes)


def _find_idx(folder: Path, inside: list[Path], part: str, what: str) -> Path:
    found: dict[str, Path] = {}
    for file in inside:
        match = _IDX_NAME.fullmatch(file.name)
        if match and file.is_file() and (_PARTS[match[1]], match[2]) == (part, what):
            found.setdefault(file.name.removesuffix(".gz"), file)  # the file without .gz is first
    if len(found) > 1:
        raise DataError(
            f"{folder}: expected one file of {part} {what}; found {' and '.join(sorted(found))}"
        )
    if not found:
        number = 3 if what == "images" else 1
        name = f"{'train' if part == 'train' else 't10k'}-{what}-idx{number}-ubyte"
        raise DataError(f"{folder}: expected the file {name} or {name}.gz; found neither")
    return next(iter(found.values()))


def _read_idx(file: Path, what: str) -> NDArray[Any]:
    array = idx.read(file)
    if what == "labels":
        if array.ndim != 1 or array.dtype.kind not in "ui":
            raise DataError(
                f"{file}: expected whole numbers of shape (N,); got {array.dtype.name} of shape "
                f"{array.shape}"
            )
        return array
    if array.ndim not in (2, 3, 4):
        raise DataError(
            f"{file}: expected images of shape (N, H, W), (N, C, H, W) or (N, features); "
            f"got {array.shape}"
        )
    return array[:, None] if array.ndim == 3 else array
