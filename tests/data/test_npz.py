"""NPZ files: every layout that is read, and one sentence for each way a file can be wrong."""

import io
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo.data import load, npz
from pareo.errors import DataError

IMAGES = np.arange(12 * 8 * 9).reshape(12, 8, 9).astype(np.uint8)
LABELS = np.arange(12) % 3


def saved(folder: Path, compress: bool = False, **arrays: Any) -> Path:
    file = folder / "data.npz"
    (np.savez_compressed if compress else np.savez)(file, **arrays)
    return file


def zipped(folder: Path, **members: bytes) -> Path:
    file = folder / "data.npz"
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in members.items():
            archive.writestr(f"{name}.npy", raw)
    return file


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize("compress", [False, True])
def test_our_names(tmp_path: Path, compress: bool) -> None:
    file = saved(
        tmp_path,
        compress,
        images=IMAGES,
        labels=LABELS,
        test_images=IMAGES[:2],
        test_labels=np.array([4, 0]),
        other=np.zeros(3),
    )
    data = load(file)
    assert data.name == str(file)
    np.testing.assert_array_equal(data.images, IMAGES[:, None], strict=True)
    np.testing.assert_array_equal(data.test_images, IMAGES[:2, None], strict=True)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == 5


def test_keras_names_with_channels_last_and_labels_in_a_column(tmp_path: Path) -> None:
    images = np.arange(4 * 8 * 9 * 3).reshape(4, 8, 9, 3).astype(np.uint8)
    labels = np.array([[0], [1], [1], [0]], np.uint8)
    data = load(
        str(
            saved(tmp_path, x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1]),
        )
    )
    assert data.shape == (3, 8, 9)
    assert data.images.flags.c_contiguous
    np.testing.assert_array_equal(data.images[2, 1], images[2, :, :, 1])
    assert data.labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("shape", [(12, 5), (12, 3, 8, 8), (12, 3, 8, 3), (12, 1, 1, 1)])
def test_features_and_channels_first_stay_as_they_are(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    images = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    data = load(saved(tmp_path, images=images, labels=LABELS))
    np.testing.assert_array_equal(data.images, images[:9], strict=True)


def test_without_a_test_part_the_last_of_each_class_are_it(tmp_path: Path) -> None:
    data = load(saved(tmp_path, images=IMAGES, labels=np.sort(LABELS)))
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    np.testing.assert_array_equal(data.test_images[:, 0], IMAGES[[3, 7, 11]])


def test_big_endian_and_fortran_order(tmp_path: Path) -> None:
    images = np.asfortranarray(np.arange(24, dtype=">f4").reshape(12, 2))
    data = load(saved(tmp_path, images=images, labels=LABELS.astype(">i2")))
    assert data.images.dtype.isnative
    assert data.images[:3].tolist() == [[0, 1], [2, 3], [4, 5]]


class Trap:
    """Were it unpickled, the test would not survive it."""

    def __reduce__(self) -> Any:
        return exit, (3,)


def test_an_object_is_never_loaded(tmp_path: Path) -> None:
    file = saved(tmp_path, images=IMAGES, labels=np.array([Trap()] * 12, object))
    message = "expected 'labels' to hold numbers; got Python objects, which are never loaded"
    with pytest.raises(DataError, match=re.escape(str(file)) + ": " + message):
        load(file)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pixels": IMAGES}, "expected the arrays images and labels.*; got pixels"),
        ({}, "; got no arrays"),
        ({"images": IMAGES, "labels": LABELS, "test_images": IMAGES}, "; got images, labels, test"),
        ({"x_train": IMAGES, "labels": LABELS}, "; got x_train, labels"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "got 12 images and 5 labels"),
        ({"images": IMAGES, "labels": LABELS - 1}, "expected labels from 0 to 1; got -1 at index"),
        ({"images": IMAGES, "labels": LABELS / 2}, "labels to be whole numbers .*; got float64"),
        ({"images": IMAGES, "labels": np.eye(12, dtype=int)}, r"int64 of shape \(12, 12\)"),
        ({"images": IMAGES[0, 0], "labels": LABELS[:9]}, r"\(N, features\); got \(9,\)"),
        ({"images": IMAGES.astype("U"), "labels": LABELS}, "'images' to hold numbers; got str"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "expected at least one image; got none"),
        (
            {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:, 1:], "y_test": LABELS},
            "expected test_images like images, each 1x8x9 uint8; got each 1x7x9 uint8",
        ),
    ],
)  # fmt: skip
def test_wrong_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    file = saved(tmp_path, **arrays)
    with pytest.raises(DataError, match=re.escape(str(file)) + ": .*" + message):
        load(file)


def test_a_header_that_promises_too_much_takes_no_memory(tmp_path: Path) -> None:
    raw = npy(LABELS)
    false = raw.replace(b"(12,)", b"(99999999999,)").replace(b" " * 9 + b"\n", b"\n")
    assert len(false) == len(raw)
    file = zipped(tmp_path, images=npy(IMAGES), labels=false)
    message = r"expected 800,000,000,120 bytes for 'labels', int64 of shape .*; got 224 bytes"
    with pytest.raises(DataError, match=message):
        load(file)


@pytest.mark.parametrize(
    "labels",
    [b"", b"12345678", b"\x93NUMPY\x07\x00", npy(LABELS).replace(b"'<i8'", b"'?!8'"),
     npy(LABELS).replace(b"(12,), }", b"(-12,),}"), npy(LABELS).replace(b"{", b"(")],
)  # fmt: skip
def test_a_member_that_is_no_array(tmp_path: Path, labels: bytes) -> None:
    file = zipped(tmp_path, images=npy(IMAGES), labels=labels)
    message = f"expected 'labels' to be a NumPy array; got {len(labels)} bytes that are not one"
    with pytest.raises(DataError, match=message):
        load(file)


def test_a_cut_off_file_an_altered_one_and_no_zip_at_all(tmp_path: Path) -> None:
    file = saved(tmp_path, compress=True, images=IMAGES, labels=LABELS)
    raw = file.read_bytes()
    file.write_bytes(raw[:-10])
    message = f"expected a complete NPZ file; got {len(raw) - 10:,} bytes that are not one: "
    with pytest.raises(DataError, match=message):
        load(file)
    file.write_bytes(raw[:150] + bytes([raw[150] ^ 255]) + raw[151:])
    with pytest.raises(DataError, match="expected a complete NPZ file; got"):
        load(file)
    file.write_bytes(b"not a zip")
    with pytest.raises(DataError, match="got 9 bytes that are not one: File is not a zip file"):
        load(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no.npz: expected a file to read; got: No such file"):
        npz.read(tmp_path / "no.npz")


@given(position=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_any_altered_byte_gives_the_data_or_a_data_error(position: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = saved(Path(folder), images=IMAGES, labels=LABELS)
        raw = bytearray(file.read_bytes())
        raw[position % len(raw)] = byte
        file.write_bytes(raw)
        try:
            outcome: np.ndarray | str = load(file).images
        except DataError as error:
            outcome = str(error)
    if isinstance(outcome, str):
        assert str(file) in outcome
    else:
        np.testing.assert_array_equal(outcome, IMAGES[:9, None])
