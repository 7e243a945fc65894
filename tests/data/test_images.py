"""Image files: folders with a test part and without, and one sentence for each wrong file."""

import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from pareo.data import images, load
from pareo.errors import DataError

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


def write(file: Path, mode: str = "L", size: tuple[int, int] = (5, 4), value: int = 0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * len(mode) if mode == "RGB" else value).save(file)
    return file


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two classes for training, one of them for testing, with things to pass over."""
    for number in range(3):
        write(tmp_path / "train" / "cat" / f"{number}.png", value=number)
    write(tmp_path / "train" / "dog" / "a.PNG", value=10)
    write(tmp_path / "test" / "dog" / "b.bmp", value=20)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("none")
    (tmp_path / "train" / "cat" / "._0.png").write_text("none")
    (tmp_path / "train" / ".hidden").mkdir()
    return tmp_path


def refused(path: Path, message: str, where: Path | None = None) -> None:
    with pytest.raises(DataError, match=re.escape(str(where or path)) + ": .*" + message):
        load(path)


def test_train_and_test(pets: Path) -> None:
    data = load(pets)
    assert data.images.dtype == np.uint8
    assert data.shape == (1, 4, 5)
    assert data.images[:, 0, 0, 0].tolist() == [0, 1, 2, 10]
    assert data.labels.tolist() == [0, 0, 0, 1]
    assert data.test_images[:, 0, 3, 4].tolist() == [20]
    assert data.test_labels.tolist() == [1]
    assert data.class_names == ("cat", "dog")


def test_class_folders_only_are_divided(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path / "a" / f"{number:02}.png", "RGB", value=number)
    for number in range(3):
        write(tmp_path / "b" / f"{number}.png", "RGB", value=100 + number)
    data = load(str(tmp_path))
    assert data.shape == (3, 4, 5)
    assert data.images[:, 2, 0, 0].tolist() == [*range(10), 100, 101]
    assert data.test_images[:, 1, 1, 1].tolist() == [10, 11, 102]
    assert data.test_labels.tolist() == [0, 0, 1]


def test_pixels_keep_their_place(tmp_path: Path) -> None:
    pixels = np.arange(3 * 4 * 5).reshape(4, 5, 3).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    result = images.read(tmp_path / "one.png")
    np.testing.assert_array_equal(result, pixels.transpose(2, 0, 1), strict=True)
    assert result.flags.writeable


@pytest.mark.parametrize("suffix", images.SUFFIXES)
def test_each_suffix_can_be_read(tmp_path: Path, suffix: str) -> None:
    mode = "RGB" if suffix in (".ppm", ".webp") else "L"
    result = images.read(write(tmp_path / f"one{suffix}", mode, value=77))
    assert result.shape == (images._CHANNELS[mode], 4, 5)
    assert abs(int(result.mean()) - 77) <= 1  # JPEG and WebP round


def test_images_of_another_size_are_resized_and_it_is_said(pets: Path) -> None:
    write(pets / "train" / "dog" / "b.png", size=(60, 40), value=200)
    data = load(pets)
    assert data.shape == (1, 4, 5)  # the most frequent
    assert data.images[-1].tolist() == [[[200] * 5] * 4]
    assert data.notes == ("1 of 6 images were resized to 5x4",)
    data = load(pets, shape=(3, 8, 8))
    assert data.shape == (3, 8, 8)
    assert data.images[1:3, :, 7, 7].tolist() == [[1] * 3, [2] * 3]
    assert data.notes == (
        "6 of 6 images were resized to 8x8", "6 of 6 grey images were read as RGB",
    )  # fmt: skip


def test_resizing_averages_what_becomes_one_pixel(tmp_path: Path) -> None:
    Image.fromarray(np.tile(np.array([0, 255], np.uint8), (8, 4))).save(tmp_path / "a.png")
    found = images.read(tmp_path / "a.png", (1, 2, 2))
    assert abs(found.astype(int) - 127).max() <= 20


def test_colours_and_grey_together_are_colours(pets: Path) -> None:
    write(pets / "test" / "dog" / "c.png", "RGB", value=9)
    data = load(pets)
    assert data.shape == (3, 4, 5)
    assert data.test_images[:, :, 0, 0].tolist() == [[20] * 3, [9] * 3]
    assert data.notes == ("5 of 6 grey images were read as RGB",)


@pytest.mark.parametrize(
    ("mode", "value", "seen"),
    [
        ("1", 1, [255]),
        ("LA", (9, 255), [9]),
        ("LA", (9, 0), [255]),  # what is transparent is white
        ("RGBA", (9, 8, 7, 255), [9, 8, 7]),
        ("RGBA", (9, 8, 7, 0), [255, 255, 255]),
        ("P", 0, [0, 0, 0]),
    ],
)
def test_other_modes_are_read_as_grey_or_rgb(
    tmp_path: Path, mode: str, value: object, seen: list[int]
) -> None:
    Image.new(mode, (5, 4), value).save(tmp_path / "a.png")
    assert images.read(tmp_path / "a.png")[:, 0, 0].tolist() == seen


def test_sixteen_bits_would_be_clipped_and_are_refused(pets: Path) -> None:
    wrong = pets / "train" / "cat" / "9.png"
    Image.new("I;16", (5, 4)).save(wrong)
    refused(pets, "expected one of the modes L, 1, .*; got I;16", wrong)


def test_a_broken_image_is_named_with_its_bytes(pets: Path) -> None:
    wrong = pets / "train" / "cat" / "9.png"
    wrong.write_bytes(b"hello")
    refused(pets, "a complete image; got 5 bytes that Pillow cannot read: no known format$", wrong)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5), np.uint8)
    Image.fromarray(pixels).save(wrong)
    raw = wrong.read_bytes()
    wrong.write_bytes(raw[:60])
    refused(pets, "expected a complete image; got 60 bytes that Pillow cannot read: ", wrong)
    wrong.write_bytes(raw.replace(b"IDAT", b"IDAX"))
    refused(pets, f"got {len(raw)} bytes that Pillow cannot read: ", wrong)


def test_odd_metadata_does_not_matter(tmp_path: Path) -> None:
    file = write(tmp_path / "one.tif", value=7)
    raw = file.read_bytes()
    one = struct.pack("<HHII", 256, 4, 1, 5)
    two = struct.pack("<HHII", 256, 4, 2, len(raw))  # two widths, where one is expected
    file.write_bytes(raw.replace(one, two) + struct.pack("<II", 5, 5))
    with pytest.warns(UserWarning, match="too many entries"), Image.open(file) as picture:
        picture.load()
    assert (images.read(file) == 7).all()


def test_a_program_in_disguise_is_not_started(tmp_path: Path) -> None:
    wrong = tmp_path / "a" / "1.png"
    wrong.parent.mkdir()
    wrong.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\n")
    refused(tmp_path, "that Pillow cannot read: no known format", wrong)


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_a_bomb_is_not_unpacked(tmp_path: Path, side: int) -> None:
    wrong = tmp_path / "a" / "1.pgm"
    wrong.parent.mkdir()
    wrong.write_bytes(f"P5 {side} {side} 255 ".encode())
    refused(tmp_path, "that Pillow cannot read: Image size .* exceeds limit", wrong)


def test_folders_that_are_not_as_described(pets: Path) -> None:
    empty = pets / "train" / "empty"
    empty.mkdir()
    refused(pets, r"expected at least one image \(.bmp, .*\); found none", empty)
    empty.rmdir()
    write(pets / "test" / "bird" / "1.png")
    refused(pets, "expected a class that train has; got 'bird'", pets / "test" / "bird")


def test_a_part_that_is_missing_or_empty(tmp_path: Path) -> None:
    write(tmp_path / "train" / "a" / "1.png")
    refused(tmp_path, "expected both train and test; got only train")
    (tmp_path / "test").mkdir()
    refused(tmp_path, "expected one folder for each class; found no folder", tmp_path / "test")


def test_a_missing_image_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no.png: expected a file to read; got: No such file"):
        images.read(tmp_path / "no.png")
    with pytest.raises(DataError, match=r"none: expected a folder to read; got: No such file"):
        images.read_folder(tmp_path / "none")


def test_without_pillow_one_sentence_says_how_to_get_it(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    refused(
        pets,
        "images are read with Pillow, which is not installed: pip install pillow$",
        pets / "train" / "cat" / "0.png",
    )
