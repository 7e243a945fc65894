"""Reads CIFAR-10 and CIFAR-100 in their binary version; the Python version is pickled, and refused.

A file is a row of records without a header. A record is the label, one byte, or two in CIFAR-100,
where the coarse label precedes the fine one; then the red, green and blue pixels of one image,
32 x 32 bytes each, row by row.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import archive
from pareo.data.dataset import Dataset
from pareo.errors import DataError

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORDS = 512  # so many are read at a time
_LARGEST_TEXT = 1 << 16  # bytes; the names of 100 classes have about 1,000
_LARGEST_ARCHIVE = 200_000_000  # bytes; each archive has about 185,000,000 when unpacked


@dataclass(frozen=True)
class Kind:
    """One way to read one of the two datasets: its files, its labels and their names."""

    title: str
    binary: str  # the published archive
    folder: str  # what it unpacks to
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: tuple[int, ...]  # of each byte of a label
    label: int  # the byte that is used
    names: str
    python: str  # the published archive of the Python version
    python_folder: str
    python_files: tuple[str, ...]

    @property
    def record(self) -> int:
        """Bytes of a label and an image."""
        return len(self.classes) + _PIXELS


_TEN = Kind(
    title="CIFAR-10",
    binary="cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    classes=(10,),
    label=0,
    names="batches.meta.txt",
    python="cifar-10-python.tar.gz",
    python_folder="cifar-10-batches-py",
    python_files=("data_batch_1", "test_batch", "batches.meta"),
)
_HUNDRED: dict[str, Any] = {
    "title": "CIFAR-100",
    "binary": "cifar-100-binary.tar.gz",
    "folder": "cifar-100-binary",
    "train": ("train.bin",),
    "test": ("test.bin",),
    "classes": (20, 100),
    "python": "cifar-100-python.tar.gz",
    "python_folder": "cifar-100-python",
    "python_files": ("train", "test", "meta"),
}
KINDS = {
    "cifar10": _TEN,
    "cifar100": Kind(**_HUNDRED, label=1, names="fine_label_names.txt"),
    "cifar100-coarse": Kind(**_HUNDRED, label=0, names="coarse_label_names.txt"),
}


def read(
    path: str | os.PathLike[str], kind: str = "cifar10", *, name: str | None = None
) -> Dataset:
    """Return CIFAR-10 or CIFAR-100 from the files of its binary version.

    Args:
        path: the folder of the `.bin` files, a folder that contains this folder or the published
            archive, or the archive itself, which is read without extracting it.
        kind: `"cifar10"`; `"cifar100"`, with the 100 fine labels; or `"cifar100-coarse"`, with the
            20 coarse ones. The file of their names, such as `batches.meta.txt`, may be missing.
        name: of the dataset; the path if not given.

    Raises:
        DataError: a file is missing, has a wrong size or a label out of range, or this is the
            Python version.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for file in ("train.bin", "test.bin"):
        ...         _ = (Path(folder) / file).write_bytes(bytes([4, 30]) + bytes(3072))
        ...     data = read(folder, "cifar100", name="tiny")
        >>> data
        <Dataset tiny: 1 images of 3x32x32 uint8, 1 more for testing, 100 classes>
        >>> data.labels
        array([30])
    """
    if kind not in KINDS:
        raise DataError(f"expected one of {', '.join(KINDS)}; got '{kind}'")
    form = KINDS[kind]
    files = _located(form, Path(path))
    counts = {file: _count(form, files, file) for file in (*form.train, *form.test)}
    images, labels = _part(form, files, {file: counts[file] for file in form.train})
    test_images, test_labels = _part(form, files, {file: counts[file] for file in form.test})
    return Dataset(
        str(path) if name is None else name,
        images,
        labels,
        test_images,
        test_labels,
        form.classes[form.label],
        _names(form, files),
    )


def recognised(path: Path) -> str | None:
    """The kind of an archive with a published name, or of a folder with such files; else None.

    The Python version is recognised as well, so that `read` can say why it is refused.

    >>> recognised(Path("cifar-10-binary.tar.gz"))
    'cifar10'
    """
    for kind in ("cifar10", "cifar100"):
        form = KINDS[kind]
        if path.name in (form.binary, form.python) and not path.is_dir():
            return kind
        # One file is not enough: train.bin is a name that other data has, too.
        binary = sum((path / file).is_file() for file in (*form.train, *form.test))
        if binary > 1 or all((path / file).is_file() for file in form.python_files):
            return kind
    return None


@dataclass(frozen=True)
class _Files:
    """The files of a folder or of an archive."""

    place: Path
    members: dict[str, memoryview] | None = None  # of an archive

    def shown(self, name: str) -> str:
        return str(self.place / name) if self.members is None else f"{self.place}: {name}"

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none of this name."""
        if self.members is not None:
            return len(self.members[name]) if name in self.members else None
        file = self.place / name
        try:
            return file.stat().st_size if file.is_file() else None
        except OSError as error:
            raise DataError(f"{file}: expected a file to read; got: {error.strerror}") from error

    def pieces(self, name: str, size: int, piece: int) -> Iterator[bytes | memoryview]:
        """Yield a file of this size in pieces of at most this size."""
        if self.members is not None:
            for start in range(0, size, piece):
                yield self.members[name][start : start + piece]
            return
        try:
            with (self.place / name).open("rb") as stream:
                for start in range(0, size, piece):
                    found = stream.read(min(piece, size - start))
                    if len(found) < min(piece, size - start):
                        raise DataError(f"{self.shown(name)}: became shorter while it was read")
                    yield found
        except OSError as error:
            raise DataError(
                f"{self.shown(name)}: expected a file to read; got: {error.strerror}"
            ) from error


def _located(form: Kind, path: Path) -> _Files:
    """The files that a path leads to, refused if they are those of the Python version."""
    if path.is_file() and path.name != form.python:
        if not path.name.endswith(archive.SUFFIXES):
            raise DataError(
                f"{path}: expected a folder, or an archive such as {form.binary}; got another file"
            )
        members = archive.read(path, _LARGEST_ARCHIVE)
        if not members.keys() >= set(form.python_files):
            return _Files(path, members)
    elif any((path / name).is_file() for name in (*form.train, *form.test)):
        return _Files(path)
    elif (path / form.folder).is_dir():
        return _Files(path / form.folder)
    elif (path / form.binary).is_file():
        return _located(form, path / form.binary)
    elif not (
        path.name == form.python
        or (path / form.python).is_file()
        or (path / form.python_folder).is_dir()
        or all((path / name).is_file() for name in form.python_files)
    ):
        missing = "found neither" if path.is_dir() else "there is no such folder"
        raise DataError(
            f"{path}: expected {form.train[0]} and the other files of {form.title}'s binary "
            f"version, or {form.binary}; {missing}"
        )
    raise DataError(
        f"{path}: expected {form.title}'s binary version; got the Python version, which is pickled "
        f"and never loaded, because a pickled file can run any program: download {form.binary} "
        "instead"
    )


def _count(form: Kind, files: _Files, name: str) -> int:
    """The number of records in a file."""
    size = files.size(name)
    if size is None:
        raise DataError(f"{files.place}: expected the file {name}; found none")
    if not size or size % form.record:
        raise DataError(
            f"{files.shown(name)}: expected records of {form.record:,} bytes, at least one; got "
            f"{size:,} bytes"
        )
    return size // form.record


def _part(
    form: Kind, files: _Files, counts: dict[str, int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    total = sum(counts.values())
    try:
        images = np.empty((total, *_SHAPE), np.uint8)
        labels = np.empty(total, np.int64)
    except MemoryError as error:
        raise DataError(
            f"{files.place}: expected images that fit in memory; got {total:,}"
        ) from error
    start = 0
    for name, count in counts.items():
        first = start
        for piece in files.pieces(name, count * form.record, _RECORDS * form.record):
            records = np.frombuffer(piece, np.uint8).reshape(-1, form.record)
            _check_labels(form, files.shown(name), records, start - first)
            end = start + len(records)
            images[start:end] = records[:, len(form.classes) :].reshape(-1, *_SHAPE)
            labels[start:end] = records[:, form.label]
            start = end
    return images, labels


def _check_labels(form: Kind, shown: str, records: NDArray[np.uint8], before: int) -> None:
    for byte, classes in enumerate(form.classes):
        wrong = records[:, byte] >= classes
        if wrong.any():
            where = int(wrong.argmax())
            which = "labels" if len(form.classes) == 1 else f"{('coarse', 'fine')[byte]} labels"
            raise DataError(
                f"{shown}: expected {which} from 0 to {classes - 1}; got {records[where, byte]} "
                f"in record {before + where}"
            )


def _names(form: Kind, files: _Files) -> tuple[str, ...]:
    """The names of the classes, one on each line; none if there is no such file."""
    shown, size = files.shown(form.names), files.size(form.names)
    if size is None:
        return ()
    classes = form.classes[form.label]
    if size > _LARGEST_TEXT:
        raise DataError(f"{shown}: expected {classes} names of classes; got {size:,} bytes")
    raw = b"".join(files.pieces(form.names, size, _LARGEST_TEXT))
    try:
        names = tuple(line.strip() for line in raw.decode().splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise DataError(f"{shown}: expected names of classes in UTF-8; got other bytes") from error
    if len(names) != classes:
        raise DataError(
            f"{shown}: expected {classes} names of classes, one on each line; got {len(names)}"
        )
    return names
