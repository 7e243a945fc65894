"""CIFAR: both datasets from folders and archives, and one sentence for each way they are wrong."""

import gzip
import io
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pareo.data import Dataset, archive, cifar, load
from pareo.errors import DataError

TEN = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
HUNDRED = ["train.bin", "test.bin"]
TEN_NAMES = [
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
]


def ten(count: int = 2) -> dict[str, bytes]:
    """Six files; image i of file f has the label i + f and the pixels that `pixels` draws."""
    return {
        name: b"".join(bytes([i + f]) + pixels(f, i).tobytes() for i in range(count))
        for f, name in enumerate(TEN)
    }


def hundred(count: int = 3) -> dict[str, bytes]:
    """Two files; image i of file f has the coarse label i + f and the fine label 97 + i - f."""
    return {
        name: b"".join(bytes([i + f, 97 + i - f]) + pixels(f, i).tobytes() for i in range(count))
        for f, name in enumerate(HUNDRED)
    }


def pixels(file: int, image: int) -> np.ndarray:
    return np.random.default_rng([file, image]).integers(0, 256, (3, 32, 32), np.uint8)


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder


def packed(file: Path, files: dict[str, bytes], inside: str = "any/") -> Path:
    mode: Any = "w:gz" if file.name.endswith("gz") else "w"
    with tarfile.open(file, mode) as tar:
        for name, raw in files.items():
            member = tarfile.TarInfo(inside + name)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return file


def check_ten(data: Dataset) -> None:
    assert data.images.shape == (10, 3, 32, 32)
    assert data.images.dtype == np.uint8
    assert data.images.flags.c_contiguous
    for f in range(5):
        for i in range(2):
            np.testing.assert_array_equal(data.images[2 * f + i], pixels(f, i))
    np.testing.assert_array_equal(data.test_images, [pixels(5, 0), pixels(5, 1)])
    assert data.labels.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert data.test_labels.tolist() == [5, 6]
    assert data.classes == 10


def test_cifar10_from_a_folder(tmp_path: Path) -> None:
    data = load(f"cifar10:{fill(tmp_path, ten())}")
    check_ten(data)
    assert data.name == f"cifar10:{tmp_path}"
    assert data.class_names == ()


def test_class_names_end_with_an_empty_line(tmp_path: Path) -> None:
    files = ten() | {"batches.meta.txt": "\n".join([*TEN_NAMES, "", ""]).encode()}
    assert load(f"cifar10:{fill(tmp_path, files)}").class_names == tuple(TEN_NAMES)


def test_more_records_than_are_read_at_a_time(tmp_path: Path) -> None:
    raw = np.arange(1100 * 3073, dtype=np.uint32).astype(np.uint8).reshape(1100, 3073)
    raw[:, 0] %= 10
    data = load(f"cifar10:{fill(tmp_path, dict.fromkeys(TEN, raw.tobytes()))}")
    assert len(data.images) == 5500
    np.testing.assert_array_equal(data.images[1100:2200].reshape(1100, 3072), raw[:, 1:])
    np.testing.assert_array_equal(data.test_labels, raw[:, 0])
    raw[700, 0] = 10
    (tmp_path / TEN[3]).write_bytes(raw.tobytes())
    with pytest.raises(DataError, match=r"data_batch_4\.bin: .*; got 10 in record 700$"):
        load(f"cifar10:{tmp_path}")


def test_cifar100_with_fine_and_coarse_labels(tmp_path: Path) -> None:
    names = {
        "fine_label_names.txt": "\n".join(f"fine {i}" for i in range(100)).encode(),
        "coarse_label_names.txt": "\r\n".join(f"coarse {i}" for i in range(20)).encode(),
    }
    fill(tmp_path, hundred() | names)
    fine, coarse = load(f"cifar100:{tmp_path}"), load(f"cifar100-coarse:{tmp_path}")
    assert (fine.classes, coarse.classes) == (100, 20)
    assert fine.labels.tolist() == [97, 98, 99]
    assert fine.test_labels.tolist() == [96, 97, 98]
    assert coarse.labels.tolist() == [0, 1, 2]
    assert coarse.test_labels.tolist() == [1, 2, 3]
    assert (fine.class_names[99], coarse.class_names[19]) == ("fine 99", "coarse 19")
    for data in (fine, coarse):
        np.testing.assert_array_equal(data.images, [pixels(0, i) for i in range(3)])
        np.testing.assert_array_equal(data.test_images, [pixels(1, i) for i in range(3)])


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "mine.tgz", "mine.tar"])
def test_an_archive_is_read_without_extracting(tmp_path: Path, name: str) -> None:
    files = ten() | {"batches.meta.txt": "\n".join(TEN_NAMES).encode(), "readme.html": b"<p>"}
    file = packed(tmp_path / name, files)
    data = load(f"cifar10:{file}")
    check_ten(data)
    assert data.class_names == tuple(TEN_NAMES)
    assert list(tmp_path.iterdir()) == [file]


def test_places_where_the_files_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    """In the folder, in the folder that the archive unpacks to, in the archive; in this order."""
    other = {name: raw[:3073] for name, raw in ten().items()}
    packed(tmp_path / "cifar-10-binary.tar.gz", ten())
    check_ten(load(f"cifar10:{tmp_path}"))
    fill(tmp_path / "cifar-10-batches-bin", other)
    assert len(load(f"cifar10:{tmp_path}").images) == 5
    fill(tmp_path, ten())
    check_ten(load(f"cifar10:{tmp_path}"))
    monkeypatch.setenv("HOME", str(tmp_path))
    check_ten(load("cifar10:~"))


def test_without_a_prefix(tmp_path: Path) -> None:
    folder = fill(tmp_path / "ten", ten())
    check_ten(load(folder))
    assert load(str(folder)).name == str(folder)
    assert load(fill(tmp_path / "hundred", hundred())).classes == 100
    check_ten(load(packed(tmp_path / "cifar-10-binary.tar.gz", ten())))
    assert load(packed(tmp_path / "cifar-100-binary.tar.gz", hundred())).classes == 100
    (folder / TEN[0]).unlink()
    with pytest.raises(DataError, match=r"ten: expected the file data_batch_1\.bin; found none"):
        load(folder)


def test_a_folder_of_images_beside_a_train_bin_is_still_one(tmp_path: Path) -> None:
    """Such a folder was read as images before CIFAR was."""
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.pgm").write_bytes(b"P5 1 1 255 " + bytes([number]))
    (tmp_path / "train.bin").write_bytes(b"")
    pytest.importorskip("PIL")
    assert load(tmp_path).class_names == ("cats", "dogs")


PICKLED = {
    "cifar10": ("data_batch_1", "data_batch_2", "test_batch", "batches.meta"),
    "cifar100": ("train", "test", "meta"),
}


@pytest.mark.parametrize("kind", PICKLED)
@pytest.mark.parametrize("form", ["files", "folder", "archive", "archive of another name", "bare"])
def test_the_pickled_version_is_refused(tmp_path: Path, kind: str, form: str) -> None:
    short = f"cifar-{kind.removeprefix('cifar')}"
    files = dict.fromkeys(PICKLED[kind], b"cos\nsystem\n(S'false'\ntR.")
    source = f"{kind}:{tmp_path}"
    if form in ("files", "bare"):
        fill(tmp_path, files)
        source = str(tmp_path) if form == "bare" else source
    elif form == "folder":
        fill(tmp_path / {"cifar10": "cifar-10-batches-py"}.get(kind, "cifar-100-python"), files)
    elif form == "archive":
        packed(tmp_path / f"{short}-python.tar.gz", files)
    else:
        source = f"{kind}:{packed(tmp_path / 'mine.tar.gz', files)}"
    message = (
        f"^{re.escape(str(tmp_path))}.*: expected CIFAR-{short[6:]}'s binary version; got the "
        f"Python version, which is pickled and never loaded, .*: download {short}-binary.tar.gz"
    )
    with pytest.raises(DataError, match=message):
        load(source)


def test_the_pickled_archive_itself_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cifar-100-python.tar.gz"
    file.write_bytes(b"")
    for source in (file, f"cifar100:{file}"):
        with pytest.raises(DataError, match=r"pickled .*: download cifar-100-binary\.tar\.gz"):
            load(source)


@pytest.mark.parametrize("name", [*TEN, *HUNDRED])
@pytest.mark.parametrize("archived", [False, True])
def test_a_missing_file_is_named(tmp_path: Path, name: str, archived: bool) -> None:
    kind, files = ("cifar10", ten(1)) if name in TEN else ("cifar100", hundred(1))
    del files[name]
    place = packed(tmp_path / "some.tar", files) if archived else fill(tmp_path, files)
    with pytest.raises(DataError, match=f"^{re.escape(f'{place}: expected the file {name}; ')}"):
        load(f"{kind}:{place}")


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        (TEN[2], b"", "expected records of 3,073 bytes, at least one; got 0 bytes"),
        (TEN[2], bytes(3074), "expected records of 3,073 bytes, at least one; got 3,074 bytes"),
        (TEN[5], bytes(3073 * 2 - 1), "expected records of 3,073 bytes, .*; got 6,145 bytes"),
        (TEN[1], bytes(3073) + b"\x0a" + bytes(3072), "labels from 0 to 9; got 10 in record 1"),
        (TEN[5], b"\xff" + bytes(3072), "expected labels from 0 to 9; got 255 in record 0"),
        (HUNDRED[0], bytes(3073), "expected records of 3,074 bytes, at least one; got 3,073"),
        (HUNDRED[0], b"\x14\0" + bytes(3072), "coarse labels from 0 to 19; got 20 in record 0"),
        (HUNDRED[1], b"\0\x64" + bytes(3072), "fine labels from 0 to 99; got 100 in record 0"),
        ("batches.meta.txt", b"cat\ndog", "expected 10 names of classes, one on each .*; got 2"),
        ("batches.meta.txt", b"\xff\xfe", "expected names of classes in UTF-8; got other bytes"),
        ("batches.meta.txt", bytes(70_000), "expected 10 names of classes; got 70,000 bytes"),
        ("fine_label_names.txt", b"", "expected 100 names of classes, one on each line; got 0"),
    ],
)
@pytest.mark.parametrize("archived", [False, True])
def test_a_wrong_file_is_named(
    tmp_path: Path, name: str, raw: bytes, message: str, archived: bool
) -> None:
    kind, files = (
        ("cifar100", hundred(1))
        if name.startswith(("train.", "test.", "fine"))
        else ("cifar10", ten())
    )
    files[name] = raw
    if archived:
        place = packed(tmp_path / "some.tar.gz", files)
        shown = f"{place}: {name}: "
    else:
        place = fill(tmp_path, files)
        shown = f"{place / name}: "
    with pytest.raises(DataError, match=f"^{re.escape(shown)}.*{message}"):
        load(f"{kind}:{place}")


def test_a_coarse_label_is_checked_where_fine_ones_are_used(tmp_path: Path) -> None:
    fill(tmp_path, hundred() | {"test.bin": b"\x14\0" + bytes(3072)})
    for kind in ("cifar100", "cifar100-coarse"):
        with pytest.raises(DataError, match=r"test\.bin: expected coarse labels from 0 to 19"):
            load(f"{kind}:{tmp_path}")


def test_what_is_no_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: expected data_batch_1.bin .*no such folder$"):
        load(f"cifar10:{tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match=r"expected train.bin .* or cifar-100-binary.* neither$"):
        load(f"cifar100:{tmp_path}")
    (tmp_path / "x.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"x\.zip: expected a folder, or an archive such as"):
        load(f"cifar10:{tmp_path / 'x.zip'}")
    with pytest.raises(
        DataError, match=r"'cifar10:FOLDER', .*; got 'cifar10', which does not exist"
    ):
        load("cifar10")
    with pytest.raises(DataError, match=r"expected one of cifar10, cifar100, .*; got 'cifar20'"):
        cifar.read(tmp_path, "cifar20")
    with pytest.raises(DataError, match="expected the file data_batch_2"):
        cifar.read(fill(tmp_path, {TEN[0]: bytes(3073)}))


def test_sizes_are_checked_before_memory_is_taken(tmp_path: Path, monkeypatch: Any) -> None:
    """A file with a hole has a size but no content; a wrong file after it is noticed first."""
    fill(tmp_path, ten() | {TEN[5]: b"short"})
    with (tmp_path / TEN[0]).open("wb") as file:
        file.truncate(3073 << 30)
    with pytest.raises(DataError, match=r"test_batch\.bin: expected records of 3,073 bytes"):
        load(f"cifar10:{tmp_path}")

    def full(*_: Any) -> None:
        raise MemoryError

    fill(tmp_path, ten())
    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(DataError, match="expected images that fit in memory; got 10"):
        load(f"cifar10:{tmp_path}")


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path) -> None:
    file = tmp_path / "bomb.tar.gz"
    file.write_bytes(gzip.compress(bytes(4 << 20)))
    with pytest.raises(DataError, match=r"bomb\.tar\.gz: expected an archive of at most 1,000 by"):
        archive.read(file, 1000)


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "expected a tar archive; got an error: "),
        (b"no archive at all" * 100, "expected a tar archive; got an error: "),
        (b"\x1f\x8b", "expected a complete gzip file; got an error: "),
        (gzip.compress(bytes(9999), mtime=0)[:-9], "expected a complete gzip file; got an error: "),
        (
            header("a", 1 << 40),
            "expected complete files; got one of 1,099,511,627,776 bytes in 512",
        ),
        (header("a", -512), "expected complete files; got one of -512 bytes"),
        (header("x/a", 0) + header("y/a", 0), "expected one file named a; got two"),
    ],
)
def test_a_wrong_archive_is_named(tmp_path: Path, raw: bytes, message: str) -> None:
    file = tmp_path / "some.tar"
    file.write_bytes(raw)
    with pytest.raises(DataError, match=f"^{re.escape(str(file))}: {message}"):
        archive.read(file, 1 << 20)


def test_links_and_folders_in_an_archive_are_no_files(tmp_path: Path) -> None:
    """A link is not followed, wherever it leads."""
    file = tmp_path / "some.tar"
    with tarfile.open(file, "w") as tar:
        for name, kind in (("a", tarfile.SYMTYPE), ("b", tarfile.LNKTYPE), ("c", tarfile.DIRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        tar.addfile(tarfile.TarInfo("d"), io.BytesIO())
    assert set(archive.read(file, 1 << 20)) == {"d"}


small = st.sampled_from([b"", b"\0", b"\x09" * 3072, bytes(3073), b"\x0a" + bytes(3072)])


@settings(deadline=None, max_examples=60)
@given(files=st.fixed_dictionaries({}, optional={n: small | st.binary() for n in [*TEN, *HUNDRED]}),
       kind=st.sampled_from(sorted(cifar.KINDS)))  # fmt: skip
@example(files=ten(1), kind="cifar10")
def test_any_folder_gives_its_records_or_a_data_error(files: dict[str, bytes], kind: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        fill(Path(top), files)
        names = TEN if kind == "cifar10" else HUNDRED
        try:
            data: Dataset | str = load(f"{kind}:{top}")
        except DataError as error:
            data = str(error)
    if isinstance(data, str):
        assert data.startswith(top)
        return
    skip = 1 if kind == "cifar10" else 2
    size = 3072 + skip
    rows = [
        files[name][at : at + size] for name in names for at in range(0, len(files[name]), size)
    ]
    found = [*data.images, *data.test_images]
    assert [row[skip:] for row in rows] == [image.tobytes() for image in found]
    byte = 1 if kind == "cifar100" else 0
    assert [row[byte] for row in rows] == [*data.labels, *data.test_labels]


A, B = b"A" * 700, b"B" * 30
# Each header and each content takes a whole number of blocks of 512 bytes.
WHOLE = header("a", 700) + A.ljust(1024, b"\0") + header("b", 30) + B.ljust(512, b"\0")


def with_checksums(raw: bytearray) -> bytes:
    """The archive with correct checksums in its two headers, so that damage is read further."""
    for start in (0, 512 * 3):
        raw[start + 148 : start + 156] = b"        "
        total = sum(raw[start : start + 512])
        raw[start + 148 : start + 156] = f"{total:06o}\0 ".encode()
    return bytes(raw)


@settings(deadline=None, max_examples=200)
@given(
    damage=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6),
    cut=st.just(0) | st.integers(0, len(WHOLE)),
    repair=st.booleans(),
    zipped=st.booleans(),
)
def test_a_damaged_archive_gives_files_inside_it_or_a_data_error(
    damage: list[tuple[int, int]], cut: int, repair: bool, zipped: bool
) -> None:
    raw = bytearray(WHOLE)
    for place, value in damage:
        raw[place] = value
    plain = (with_checksums(raw) if repair else bytes(raw))[: len(raw) - cut]
    with tempfile.TemporaryDirectory() as top:
        file = Path(top) / "damaged.tar"
        file.write_bytes(gzip.compress(plain) if zipped else plain)
        try:
            found: dict[str, memoryview] | str = archive.read(file, 1 << 20)
        except DataError as error:
            found = str(error)
    if isinstance(found, str):
        assert found.startswith(str(file))
        return
    for content in found.values():
        assert bytes(content) in plain
    if not damage and not cut:
        assert {name: bytes(content) for name, content in found.items()} == {"a": A, "b": B}
