"""Files from outside that are right in their form and wrong in what they say.

Bytes that flip at random are mostly caught by a checksum or a parser. Here each part of a format is
written anew: entries that overlap, chunks with right checksums, views in the place of tables.
"""

import contextlib
import gzip
import io
import json
import os
import sqlite3
import struct
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from faults import Attempt, Kind, expect
from faults.files import (
    DTYPES,
    IMAGES,
    LABELS,
    METHODS,
    SHAPES,
    SPACE,
    TOML,
    npy_bytes,
    predicted,
    proposal,
    published,
    signed,
    sound,
    trained,
    used,
)  # fmt: skip
from faults.mutate import VALUES, places
from pareo.data import load
from pareo.errors import DataError


def own_npy(random: Random, array: np.ndarray) -> bytes:
    """An NPY file of any version, with any order of keys, spaces and padding."""
    entries = [
        ("descr", f"'{array.dtype.str}'"), ("fortran_order", random.choice(("False", "True"))),
        ("shape", str(array.shape)),
    ]  # fmt: skip
    random.shuffle(entries)
    if random.random() < 0.3:
        entries.append(random.choice((entries[0], ("more", "1"), ("descr", "'|O'"))))
    if random.random() < 0.3:
        at = random.randrange(len(entries))
        odd = random.choice((*SHAPES, *DTYPES)).decode()
        entries[at] = (entries[at][0], odd)
    space = random.choice(("", " ", "\t", "\n", " " * 300, "\u3000"))
    text = "{" + ",".join(f"'{key}':{space}{value}" for key, value in entries) + "}"
    text += " " * random.choice((0, 7, 60_000)) + "\n"
    version = random.choice(((1, 0), (2, 0), (3, 0), (4, 0), (0, 0), (1, 1)))
    raw = text.encode("utf-8" if version[0] > 2 else "latin-1", "replace")
    if version[0] == 1:
        raw = raw[:65535]
    size = struct.pack("<H" if version[0] == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes(version) + size + raw + array.tobytes()


def npz(random: Random, folder: Path) -> Attempt:
    """A zip whose entries are doubled, nested, encrypted by their flags, or lie over each other."""
    file = folder / "data.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", random.choice(METHODS)) as archive:
        warnings.simplefilter("ignore")
        for name, array in (("images", IMAGES), ("labels", LABELS)):
            make = random.choice((own_npy, own_npy, npy_bytes))
            archive.writestr(f"{name}.npy", make(random, array))
        match random.randrange(8):
            case 0:
                archive.writestr("images.npy", own_npy(random, IMAGES[:3]))
            case 1:
                archive.writestr(random.choice(("../images.npy", "/images.npy", "a\0b.npy")), b"x")
            case 2:
                archive.writestr("labels", own_npy(random, LABELS))
            case 3:
                archive.writestr("images.npy/", b"")
            case 4:
                for number in range(random.choice((3, 3000))):
                    archive.writestr(f"{number}.npy", b"")
            case 5:
                archive.writestr("x_train.npy", own_npy(random, IMAGES))
            case 6:
                archive.comment = b"PK\x05\x06" + bytes(random.randrange(18, 100))
    raw = bytearray(file.read_bytes())
    match random.randrange(6):
        case 0:  # all entries are the first one's bytes
            first = raw.find(b"PK\x01\x02")
            at = raw.find(b"PK\x01\x02", first + 4)
            if at > 0:
                raw[at + 42 : at + 46] = raw[first + 42 : first + 46]
        case 1:  # encrypted, patched, or with sizes behind the data
            for mark, place in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
                at = raw.find(mark) + place
                raw[at : at + 2] = random.choice((b"\x01\0", b"\x20\0", b"\x08\0", b"\x00\x08"))
        case 2:  # the directory is elsewhere, or has other counts
            at = raw.rfind(b"PK\x05\x06") + random.choice((4, 6, 8, 10, 12, 16))
            raw[at : at + 2] = random.choice((b"\0\0", b"\xff\xff", b"\x01\0"))
        case 3:  # something before it
            raw[:0] = random.randbytes(random.choice((1, 1000)))
    file.write_bytes(bytes(raw))
    return lambda: sound(load(file))


KINDS_OF_IDX = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def idx(random: Random, folder: Path) -> Attempt:
    """IDX files of every type and number of dimensions, in gzip of several members."""
    for part, count in (("train", 12), ("t10k", 2)):
        for what, array in (("images", IMAGES[:count]), ("labels", LABELS[:count])):
            code = random.choice([0x08] * 6 + list(KINDS_OF_IDX) + [0x0A, 0xFF])
            array = array.astype(KINDS_OF_IDX.get(code, "u1"))
            if random.random() < 0.1 and array.dtype.kind == "f":
                array.reshape(-1)[random.randrange(array.size)] = random.choice((np.nan, 1e300, -1))
            shape: tuple[int, ...] = array.shape
            if random.random() < 0.2:
                shape = random.choice(
                    (array.shape[::-1], (*array.shape, 1), (1,) * 200, (0, *array.shape[1:]), ())
                )
            raw = bytes([0, 0, code, len(shape)])
            raw += b"".join(struct.pack(">I", size) for size in shape) + array.tobytes()
            match random.randrange(8):
                case 0:
                    raw += random.randbytes(random.choice((1, 5000)))
                case 1:
                    raw = gzip.compress(raw[: len(raw) // 2]) + gzip.compress(raw[len(raw) // 2 :])
                case 2:
                    raw = gzip.compress(gzip.compress(raw))
                case 3:
                    raw = gzip.compress(raw)
                    raw = raw[:-4] + struct.pack("<I", random.choice((0, 2**31, 2**32 - 1)))
                case 4:
                    raw = gzip.compress(raw) + bytes(random.choice((1, 512)))
            (folder / f"{part}-{what}-idx{array.ndim}-ubyte").write_bytes(raw)
    return lambda: sound(load(folder))


def png(random: Random) -> bytes:
    """A PNG of odd chunks, all with right checksums."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    width, height = (random.choice((0, 1, 6, 6, 6, 65535, 2**31 - 1)) for _ in "wh")
    depth, colour = random.choice((1, 2, 4, 8, 8, 8, 16, 3)), random.choice((0, 0, 2, 3, 4, 6, 7))
    pixels = zlib.compress(bytes(random.choice((0, 42, 7 * 6 * 8, 1 << 20))))
    laced = random.choice((0, 1))
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, laced)
    inside = [chunk(b"IHDR", head), chunk(b"IDAT", pixels)]
    extra = (
        chunk(b"PLTE", random.randbytes(random.choice((0, 3, 769)))),
        chunk(b"tRNS", random.randbytes(random.choice((0, 1, 300)))),
        chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(80 << 20), 9)),
        chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(80 << 20), 9)),
        chunk(b"iTXt", b"a\0\x01\0\0\0" + zlib.compress(bytes(2 << 20))),
        chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)),
        chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 9, 8, 0, 0, 0, 0)),
        chunk(b"eXIf", b"II*\0" + struct.pack("<I", random.choice((8, 2**31)))),
    )
    for _ in range(random.choice((0, 1, 1, 2))):
        inside.insert(random.randrange(len(inside) + 1), random.choice(extra))
    return b"\x89PNG\r\n\x1a\n" + b"".join(inside) + chunk(b"IEND", b"")


def tiff(random: Random) -> bytes:
    """A TIFF whose tags have other counts, types and places."""
    tags = {256: 6, 257: 6, 258: 8, 259: 1, 262: 1, 273: 300, 277: 1, 278: 6, 279: 36}
    tag = random.choice(list(tags))
    tags[tag] = random.choice((0, 1, 5, 34712, 50000, 2**16, 2**31, 2**32 - 1))
    count = random.choice((1, 1, 1, 0, 2**30))
    entries = b"".join(
        struct.pack("<HHII", one, 4, count if one == tag else 1, value)
        for one, value in sorted(tags.items())
    )
    after = struct.pack("<I", random.choice((0, 0, 8, 2**31)))  # 8 is this directory again
    return (b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + after).ljust(
        300, b"\0"
    ) + bytes(36)


def pictures(random: Random, folder: Path) -> Attempt:
    """Folders of pictures that are odd in their parts, or are no files at all."""
    from PIL import Image

    for name in ("a", "b"):
        (folder / name).mkdir()
        for number in range(2):
            Image.fromarray(IMAGES[number]).save(folder / name / f"{number}.png")
    odd = folder / "a" / "odd.png"
    match random.randrange(12):
        case 0:
            odd.mkdir()
        case 1:
            odd.symlink_to(odd)
        case 2:
            os.mkfifo(odd)
        case 3:
            odd.symlink_to("/dev/zero")
        case 4:
            (folder / "a" / "loop").symlink_to(folder)
        case 5:
            (folder / random.choice(("c", "c\nd", "c\x1b[31m", "ü" * 60))).mkdir()
        case 6 | 7 | 8:
            odd.with_suffix(".tif").write_bytes(tiff(random))
        case _:
            odd.write_bytes(png(random))
    return lambda: sound(load(folder))


def cifar(random: Random, folder: Path) -> Attempt:
    """CIFAR-10 in its binary version, as files or as an archive, both with odd parts."""
    record = bytes([3]) + bytes(3072)
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    files = dict.fromkeys(names, record * 4)
    files["batches.meta.txt"] = b"\n".join(b"class%d" % number for number in range(10)) + b"\n"
    name = random.choice(list(files))
    match random.randrange(8):
        case 0:
            files[name] = files[name][:-1]
        case 1:
            files[name] = bytes([random.choice((10, 255))]) + files[name][1:]
        case 2:
            files.pop(name)
        case 3:
            files["batches.meta.txt"] = random.choice((b"\xff\xfe" * 9, b"", b"a\n" * 40_000))
        case 4:
            files[name] = b""
    where = "cifar10:" + str(folder)
    if random.random() < 0.5:
        for one, raw in files.items():
            (folder / one).write_bytes(raw)
    else:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for one, raw in files.items():
                info = tarfile.TarInfo(random.choice(("cifar-10-batches-bin/", "", "../")) + one)
                info.size = len(raw)
                if random.random() < 0.05:
                    info.type = random.choice((tarfile.SYMTYPE, tarfile.FIFOTYPE, b"S", b"x", b"Z"))
                    info.linkname = "/dev/zero"
                archive.addfile(info, io.BytesIO(raw))
        raw = bytearray(made.getvalue())
        if random.random() < 0.4:  # a field of a header, with its right checksum
            at = random.choice(
                [at for at in range(0, len(raw), 512) if raw[at + 257 :][:5] == b"ustar"]
            )
            begin, size = random.choice(((100, 8), (124, 12), (136, 12), (156, 1), (345, 155)))
            new = random.choice(
                (b"7" * size, b"-1", b"\x80" + b"\xff" * (size - 1), b"\xff" * size, b"x")
            )
            raw[at + begin : at + begin + size] = new[:size].ljust(size, b"\0")
            raw[at + 148 : at + 156] = b" " * 8
            raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + 512])
        out = bytes(raw)
        if random.random() < 0.5:
            out = gzip.compress(out)
        (folder / "cifar-10-binary.tar.gz").write_bytes(out)
    return lambda: sound(load(where))


def tensors(random: Random, folder: Path) -> Attempt:
    """A checkpoint in safetensors whose header is right JSON and whose tensors lie wrongly."""
    found, arrays = trained()
    raw = signed(json.dumps(found), dict(arrays))
    length = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name, other = random.choice(names), random.choice(names)
    text = None
    match random.randrange(10):
        case 0:
            header[name]["data_offsets"] = header[other]["data_offsets"]
        case 1:
            header[name], header[other] = header[other], header[name]
        case 2:
            header[name]["shape"] = [2**32, 2**32]
        case 3:
            header["extra"] = {"dtype": "F32", "shape": [0], "data_offsets": [len(body), len(body)]}
        case 4:
            header["__metadata__"] = {"pareo": random.choice(("", "{}", "[]", "null", "1" * 2000))}
        case 5:
            header["__metadata__"]["sha256"] = random.choice(
                ("", "0" * 64, "é", header["__metadata__"]["sha256"].upper())
            )
        case 6:
            text = json.dumps(header)[:-1] + "," + json.dumps({name: header[other]})[1:]
        case 7:
            header["\u202e" + name] = header.pop(name)
        case 8:
            body += bytes(random.choice((1, 4096)))
        case 9:
            header[name]["dtype"], header[name]["shape"] = (
                "U8",
                [4 * int(np.prod(header[name]["shape"]))],
            )
    inside = (text or json.dumps(header)).encode() + b" " * random.choice((0, 7, 100_000))
    file, pixels = folder / "last.safetensors", folder / "one.npy"
    file.write_bytes(struct.pack("<Q", len(inside)) + inside + body)
    np.save(pixels, IMAGES[:2, None])
    return lambda: used(file, pixels)


def spaces(random: Random, folder: Path) -> Attempt:
    """A search space with other values, tables and keys, all of them right TOML."""
    from pareo.parallel.tuning import space

    lines = SPACE.splitlines()
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(lines))
        key = lines[at].partition(" =")[0]
        value = random.choice((
            *TOML, "[" + ", ".join(map(str, range(random.choice((1, 2, 50_000))))) + "]",
            "{ low = 1, high = 5, log = true, step = 2 }", "{ low = 5, high = 1 }",
            "{ low = 1, high = 1 }", "{ low = '1', high = 2 }", "{ low = 1 }", "{ high = 1 }",
            "{ low = 0.0, high = 1.0, log = true }", "[[1], [2]]", '[""]', '["adam", "adam"]',
            '["sgd", 3]', "[true, false]", "07:32:00", '"""' + "x" * 5000 + '"""', "[1.0, 1]",
            "{ low = -1, high = 10, step = 3 }", "{ low = 1, high = 9223372036854775807 }",
        ))  # fmt: skip
        key = random.choice((key, key, key, key, '"' + "k" * 300 + '"', '""', "a.b.c", '"\\u001b"'))
        lines[at] = f"{key} = {value}"
    if random.random() < 0.1:
        lines.append(
            random.choice(("[rate]", "[[rate]]", "[a]\nb = 1", "rate.low = 1", "rate = 1"))
        )
    file = folder / "space.toml"
    file.write_text("\n".join(lines))
    return lambda: proposal(space.read(file))


def moved(random: Random, data: Any) -> Any:
    """A result in which values of the right types are in wrong places, scaled, or many."""
    data = json.loads(json.dumps(data))
    found = [path for path in places(data) if len(path) > 1]
    for _ in range(random.choice((1, 1, 2, 3))):
        path = random.choice(found)
        inner, old = _inner(data, path)
        if inner is None:
            continue
        match old:
            case bool() | None:
                inner[path[-1]] = random.choice((None, not old))
            case int() | float():
                inner[path[-1]] = random.choice(
                    (-old, 0, old * 10**6, old * 1e-30, 1e99, 2**53, -1)
                )
            case str():
                inner[path[-1]] = random.choice((
                    "", old + " " * 3000, old.upper(), "<b>", "\u202e" + old, "a/b", "last", "٣",
                    str(random.choice(VALUES)).encode("utf-8", "replace").decode(),
                ))  # fmt: skip
            case list():
                inner[path[-1]] = random.choice(([], old[:1], old * 300, old[::-1]))
            case dict():
                keys = list(old)
                random.shuffle(keys)
                inner[path[-1]] = dict(zip(keys, old.values(), strict=True))
        if random.random() < 0.3:
            same = [one for one in found if type(_inner(data, one)[1]) is type(old)]
            if same:
                inner[path[-1]] = json.loads(json.dumps(_inner(data, random.choice(same))[1]))
    return data


def _inner(data: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """What a path is in, and what it is; None where an earlier change removed it."""
    for step in path[:-1]:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None, None
    try:
        return data, data[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None, None


def results(random: Random, folder: Path) -> Attempt:
    """A result whose values are of the right types: read, printed, drawn, compared, written."""
    good = random.choice(published())
    data = moved(random, good)
    file, before = folder / "result.json", folder / "before.json"
    file.write_text(json.dumps(data))
    before.write_text(json.dumps(good))

    def attempt() -> None:
        from pareo.lab import report
        from pareo.lab.experiment import results

        found = results.read(file)
        page = report.html(found)
        expect("<script>alert(1)" not in page, "a report executes nothing of its result")
        again = results.parsed(results.to_json(found), "again")
        expect(type(again) is type(found), "what is written can be read")

    return attempt


COLUMNS = "number INTEGER PRIMARY KEY, moment, network"
SCHEMAS = (
    # An endless view, a huge one, one that fails, other columns, generated columns, no real table.
    "CREATE VIEW results AS WITH RECURSIVE n(number) AS (SELECT 1 UNION ALL SELECT 1 + number"
    " FROM n) SELECT number, 'a' AS moment, 'b' AS network, 'c' AS result FROM n",
    "CREATE VIEW results AS SELECT 1 AS number, 'a' AS moment, 'b' AS network,"
    " zeroblob(900000000) AS result",
    "CREATE VIEW results AS SELECT number, moment, network, result FROM nowhere",
    "CREATE TABLE results (number, moment, network, result)",
    f"CREATE TABLE results ({COLUMNS}, result AS (zeroblob(900000000)))",
    "CREATE TABLE results (a)",
    f"CREATE TABLE results ({COLUMNS}, result, result2, UNIQUE(number))",
    "CREATE VIRTUAL TABLE results USING fts5(number, moment, network, result)",
)


def records(random: Random, folder: Path) -> Attempt:
    """Records whose table is a view, has other columns, or rows of other types and numbers."""
    from pareo.lab.experiment import records as kept
    from pareo.lab.experiment import results

    file = folder / "records.sqlite"
    os.environ["PAREO_RECORDS"] = str(file)
    good = results.checked(published()[0], "test")
    text = results.to_json(good, indent=None)
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        which = random.randrange(len(SCHEMAS) + 3)
        with contextlib.suppress(sqlite3.Error):
            if which < len(SCHEMAS):
                database.execute(SCHEMAS[which])
            else:
                database.execute(kept.TABLE)
            for _ in range(2):
                database.execute(
                    "INSERT INTO results(moment, network, result) VALUES ('a', 'b', ?)", (text,)
                )
            change = random.choice((
                "UPDATE results SET number = -9223372036854775808 WHERE number = 2",
                "UPDATE results SET number = 9223372036854775807 WHERE number = 2",
                "UPDATE results SET moment = zeroblob(100000000)",
                "UPDATE results SET network = zeroblob(1000), moment = 1.5",
                "CREATE TRIGGER t AFTER INSERT ON results BEGIN DELETE FROM results; END",
                "CREATE TRIGGER t BEFORE INSERT ON results BEGIN SELECT RAISE(ABORT, 'no'); END",
                "PRAGMA journal_mode = WAL", "CREATE TABLE history (a)", "SELECT 1",
                "CREATE VIEW listed_1 AS SELECT * FROM results", "CREATE TABLE listed_1 (a)",
                "CREATE TABLE points_1 (line, number)",
            ))  # fmt: skip
            database.execute(change)
        version = random.choice((1, 1, 1, 1, 0, 2, -1, 2**31 - 1))
        database.execute(f"PRAGMA user_version = {version}")

    def attempt() -> None:
        refused = None
        for one in (kept.everything, lambda: kept.find("last"), lambda: kept.save(good), _listed):
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    one()
            except DataError as error:
                refused = error
        if refused:
            raise refused

    return attempt


def _listed() -> None:
    """Run `pareo history`."""
    from command_line import pareo

    done = pareo("history")
    expect(done.status in (0, 2), f"the status tells: {done.status}")


def special(random: Random, folder: Path) -> Attempt:
    """A pipe, a device, a directory or a link in a circle where a file is expected."""
    from pareo.data import npy
    from pareo.lab.experiment import results as kept
    from pareo.nn import networks
    from pareo.parallel.tuning import space
    from pareo.training import checkpoint
    from pareo.training.weights import load_weights

    readers = {
        "data.npz": load,
        "x.npy": npy.read,
        "last.safetensors": lambda path: load_weights(networks.mlp([36, 4, 3]), path),
        "run.safetensors": checkpoint.load,
        "predict.safetensors": lambda path: predicted(str(path), path),
        "net.onnx": lambda path: __import__("pareo").from_onnx(path),
        "net.pt2": _exported,
        "space.toml": space.read,
        "result.json": kept.read,
        "cifar-10-binary.tar.gz": lambda path: load(f"cifar10:{path.parent}"),
        "train-images-idx3-ubyte": lambda path: load(path.parent),
    }
    name = random.choice(list(readers))
    if name in ("net.pt2", "net.onnx", "last.safetensors"):
        import onnxruntime  # noqa: F401  # which takes longer than a fault may
        import torch  # noqa: F401
    file = folder / name
    match random.randrange(8):
        case 0:
            os.mkfifo(file)
        case 1 | 2:
            file.symlink_to(random.choice(("/dev/zero", "/dev/full", "/dev/urandom", "/dev/null")))
        case 3:
            file.mkdir()
        case 4:
            file.symlink_to(file)
        case 5:
            file.symlink_to("/proc/self/mem")
        case 6:
            with file.open("wb") as stream:
                stream.truncate(1 << 40)  # a file of a terabyte, all of it holes
        case 7:
            file.symlink_to("/proc/self/environ")
    return lambda: readers[name](file)


def _exported(path: Path) -> None:
    from pareo.nn.torch_import.exported import exported

    exported(path)


KINDS = (
    Kind("NPZ structure", npz, 400, 12),
    Kind("IDX structure", idx, 300, 10),
    Kind("images structure", pictures, 300, 12),
    Kind("CIFAR structure", cifar, 200, 6),
    Kind("checkpoints structure", tensors, 200, 5),
    Kind("search spaces structure", spaces, 300, 10),
    Kind("results structure", results, 500, 6),
    Kind("records structure", records, 150, 4),
    Kind("no regular files", special, 150, 10),
)
