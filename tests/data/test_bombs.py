"""Small files that would unpack to much: refused before memory or time is spent on them."""

import gzip
import resource
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pareo.data import filling, idx, load
from pareo.errors import DataError

METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_a_small_gzip_file_takes_little_memory(tmp_path: Path) -> None:
    head = b"\0\0\x08\x03" + struct.pack(">3I", 1000, 1024, 1024)
    with gzip.open(tmp_path / "images.gz", "wb", 1) as stream:
        stream.write(head)
        for _ in range(4):
            stream.write(bytes(1 << 20))
    before = peak()
    with pytest.raises(DataError, match=r"expected 1,048,576,016 bytes .* which are too few"):
        idx.read(tmp_path / "images.gz")
    assert peak() - before < 64 << 20


@pytest.mark.parametrize("method", METHODS)
def test_a_small_npz_file_takes_little_memory(
    tmp_path: Path, method: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "FREE", 4 << 20)
    file = tmp_path / "bomb.npz"
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
        with archive.open("images.npy", "w") as stream:
            shape = {"descr": "|u1", "fortran_order": False, "shape": (8, 1024, 1024)}
            np.lib.format.write_array_header_1_0(stream, shape)
            for _ in range(8):
                stream.write(bytes(1 << 20))
        archive.writestr("labels.npy", b"")
    before = peak()
    with pytest.raises(DataError, match=r"expected 8,388,736 bytes .* which are too few"):
        load(file)
    assert peak() - before < 64 << 20


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, *METHODS])
def test_every_method_of_zip_is_read_and_damage_is_a_sentence(tmp_path: Path, method: int) -> None:
    file = tmp_path / "data.npz"
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8), np.uint8)
    plain = tmp_path / "plain.npz"
    np.savez(plain, images=images, labels=np.arange(12) % 2)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(file, "w", method) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    np.testing.assert_array_equal(load(file).images[:, 0], images[:10])
    raw = bytearray(file.read_bytes())
    raw[300:340] = bytes(40)
    file.write_bytes(raw)
    with pytest.raises(DataError, match=r"data\.npz: "):
        load(file)


@pytest.mark.parametrize("label", [10**9, 2**64 - 1])
@pytest.mark.parametrize("tested", [False, True])
def test_labels_that_no_dataset_has(tmp_path: Path, label: int, tested: bool) -> None:
    images, labels = np.zeros((4, 8, 8)), np.array([0, 1, 2, label], np.uint64)
    more = {"test_images": images, "test_labels": labels} if tested else {}
    np.savez(tmp_path / "a.npz", images=images, labels=labels, **more)
    with pytest.raises(DataError, match=f"at most 4,194,304 classes.*; got the label {label}"):
        load(tmp_path / "a.npz")
