"""NPY files: what NumPy writes is read, and what it would not write is one sentence."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pareo.data import npy
from pareo.errors import DataError


def written(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


KINDS = st.sampled_from(["|b1", "|u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8"]).map(np.dtype)


SHAPES = arrays.array_shapes(min_dims=0, min_side=0)
VERSIONS = st.sampled_from([(1, 0), (2, 0), (3, 0)])


@settings(max_examples=40)
@given(KINDS.flatmap(lambda kind: arrays.arrays(kind, SHAPES)), st.booleans(), VERSIONS)
def test_it_is_what_numpy_reads(array: np.ndarray, fortran: bool, version: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    array = np.asfortranarray(array) if fortran else array
    np.lib.format.write_array(buffer, array, version=version)
    buffer.seek(0)
    header = npy.read_header(buffer)
    found, done = npy.read_body(buffer, header)
    assert header.length + done == header.size == len(buffer.getvalue())
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")


def header_of(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1") + data


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "starts with no bytes"),
        (b"PK\x03\x04....", "starts with 50 4b"),
        (b"\x93NUMPY\x09\x00", "starts with 93"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4,294,967,295 bytes"),
        (written(np.arange(3))[:40], "an incomplete header"),
        (header_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "never loaded"),
        (header_of("{'descr': [('a', 'u1')], 'fortran_order': False, 'shape': (1,), }"), "records"),
        (header_of("{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }"), "str96"),
        (header_of("{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }"), "the dtype <f3"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "order and"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1e9,), }"), "order and"),
        (header_of("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }"), "order and shape"),
        (header_of("{'fortran_order': False, 'shape': (1,), }"), "without dtype"),
        (header_of("[" * 500), "order and shape"),
        (header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }" % ("1," * 40)),
         "40 dimensions"),
        (header_of("{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }" % ("999999," * 9)),
         "9 dimensions that NumPy cannot hold"),
        (header_of("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", b"a"),
         r"for float64 of shape \(1000000000000,\); got 80 bytes"),
        (written(np.arange(3)) + b"x", "for int64 .*; got 153 bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, raw: bytes, said: str) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(raw)
    with pytest.raises(DataError, match=r"a\.npy: expected .*" + said):
        npy.read(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.npy"):
        with pytest.raises(DataError, match="expected a file to read"):
            npy.read(path)
