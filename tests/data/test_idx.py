"""IDX files: a round trip of every dtype, and one sentence for each way a file can be wrong."""

import gzip
import re
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pareo.data import idx
from pareo.errors import DataError

CODES = {
    "uint8": 0x08,
    "int8": 0x09,
    "int16": 0x0B,
    "int32": 0x0C,
    "float32": 0x0D,
    "float64": 0x0E,
}
THREE_LABELS = bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4])

arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


def encode(array: np.ndarray) -> bytes:
    head = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.name], array.ndim, *array.shape
    )
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@settings(deadline=None)
@given(array=arrays, packed=st.booleans())
def test_what_is_written_is_read(array: np.ndarray, packed: bool) -> None:
    raw = encode(array)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "array-idx"
        file.write_bytes(gzip.compress(raw) if packed else raw)
        result = idx.read(file)
    assert result.dtype == array.dtype
    assert result.dtype.isnative
    assert result.flags.writeable
    np.testing.assert_array_equal(result, array, strict=True)


@settings(deadline=None, max_examples=300)
@given(
    start=st.sampled_from(
        [b"", b"\x1f\x8b\x08\x00", b"\0\0\x08", b"\0\0\x0e", b"\0\0\x0e\x03\0\0\0\0"]
    ),
    rest=st.binary(max_size=300),
)
def test_any_bytes_give_an_array_or_a_data_error(start: bytes, rest: bytes) -> None:
    raw = start + rest
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "anything"
        file.write_bytes(raw)
        try:
            outcome: bytes | str = encode(idx.read(file))
        except DataError as error:
            outcome = str(error)
    assert outcome == raw or str(file) in str(outcome)


def test_known_bytes_of_a_big_endian_matrix(tmp_path: Path) -> None:
    file = tmp_path / "matrix"
    file.write_bytes(bytes.fromhex("00000b02 00000002 00000003 0001 0002 0003 0100 ffff 8000"))
    np.testing.assert_array_equal(
        idx.read(str(file)), np.array([[1, 2, 3], [256, -1, -32768]], np.int16), strict=True
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "expected an IDX file.*; got no bytes"),
        (b"\0\0\x08", "expected an IDX file.*; got 00 00 08"),
        (b"\x89PNG....", "expected an IDX file.*; got 89 50 4e 47"),
        (b"\0\x01\x08\x01\0\0\0\0", "expected an IDX file.*; got 00 01 08 01"),
        (b"\0\0\x0a\x01\0\0\0\0", r"a dtype code \(08, 09, .*\).*; got 00 00 0a 01"),
        (b"\0\0\x08\x03\0\0\0\x01", "header of 16 bytes for 3 dimensions; got 8 bytes"),
        (THREE_LABELS[:-1], r"expected 11 bytes for uint8 of shape \(3,\); got 10 bytes"),
        (THREE_LABELS + b"\0", r"expected 11 bytes for uint8 of shape \(3,\); got 12 bytes"),
        (
            b"\0\0\x0e\x02" + b"\xff\xff\xff\x0f" * 2,
            "expected a shape that NumPy can hold; got 2 dimensions",
        ),
        (
            b"\0\0\x0e\x04" + b"\xff" * 12 + b"\0\0\0\0",
            "expected a shape that NumPy can hold; got 4 dimensions with 0 items",
        ),
        (b"\0\0\x08\x41" + b"\0\0\0\x01" * 65 + b"\0", "NumPy can hold; got 65 dimensions"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_file_is_named_with_what_was_expected(
    tmp_path: Path, raw: bytes, message: str, packed: bool
) -> None:
    file = tmp_path / "wrong-file"
    file.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(DataError, match=re.escape(str(file)) + ": .*" + message):
        idx.read(file)


def test_a_name_in_gz_must_hold_gzip(tmp_path: Path) -> None:
    file = tmp_path / "labels.gz"
    file.write_bytes(THREE_LABELS)
    with pytest.raises(DataError, match="starts with the bytes 1f 8b; got 00 00"):
        idx.read(file)


@pytest.mark.parametrize("damage", ["cut off", "altered checksum", "altered block", "no member"])
def test_broken_gzip(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress(THREE_LABELS)
    file = tmp_path / "labels.gz"
    file.write_bytes(
        {
            "cut off": whole[:-9],
            "altered checksum": whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
            "altered block": whole[:10] + b"\xff" + whole[11:],
            "no member": whole + b"junk",
        }[damage]
    )
    with pytest.raises(DataError, match="expected a complete gzip file; got an error"):
        idx.read(file)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: expected a file to read; got: No such file"):
        idx.read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected a file to read; got: Is a directory"):
        idx.read(tmp_path)
