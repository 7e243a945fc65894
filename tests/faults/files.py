"""Files from outside: NPZ, NPY, IDX, images, checkpoints, weights, search spaces, records, results.

Each fault starts from a valid file. A damaged one gives a sentence, or data that keep the promises
of data: finite numbers, labels within the classes.
"""

import contextlib
import gzip
import hashlib
import io
import json
import lzma
import os
import sqlite3
import struct
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import typer

from faults import Attempt, Kind, expect
from faults.mutate import VALUES, altered, as_json, damaged, damaged_text
from pareo.data import Dataset, load
from pareo.errors import DataError

LABELS = np.arange(12) % 3
IMAGES = (np.arange(12 * 6 * 6) % 251).reshape(12, 6, 6).astype(np.uint8)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
SHAPES = (
    b"()", b"(-1,)", b"(1e9,)", b"None", b"((", b"(True,)", b"('a',)", b"(" * 200, b"9" * 5000,
    b"[12]", b"(12)",
)  # fmt: skip
DTYPES = (
    b"'|O'", b"'<f8'", b"'<U9'", b"'<M8[s]'", b"[('a', '<i4')]", b"'|V0'", b"'>f16'", b"3",
    b"'" + b"f" * 3000 + b"'", b"'|S0'", b"'<c16'", b"'|b1'", b"__import__('os').abort()",
)  # fmt: skip
SIZES = (0, 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64)


def sound(data: Dataset) -> None:
    """Check what every dataset promises."""
    for part in (data.images, data.test_images):
        expect(np.isfinite(part.astype(np.float64)).all(), "images are finite")
    for part in (data.labels, data.test_labels):
        if not data.has_targets:
            expect(((part >= 0) & (part < data.classes)).all(), "labels are within the classes")


def npy_bytes(random: Random, array: np.ndarray) -> bytes:
    """An NPY file, often with a false header."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    raw = buffer.getvalue()
    shape = str(array.shape).encode()
    match random.randrange(12):
        case 0:
            size = str(random.choice(SIZES)).encode()
            return _header(raw, shape, b"(%s,)" % b",".join([size] * random.choice((1, 2, 3, 40))))
        case 1:
            return _header(raw, shape, random.choice(SHAPES))
        case 2:
            descr = f"'{array.dtype.str}'".encode()
            return _header(raw, descr, random.choice(DTYPES))
        case 3:
            return raw.replace(b"False", random.choice((b"True ", b"None ", b"1", b"[[[[[")))
        case 4:
            return damaged(random, raw)
        case 5:
            at = random.randrange(6, 12)
            return raw[:at] + bytes([random.randrange(256)]) + raw[at + 1 :]
        case _:
            return raw


def _header(raw: bytes, old: bytes, new: bytes) -> bytes:
    length = int.from_bytes(raw[8:10], "little")
    text = raw[10 : 10 + length].replace(old, new)[:65535]
    return raw[:8] + len(text).to_bytes(2, "little") + text + raw[10 + length :]


def odd_labels(random: Random) -> np.ndarray:
    """Labels, many of them wrong."""
    if random.random() < 0.6:
        return LABELS
    return random.choice(
        (
            LABELS,
            LABELS + 10**9,
            np.full(12, 2**64 - 1, np.uint64),
            LABELS - 1,
            LABELS.astype(float) * np.nan,
            LABELS.astype(np.int8),
            LABELS[:5],
            LABELS[None],
            np.where(LABELS == 2, 10**6, LABELS),
            LABELS == 1,
        )
    )


def odd_images(random: Random) -> np.ndarray:
    """Images, many of them strange."""
    if random.random() < 0.6:
        return IMAGES
    return random.choice(
        (
            IMAGES,
            IMAGES.astype(np.float64) * 1e300,
            np.where(IMAGES == 7, np.nan, IMAGES),
            IMAGES[:, :0],
            IMAGES[0],
            IMAGES.astype(np.complex64),
            IMAGES.astype(">f4"),
            IMAGES.astype(np.float16),
            np.asfortranarray(IMAGES),
        )
    )


def npz(random: Random, folder: Path) -> Attempt:
    """A zip of arrays: false headers, false directories, damaged streams, bombs."""
    file = folder / "data.npz"
    method = random.choice(METHODS)
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("images.npy", npy_bytes(random, odd_images(random)))
        archive.writestr("labels.npy", npy_bytes(random, odd_labels(random)))
        if random.random() < 0.3:
            archive.writestr("test_images.npy", npy_bytes(random, IMAGES[:2]))
            archive.writestr("test_labels.npy", npy_bytes(random, LABELS[:2]))
    raw = file.read_bytes()
    match random.randrange(5):
        case 0:
            raw = damaged(random, raw)
        case 1:  # sizes and methods in the central directory or in a local header
            mark = random.choice((b"PK\x01\x02", b"PK\x03\x04"))
            at = raw.rfind(mark) + random.choice((6, 8, 10, 16, 20, 24, 28, 42))
            raw = raw[:at] + struct.pack("<I", random.choice(SIZES) % 2**32) + raw[at + 4 :]
        case 2 if random.random() < 0.1:
            raw = bomb(random)
    file.write_bytes(raw)
    return lambda: sound(load(file))


@cache
def zeros(megabytes: int, method: str) -> bytes:
    """A packed file of zeros."""
    raw = bytes(megabytes << 20)
    return gzip.compress(raw, 9) if method == "gzip" else lzma.compress(raw)


def bomb(random: Random) -> bytes:
    """A small NPZ file that announces, and has, 300 MB of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (300, 1024, 1024)}
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", random.choice(METHODS[1:]), compresslevel=1) as archive:
        with archive.open("images.npy", "w") as stream:
            stream.write(header.getvalue())
            for _ in range(300):
                stream.write(bytes(1 << 20))
        archive.writestr("labels.npy", b"")
    return out.getvalue()


def idx(random: Random, folder: Path) -> Attempt:
    """Four IDX files, one of them damaged, huge, or a bomb; half of them gzipped."""
    three, one = b"\0\0\x08\x03", b"\0\0\x08\x01"
    parts = {
        "train-images-idx3-ubyte": three + struct.pack(">3I", 12, 6, 6) + IMAGES.tobytes(),
        "train-labels-idx1-ubyte": one + struct.pack(">I", 12) + bytes(LABELS.tolist()),
        "t10k-images-idx3-ubyte": three + struct.pack(">3I", 2, 6, 6) + IMAGES[:2].tobytes(),
        "t10k-labels-idx1-ubyte": one + struct.pack(">I", 2) + bytes([0, 1]),
    }
    wrong = random.choice(list(parts))
    packed = random.random() < 0.5
    for name, raw in parts.items():
        if name == wrong:
            match random.randrange(4):
                case 0 | 1:
                    raw = damaged(random, raw)
                case 2:
                    at = random.randrange(2, min(16, len(raw)))
                    raw = raw[:at] + random.randbytes(1) + raw[at + 1 :]
                case 3:
                    raw = raw[:4] + random.randbytes(4 * raw[3]) + raw[4 + 4 * raw[3] :]
        out = gzip.compress(raw) if packed else raw
        if name == wrong and packed and random.random() < 0.5:
            out = damaged(random, out)
        if name == wrong and random.random() < 0.02:
            huge = b"\0\0\x08\x03" + struct.pack(">3I", 500, 1024, 1024)
            packed, out = True, gzip.compress(huge) + zeros(500, "gzip")
        (folder / (name + ".gz" * packed)).write_bytes(out)
    return lambda: sound(load(folder))


@cache
def pictures() -> tuple[tuple[str, bytes], ...]:
    """A picture in every format that is read, and some that are not."""
    from PIL import Image

    found = []
    for mode, pixels in (("L", IMAGES[0]), ("RGB", np.stack([IMAGES[0]] * 3, 2))):
        for kind in ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF"):
            buffer = io.BytesIO()
            Image.fromarray(pixels, mode if mode == "L" else None).save(buffer, kind)
            found.append((kind.lower().replace("jpeg", "jpg"), buffer.getvalue()))
    found.append(("pgm", b"P5 100000 100000 255 "))
    found.append(("png", _png(40000, 40000)))
    return tuple(found)


def _png(width: int, height: int) -> bytes:
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        rest = kind + body
        return struct.pack(">I", len(body)) + rest + struct.pack(">I", zlib.crc32(rest))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def images(random: Random, folder: Path) -> Attempt:
    """A directory of classes with one damaged picture."""
    usual = dict(pictures())["png"]
    for name in ("a", "b"):
        (folder / name).mkdir(exist_ok=True)
        for number in range(2):
            (folder / name / f"{number}.png").write_bytes(pictures()[0][1] or usual)
    suffix, raw = random.choice(pictures())
    other = random.choice((suffix, suffix, suffix, "png", "tif"))
    (folder / "a" / f"0x.{other}").write_bytes(damaged(random, raw))
    return lambda: sound(load(folder))


@cache
def trained() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The metadata and the tensors of a small run, with an optimizer that has arrays."""
    import tempfile

    from safetensors import safe_open

    from pareo.nn import networks
    from pareo.training import fit

    data = load("synthetic:1x6x6:3:24")
    with tempfile.TemporaryDirectory() as folder:
        fit(
            networks.mlp([36, 4, 3]), data, epochs=1, batch_size=8, optimizer="adam",
            device="vectorized", checkpoint=folder, progress=False,
        )  # fmt: skip
        with safe_open(f"{folder}/last.safetensors", framework="numpy") as file:
            return json.loads(file.metadata()["pareo"]), {
                name: file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118
            }


def signed(text: str, tensors: dict[str, np.ndarray]) -> bytes:
    """A checkpoint with a right digest, as an attacker would write it."""
    from safetensors.numpy import save

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name}\0{array.dtype}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return save(tensors, {"pareo": text, "sha256": digest.hexdigest()})


def odd_network(random: Random) -> dict[str, Any]:
    """The description of a network with odd layers."""
    from pareo import nn
    from pareo.training.definition import describe

    made = [
        nn.Conv(2, 3, padding=1), nn.BatchNorm(), nn.ReLU(), nn.MaxPool(2), nn.Lrn(), nn.Clip(0, 1),
        nn.Dropout(0.5), nn.AveragePool(1), nn.Residual(nn.Sequential([nn.Conv(2, 1)])),
        nn.Branches(nn.Identity(), nn.Conv(1, 1)), nn.LayerNorm(), nn.Flatten(), nn.Dense(3),
    ]  # fmt: skip
    network = describe(nn.Sequential(made, input_shape=(1, 6, 6), name="odd"))
    if random.random() < 0.2:
        network["layers"] = network["layers"][-2:-1]  # without parameters
    for _ in range(random.choice((0, 1, 1, 2))):
        layer = random.choice(network["layers"])
        key = random.choice(list(layer))
        layer[key] = random.choice((0, -1, 10**9, 2**70, 1e300, "x", None, [3, 0], [], {}, 0.5))
    return network


def matching(described: dict[str, Any]) -> dict[str, np.ndarray]:
    """Tensors for a network that may make no sense; none if it has none."""
    from pareo.training.definition import rebuild

    with contextlib.suppress(Exception):
        network: Any = rebuild(described)
        shapes = {path: p.shape for path, p in network.parameters(network.inputs).items()}
        if sum(int(np.prod(shape)) for shape in shapes.values()) < 10**6:
            return {path: np.ones(shape, np.float32) for path, shape in shapes.items()}
    return {}


def checkpoints(random: Random, folder: Path) -> Attempt:
    """A checkpoint with damaged bytes, or a crafted one with a right digest."""
    found, tensors = trained()
    found, tensors = json.loads(json.dumps(found)), dict(tensors)
    text = json.dumps(found)
    raw = None
    match random.randrange(8):
        case 0:
            raw = damaged(random, signed(text, tensors))
        case 1:
            raw = _other_header(random, signed(text, tensors))
        case 2:
            text = damaged_text(random, text).decode("utf-8", "replace")
        case 3:
            found["network"] = odd_network(random)
            text = json.dumps(found)
            tensors = matching(found["network"])
        case 4:
            name = random.choice(list(tensors))
            tensors[name] = _odd_tensor(random, tensors[name])
        case 5:
            for key in ("class_names", "images", "name", "fingerprint"):
                if random.random() < 0.5:
                    found["data"][key] = random.choice(VALUES)
            text = json.dumps(found)
        case _:
            text = json.dumps(altered(random, found))
    if raw is None:
        text = text.encode("utf-8", "replace").decode()
        raw = signed(text, tensors)
    file = folder / "last.safetensors"
    file.write_bytes(raw)
    pixels = folder / "one.npy"
    np.save(pixels, IMAGES[:2, None])
    return lambda: used(file, pixels)


def _odd_tensor(random: Random, array: np.ndarray) -> np.ndarray:
    return random.choice(
        (
            np.full_like(array, np.nan),
            np.full_like(array, 3e38),
            array.astype(np.float64),
            array.astype(np.float16),
            array.astype(np.int32),
            array[:1],
            array[..., None],
            np.zeros((0,), array.dtype),
            array.astype(np.bool_),
        )
    )


def _other_header(random: Random, raw: bytes) -> bytes:
    """A safetensors file whose header was changed, with its length."""
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    name = random.choice([name for name in header if name != "__metadata__"])
    match random.randrange(4):
        case 0:
            header[name]["dtype"] = random.choice(
                ("F8_E4M3", "F8_E5M2", "BF16", "F16", "F64", "I64", "BOOL", "U8", "C64", "F4", "x")
            )
        case 1:
            header[name]["shape"] = random.choice(([], [0], [-1], [2**62, 4], [10**25], [1] * 70))
        case 2:
            header[name]["data_offsets"] = random.choice(([0, 1], [5, 2], [0, 2**63], [-1, 4]))
        case 3:
            header = altered(random, header)
    text = as_json(header)
    if random.random() < 0.1:
        return struct.pack("<Q", random.choice(SIZES) % 2**64) + text + raw[8 + length :]
    return struct.pack("<Q", len(text)) + text + raw[8 + length :]


def used(file: Path, pixels: Path) -> None:
    """Load a checkpoint, resume from it, take its weights, and predict with it."""
    from pareo.nn import networks
    from pareo.training import fit
    from pareo.training.weights import load_weights

    refused: list[DataError] = []
    network = networks.mlp([36, 4, 3])
    for attempt in (
        lambda: load_weights(network, file),
        lambda: fit(
            network, load("synthetic:1x6x6:3:24"), epochs=1, batch_size=8, optimizer="adam",
            device="vectorized", resume=file, progress=False,
        ),
    ):  # fmt: skip
        try:
            attempt()
        except DataError as error:
            refused.append(error)
        except Exception as error:
            from pareo.errors import PareoError

            if not isinstance(error, PareoError):
                raise
    predicted(str(file), pixels)


def predicted(network: str, *pixels: Path) -> None:
    """Run `pareo predict`; what it prints is a class with a probability."""
    from pareo.cli.predict import predict

    said, complained = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
        contextlib.suppress(typer.Exit),
    ):
        predict(network, list(pixels), None, None, "vectorized")
    for line in said.getvalue().splitlines():
        expect("nan" not in line.rpartition("(")[2], f"no probability is NaN: {line[-60:]}")
    expect("Traceback" not in complained.getvalue(), "an error is a sentence")
    expect(said.getvalue() or complained.getvalue(), "something is said")


@cache
def _known_network() -> bytes:
    found, tensors = trained()
    return signed(json.dumps(found), tensors)


def predict_npy(random: Random, folder: Path) -> Attempt:
    """An NPY file for `pareo predict`."""
    (folder / "last.safetensors").write_bytes(_known_network())
    array = odd_images(random)
    if random.random() < 0.5:
        kind = random.choice((np.float32, np.float64, np.uint8, np.int64))
        with np.errstate(all="ignore"):
            array = array.real.astype(kind)
    file = folder / "x.npy"
    file.write_bytes(npy_bytes(random, array))
    return lambda: predicted(str(folder), file)


def weights(random: Random, folder: Path) -> Attempt:
    """A safetensors file of another program."""
    from safetensors.numpy import save

    from pareo.nn import networks
    from pareo.training.weights import load_weights

    network = networks.mlp([36, 4, 3])
    names = {"1.weight": (4, 36), "1.bias": (4,), "3.weight": (3, 4), "3.bias": (3,)}
    tensors = {name: np.ones(shape, np.float32) for name, shape in names.items()}
    if random.random() < 0.3:
        name = random.choice(list(tensors))
        tensors[name] = _odd_tensor(random, tensors[name])
    raw = save(tensors)
    raw = random.choice((damaged, _other_header))(random, raw)
    file = folder / "weights.safetensors"
    file.write_bytes(raw)

    def attempt() -> None:
        found = load_weights(network, file)
        expect(all(np.isfinite(a).all() for a in found.values()), "weights are finite")

    return attempt


SPACE = """\
rate = { low = 0.001, high = 1.0, log = true }
momentum = { low = 0.0, high = 0.9, step = 0.1 }
batch_size = [32, 64, 128]
width = { low = 4, high = 64 }
hidden = 2
optimizer = ["sgd", "adamw"]
schedule = ["constant", "step:3:0.1"]
augment = ["", "flip,crop:4"]
smoothing = 0.1
seed = 3
"""


TOML = (
    "1e-300", "1e300", "-1", "0", "nan", "inf", "9" * 5000, "20000", "1" + "0" * 30, "1048576",
    "0.5", "'x'", "[" * 200, "[1, [2]]", "{}", "true", "1e-400", "0x" + "f" * 5000, "1979-05-27",
    "[0.1, 0.1]", "65536", "[20000, 30000]",
)  # fmt: skip


def spaces(random: Random, folder: Path) -> Attempt:
    """A search space in TOML; the first proposal is drawn and its network is built."""
    from pareo.parallel.tuning import space

    file = folder / "space.toml"
    lines = SPACE.splitlines()
    if random.random() < 0.4:
        which = random.choice(("rate", "momentum", "width", "batch_size", "hidden", "seed"))
        value = random.choice(TOML)
        low, high = random.choice(("0.1", "1", value)), random.choice(("2", "9", value))
        text = random.choice((value, f"{{ low = {low}, high = {high}, step = {value} }}"))
        lines = [line for line in lines if not line.startswith(which)] + [f"{which} = {text}"]
        raw = "\n".join(lines).encode()
    else:
        raw = damaged_text(random, SPACE)
    file.write_bytes(raw)

    def attempt() -> None:
        found = space.read(file)
        proposal(found)

    return attempt


def proposal(found: Any) -> None:
    """Let Optuna propose a trial of a space, and count the parameters of its network."""
    import optuna

    from pareo.nn import networks

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = {**found.fixed, **study.ask(found.distributions()).params}
    width, hidden = drawn.get("width", 8), drawn.get("hidden", 1)
    network = networks.mlp([784, *[width] * hidden, 10])
    parameters = sum(int(np.prod(p.shape)) for p in network.parameters(network.inputs).values())
    expect(parameters < 1 << 30, f"a network of a search fits in memory: {parameters:,} parameters")


@cache
def published() -> tuple[Any, ...]:
    """Valid results of several kinds."""
    import arena_result
    import kernels_result
    import ops_result
    import race_result
    import replication_result
    import sweep_result

    from pareo.lab.experiment.results import plain

    modules = (race_result, sweep_result, kernels_result, ops_result, arena_result)
    return tuple(plain(module.made()) for module in (*modules, replication_result))


def results(random: Random, folder: Path) -> Attempt:
    """A result in JSON: it is read, drawn as a report, and written again."""
    data = random.choice(published())
    raw = damaged_text(random, json.dumps(data))
    if random.random() < 0.7:
        raw = as_json(altered(random, data))
    file = folder / "result.json"
    file.write_bytes(raw)

    def attempt() -> None:
        from pareo.lab import report
        from pareo.lab.experiment import results

        found = results.read(file)
        report.write(found, folder / "report.html")
        page = (folder / "report.html").read_text()
        expect("<script>alert(1)" not in page, "a report executes nothing of its result")
        again = results.parsed(results.to_json(found), "again")
        expect(type(again) is type(found), "what is written can be read")

    return attempt


def records(random: Random, folder: Path) -> Attempt:
    """A records file with a damaged row or damaged bytes; the other rows are still listed."""
    from pareo.lab.experiment import records as kept
    from pareo.lab.experiment import results

    file = folder / "records.sqlite"
    good = results.checked(published()[0], "test")
    os.environ["PAREO_RECORDS"] = str(file)
    for _ in range(3):
        kept.save(good)
    rows = random.random() < 0.6
    if rows:
        data = published()[0]
        text = damaged_text(random, json.dumps(data))
        if random.random() < 0.5:
            text = as_json(altered(random, data))
        value = random.choice((text.decode("utf-8", "replace"), text, 7, 0.5, "", b"\xff\xfe"))
        with contextlib.closing(sqlite3.connect(file)) as database, database:
            change = "UPDATE results SET result = ? WHERE number = 2"
            if random.random() < 0.3:
                change = "UPDATE results SET result = CAST(? AS TEXT) WHERE number = 2"
            database.execute(change, (value,))
    else:
        file.write_bytes(damaged(random, file.read_bytes()))

    def attempt() -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            found = kept.everything()
        if rows:
            expect({1, 3} <= {number for number, _ in found}, "a bad row hides no other")

    return attempt


KINDS = (
    Kind("NPZ", npz, 900, 30),
    Kind("NPY in predict", predict_npy, 500, 12),
    Kind("IDX", idx, 600, 20),
    Kind("images", images, 500, 15),
    Kind("checkpoints", checkpoints, 1000, 25),
    Kind("weights", weights, 400, 20),
    Kind("search spaces", spaces, 500, 25),
    Kind("results", results, 700, 8),
    Kind("records", records, 400, 8),
)
