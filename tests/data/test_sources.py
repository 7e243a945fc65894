"""load: names, and folders of IDX files under every name they go by."""

import gzip
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pareo.data import load, mnist
from pareo.errors import DataError

NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def encode(array: np.ndarray) -> bytes:
    code = {"uint8": 8, "int8": 9, "int32": 0x0C, "float32": 0x0D}[array.dtype.name]
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def arrays(shape: tuple[int, ...] = (6, 7), dtype: str = "uint8") -> list[np.ndarray]:
    images = np.arange(5 * np.prod(shape)).astype(dtype).reshape(5, *shape)
    labels = np.array([3, 0, 1, 2, 1], np.uint8)
    return [images, labels, images[:2], labels[:2]]


def fill(folder: Path, names: tuple[str, ...] = NAMES, suffix: str = "-ubyte") -> Path:
    for name, array in zip(names, arrays(), strict=True):
        (folder / f"{name}{suffix}").write_bytes(encode(array))
    return folder


def test_mnist_is_the_shipped_copy_and_takes_no_more_memory() -> None:
    data = load("mnist")
    assert data.name == "mnist"
    assert data.shape == (1, 28, 28)
    assert np.shares_memory(data.images, mnist.load().train_images)
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.labels.dtype == np.int64
    assert data.classes == 10


def test_a_folder_with_mnist_itself() -> None:
    data = load(Path(mnist.__file__).parent / "files" / "mnist")
    np.testing.assert_array_equal(data.test_images, load("mnist").test_images, strict=True)


@pytest.mark.parametrize(
    "names",
    [
        NAMES,
        tuple(f"emnist-digits-{name}".replace("t10k", "test") for name in NAMES),
        tuple(name.replace("-idx", ".idx") for name in NAMES),
    ],
)
def test_names_that_idx_files_go_by(tmp_path: Path, names: tuple[str, ...]) -> None:
    data = load(fill(tmp_path, names))
    images, labels, test_images, test_labels = arrays()
    np.testing.assert_array_equal(data.images, images[:, None], strict=True)
    np.testing.assert_array_equal(data.test_images, test_images[:, None], strict=True)
    assert data.labels.tolist() == labels.tolist()
    assert data.test_labels.tolist() == test_labels.tolist()
    assert data.classes == 4


def test_the_plain_file_is_read_where_there_are_both(tmp_path: Path) -> None:
    fill(tmp_path)
    plain = tmp_path / f"{NAMES[1]}-ubyte"
    packed = tmp_path / f"{NAMES[1]}-ubyte.gz"
    packed.write_bytes(b"broken")
    assert load(tmp_path).classes == 4
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert load(str(tmp_path)).classes == 4


@pytest.mark.parametrize(
    ("shape", "dtype"), [((7,), "float32"), ((3, 4, 4), "uint8"), ((4, 4), "int32")]
)
def test_other_shapes_and_types(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    given = arrays(shape, dtype)
    for name, array in zip(NAMES, given, strict=True):
        (tmp_path / f"{name}-ubyte").write_bytes(encode(array))
    data = load(tmp_path)
    assert data.images.dtype == dtype
    assert data.shape == (shape if len(shape) != 2 else (1, *shape))
    np.testing.assert_array_equal(data.images.reshape(given[0].shape), given[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (fill(tmp_path) / f"{name}-ubyte").unlink()
    message = f"expected the file {name}-ubyte or {name}-ubyte.gz; found neither"
    with pytest.raises(DataError, match=re.escape(str(tmp_path)) + ": " + message):
        load(tmp_path)


def test_two_files_for_one_part(tmp_path: Path) -> None:
    (fill(tmp_path) / "letters-train-images-idx3-ubyte.gz").write_bytes(b"")
    message = (
        "expected one file of train images; found letters-train-images-idx3-ubyte and "
        "train-images-idx3-ubyte"
    )
    with pytest.raises(DataError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        (NAMES[1], encode(arrays()[1][:4]), "expected 5 labels, one for each image in "
         "train-images-idx3-ubyte; got 4"),
        (NAMES[3], encode(arrays()[0]), r"expected whole numbers of shape \(N,\); got uint8 of "
         r"shape \(5, 6, 7\)"),
        (NAMES[3], encode(np.zeros(2, np.float32)), r"expected whole numbers of .*; got float32"),
        (NAMES[0], encode(arrays()[1]), r"expected images of shape \(N, H, W\), .*; got \(5,\)"),
        (NAMES[0], encode(arrays()[0])[:-1], "expected 226 bytes for uint8 of shape .*; got 225"),
        (NAMES[2], b"hello", "expected an IDX file, .*; got 68 65 6c 6c"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named(tmp_path: Path, name: str, raw: bytes, message: str) -> None:
    file = fill(tmp_path) / f"{name}-ubyte"
    file.write_bytes(raw)
    with pytest.raises(DataError, match=re.escape(str(file)) + ": " + message):
        load(tmp_path)


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    file = fill(tmp_path) / f"{NAMES[2]}-ubyte"
    file.write_bytes(encode(arrays((5, 7))[2]))
    with pytest.raises(DataError, match="expected test_images like images, each 1x6x7 uint8; got"):
        load(tmp_path)
    fill(tmp_path)
    (tmp_path / f"{NAMES[3]}-ubyte").write_bytes(encode(np.array([0, -1], np.int8)))
    with pytest.raises(DataError, match="expected test_labels from 0 to 3; got -1 at index 1"):
        load(tmp_path)


def test_what_is_none_of_these(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected four IDX files, .*; found none of them"):
        load(tmp_path)
    with pytest.raises(DataError, match=r"an .npz file; got 'mnits', which does not exist$"):
        load("mnits")
    file = tmp_path / "data.csv"
    file.write_text("1,2")
    with pytest.raises(DataError, match=r"data\.csv'$"):
        load(file)


def test_importing_data_does_not_import_pillow() -> None:
    code = "import sys, pareo.data; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
