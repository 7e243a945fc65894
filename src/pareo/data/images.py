"""Reads image files, one or a folder of them, with Pillow, which only this module needs."""

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data.dataset import Dataset, divide
from pareo.errors import DataError
from pareo.regular_file import regular

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Listed because Pillow supports formats, such as EPS, that start another program.
_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_Form = tuple[str, tuple[int, int]]  # mode, and width and height
_CHANNELS = {"L": 1, "RGB": 3}
# What images of other modes are read as. Those of 16 bits are not: they would be clipped.
_MODES = {
    "L": "L", "1": "L", "LA": "L", "RGB": "RGB", "P": "RGB", "PA": "RGB", "RGBA": "RGB",
    "CMYK": "RGB", "YCbCr": "RGB",
}  # fmt: skip


def read(path: str | os.PathLike[str], shape: tuple[int, ...] | None = None) -> NDArray[np.uint8]:
    """Return one image as uint8 of shape (C, H, W): 1 channel if it is grey, 3 if it has colours.

    Args:
        path: a file. Palettes become colours, and what is transparent becomes white.
        shape: (C, H, W), to which it is resized; its colours become grey, or its grey colours.

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
        return _pixels(picture, form if shape is None else _form_of(shape))


def read_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the height and width of an image, without reading its pixels."""
    with _opened(Path(path)) as (_, (_, (width, height))):
        return height, width


def read_folder(folder: str | os.PathLike[str], shape: tuple[int, ...] | None = None) -> Dataset:
    """Return the dataset in a folder of images.

    The images are in `train/CLASS/` and `test/CLASS/`, or in `CLASS/`, where the last sixth of each
    class is for testing.

    Classes and images are in the order of their names. Files that are not images by their suffix,
    and those whose name starts with a dot, are ignored. Images of another size are resized, and
    `notes` of the dataset says so.

    Args:
        folder: a directory.
        shape: (C, H, W) of the images; without, the most frequent size, in grey if all are grey.

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
        pixels, notes = _stack(train_files + test_files, shape)
        cut = len(train_files)
        return Dataset(
            str(folder),
            pixels[:cut],
            np.array(train_labels),
            pixels[cut:],
            np.array(test_labels),
            len(names),
            names,
            notes,
        )
    if parts:
        raise DataError(f"{top}: expected both train and test; got only {parts[0].name}")
    names = tuple(one.name for one in _classes(top))
    files, labels = _files(top, names)
    pixels, notes = _stack(files, shape)
    return replace(divide(str(folder), pixels, np.array(labels), names), notes=notes)


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


def _stack(
    files: list[Path], shape: tuple[int, ...] | None
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """The pixels of all files, in one form, and a note where some had another."""
    found: Counter[_Form] = Counter()
    for file in files:
        with _opened(file) as (_, form):  # the head of the file, without its pixels
            found[form] += 1
    wanted = _usual_form(found) if shape is None else _form_of(shape)
    mode, (width, height) = wanted
    try:
        pixels = np.empty((len(files), _CHANNELS[mode], height, width), np.uint8)
    except MemoryError as error:
        raise DataError(
            f"{files[0].parent}: expected images that fit in memory; got {len(files):,} of "
            f"{_form(wanted)}"
        ) from error
    for place, file in zip(pixels, files, strict=True):
        with _opened(file) as (picture, _):
            place[...] = _pixels(picture, wanted)
    return pixels, _notes(found, wanted)


def _usual_form(found: Counter[_Form]) -> _Form:
    """The most frequent size, the smallest of several; in colours if any image has them."""
    sizes: Counter[tuple[int, int]] = Counter()
    for (_, size), count in found.items():
        sizes[size] += count
    size = min(sizes, key=lambda size: (-sizes[size], size))
    return "RGB" if any(mode == "RGB" for mode, _ in found) else "L", size


def _notes(found: Counter[_Form], wanted: _Form) -> tuple[str, ...]:
    """What was done to images that had another form.

    >>> _notes(Counter({("L", (5, 4)): 7, ("RGB", (9, 9)): 3}), ("RGB", (5, 4)))
    ('3 of 10 images were resized to 5x4', '7 of 10 grey images were read as RGB')
    """
    count = found.total()
    resized = sum(n for (_, size), n in found.items() if size != wanted[1])
    changed = sum(n for (mode, _), n in found.items() if mode != wanted[0])
    words = ("grey", "RGB") if wanted[0] == "RGB" else ("colour", "grey")
    said = []
    if resized:
        said.append(f"{resized:,} of {count:,} images were resized to {_size(wanted)}")
    if changed:
        said.append(f"{changed:,} of {count:,} {words[0]} images were read as {words[1]}")
    return tuple(said)


def _form_of(shape: tuple[int, ...]) -> _Form:
    """The mode and size of a shape (C, H, W)."""
    modes = {channels: mode for mode, channels in _CHANNELS.items()}
    if len(shape) != 3 or shape[0] not in modes:
        raise DataError(f"images are resized to (C, H, W) with 1 or 3 channels, not to {shape}")
    return modes[shape[0]], (shape[2], shape[1])


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, _Form]]:
    """Open an image, of which the form is grey or RGB; errors of Pillow become a `DataError`."""
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
            with Image.open(regular(file), formats=_FORMATS) as picture:
                if picture.mode not in _MODES:
                    known = ", ".join(_MODES)
                    raise DataError(
                        f"{file}: expected one of the modes {known}; got {picture.mode}"
                    )
                yield picture, (_MODES[picture.mode], picture.size)
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
    """Decode the image into a new array (C, H, W) of a form."""
    from PIL import Image

    mode, (width, height) = form
    if picture.mode != mode:
        if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
            above = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", above.size, "white"), above)
        picture = picture.convert(mode)
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.array(picture, np.uint8).reshape(height, width, _CHANNELS[mode])
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _size(form: _Form) -> str:
    width, height = form[1]
    return f"{width}x{height}"


def _form(form: _Form) -> str:
    return f"{_size(form)} {form[0]}"
