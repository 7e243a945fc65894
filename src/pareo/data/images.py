"""Reads image files, one or a folder of them, with Pillow, which only this module needs."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data.dataset import Dataset, divide
from pareo.errors import DataError

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Listed because Pillow supports formats, such as EPS, that start another program.
_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_Form = tuple[str, tuple[int, int]]  # mode, and width and height
_CHANNELS = {"L": 1, "RGB": 3}


def read(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Return one image as uint8 of shape (C, H, W): 1 channel if it is grey, 3 if it is RGB.

    Raises:
        DataError: Pillow is not installed, the file cannot be read, or it has another mode.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "tiny.pgm"
        ...     _ = file.write_bytes(b"P5 3 2 255 " + bytes([0, 1, 2, 3, 4, 5]))
        ...     read(file)
        array([[[0, 1, 2],
                [3, 4, 5]]], dtype=uint8)
    """
    with _opened(Path(path)) as (picture, form):
        return _pixels(picture, form)


def read_folder(folder: str | os.PathLike[str]) -> Dataset:
    """Return the dataset in a folder of images.

    The images are in `train/CLASS/` and `test/CLASS/`, or in `CLASS/`, where the last sixth of each
    class is for testing.

    Classes and images are in the order of their names. Files that are not images by their suffix,
    and those whose name starts with a dot, are ignored. All images must have one size and mode.

    Raises:
        DataError: Pillow is not installed, or a folder or a file is not as described.
    """
    top = Path(folder)
    parts = [part for part in _folders(top) if part.name in ("train", "test")]
    if [part.name for part in parts] == ["test", "train"]:
        test, train = parts
        names = tuple(one.name for one in _classes(train))
        train_files, train_labels = _files(train, names)
        test_files, test_labels = _files(test, names)
        pixels = _stack(train_files + test_files)
        cut = len(train_files)
        return Dataset(
            str(folder),
            pixels[:cut],
            np.array(train_labels),
            pixels[cut:],
            np.array(test_labels),
            len(names),
            names,
        )
    if parts:
        raise DataError(f"{top}: expected both train and test; got only {parts[0].name}")
    names = tuple(one.name for one in _classes(top))
    files, labels = _files(top, names)
    return divide(str(folder), _stack(files), np.array(labels), names)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(
            one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")
        )
    except OSError as error:
        raise DataError(f"{folder}: expected a folder to read; got: {error.strerror}") from error


def _classes(folder: Path) -> list[Path]:
    found = _folders(folder)
    if not found:
        raise DataError(f"{folder}: expected one folder for each class; found no folder")
    return found


def _files(folder: Path, names: tuple[str, ...]) -> tuple[list[Path], list[int]]:
    files: list[Path] = []
    labels: list[int] = []
    for one in _classes(folder):
        if one.name not in names:
            raise DataError(f"{one}: expected a class that train has; got '{one.name}'")
        found = sorted(
            file
            for file in one.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
        )
        if not found:
            raise DataError(
                f"{one}: expected at least one image ({', '.join(SUFFIXES)}); found none"
            )
        files += found
        labels += [names.index(one.name)] * len(found)
    return files, labels


def _stack(files: list[Path]) -> NDArray[np.uint8]:
    with _opened(files[0]) as (_, first):
        mode, (width, height) = first
    try:
        pixels = np.empty((len(files), _CHANNELS[mode], height, width), np.uint8)
    except MemoryError as error:
        raise DataError(
            f"{files[0].parent}: expected images that fit in memory; got {len(files):,} of "
            f"{_form(first)}"
        ) from error
    for place, file in zip(pixels, files, strict=True):
        with _opened(file) as (picture, form):
            if form != first:
                raise DataError(
                    f"{file}: expected {_form(first)}, as {files[0]} is; got {_form(form)}"
                )
            place[...] = _pixels(picture, form)
    return pixels


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, _Form]]:
    """Open a grey or RGB image; exceptions of Pillow inside become a `DataError`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            f"{file}: images are read with Pillow, which is not installed: pip install pillow"
        ) from error
    try:
        # An image so large that Pillow warns is an attack or a mistake, not a training image. Its
        # other warnings are about metadata: pixels that cannot be decoded raise an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=_FORMATS) as picture:
                if picture.mode not in _CHANNELS:
                    raise DataError(
                        f"{file}: expected a grey (L) or RGB image; got mode {picture.mode}"
                    )
                yield picture, (picture.mode, picture.size)
    except DataError:
        raise
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"{file}: expected a file to read; got: {error.strerror}") from error
    except Exception as error:  # Pillow's decoders raise whatever a damaged file leads to
        raise DataError(
            f"{file}: expected a complete image; got {file.stat().st_size:,} bytes that Pillow "
            f"cannot read: {_reason(error, file)}"
        ) from error


def _reason(error: Exception, file: Path) -> str:
    # Pillow repeats the file's name if no format matches.
    return "no known format" if str(file) in str(error) else ascii(str(error))[1:-1][:200]


def _pixels(picture: Any, form: _Form) -> NDArray[np.uint8]:
    """Decode the image into a new array (C, H, W)."""
    mode, (width, height) = form
    pixels = np.array(picture, np.uint8).reshape(height, width, _CHANNELS[mode])
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _form(form: _Form) -> str:
    mode, (width, height) = form
    return f"{width}x{height} {mode}"
