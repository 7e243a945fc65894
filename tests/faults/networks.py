"""Networks from other programs: ONNX files, files of `torch.export`, and `state_dict`s.

Each fault starts from a valid file. Most change one field of its structure, so that the file is
still one of its format, and only what it says is wrong.
"""

import io
import json
import pickle
import struct
import warnings
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import pareo
from faults import Attempt, Kind, expect
from faults.mutate import altered, as_json, damaged, damaged_text
from pareo import nn

WHOLE = (0, 1, -1, 2, 3, 7, 2**20, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))
REAL = (0.0, -1.0, 1e-30, 1e30, 3e38, float("nan"), float("inf"), float("-inf"))
NAMES = (b"", b"x", b"y", b"a\0b", b"a\nb", b"\xff\xfe", b"z" * 3000, b"../../etc/passwd")
OPERATORS = (
    b"Loop", b"If", b"Scan", b"Expand", b"Tile", b"Range", b"ConstantOfShape", b"Gather", b"Resize",
    b"Einsum", b"Pad", b"Slice", b"Reshape", b"Concat", b"Split", b"OneHot", b"Compress", b"Relu",
    b"MatMul", b"Conv", b"Own", b"", b"NonZero", b"TopK", b"Cast", b"Softmax", b"Identity",
)  # fmt: skip


@cache
def onnx_file() -> bytes:
    """A network with operators of most kinds."""
    import tempfile

    graph = nn.Graph({
        "conv": nn.Conv(3, 3, padding=1, bias=False), "bn": nn.BatchNorm(), "silu": nn.SiLU(),
        "pool": nn.MaxPool(2), "tokens": nn.Tokens(), "class": nn.ClassToken(),
        "norm": nn.LayerNorm(), "qkv": nn.Dense(9), "attention": nn.Attention(1),
        "sum": ("add", "attention", "class"), "first": nn.FirstToken(), "fc": nn.Dense(2),
    })  # fmt: skip
    network = nn.Sequential([("", graph)], (2, 4, 4), "small")
    with tempfile.TemporaryDirectory() as folder:
        pareo.to_onnx(network, network.initialise(), Path(folder, "small.onnx"))
        return Path(folder, "small.onnx").read_bytes()


@cache
def convolutions_file() -> bytes:
    """A network of convolutions and pooling."""
    import tempfile

    layers = [
        nn.Conv(4, 3, padding=1, groups=2), nn.ReLU(), nn.AveragePool(2), nn.Flatten(), nn.Dense(5),
        nn.Tanh(), nn.Dense(3),
    ]  # fmt: skip
    network = nn.Sequential(layers, (2, 6, 6), "plain")
    with tempfile.TemporaryDirectory() as folder:
        pareo.to_onnx(network, network.initialise(), Path(folder, "plain.onnx"))
        return Path(folder, "plain.onnx").read_bytes()


def messages(message: Any) -> list[Any]:
    """A message of protobuf and all inside it."""
    found, left = [], [message]
    while left:
        one = left.pop()
        found.append(one)
        for field, value in one.ListFields():
            if field.type == field.TYPE_MESSAGE:
                left += value if field.is_repeated else [value]
    return found


def disturb(random: Random, model: Any) -> None:
    """Change one field of one message, to another value of its type."""
    message = random.choice(messages(model))
    fields = message.DESCRIPTOR.fields if random.random() < 0.2 else None
    field = random.choice(list(fields or [field for field, _ in message.ListFields()] or [None]))
    if field is None:
        return
    old = getattr(message, field.name)
    if field.type == field.TYPE_MESSAGE:
        if not field.is_repeated:
            message.ClearField(field.name)
        elif len(old):
            _disturb_list(random, old, field)
        return
    values: tuple[Any, ...] = REAL if field.cpp_type in (5, 6) else WHOLE
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        values = (*OPERATORS, *NAMES) if field.name == "op_type" else NAMES
    new = random.choice(values)
    if field.type == field.TYPE_STRING:
        new = new.decode("utf-8", "replace")
    try:
        if not field.is_repeated:
            setattr(message, field.name, new)
        elif len(old) and random.random() < 0.7:
            old[random.randrange(len(old))] = new
        else:
            old.extend([new] * random.choice((1, 2, 100)))
    except (ValueError, TypeError):  # an integer of fewer bits
        message.ClearField(field.name)


def _disturb_list(random: Random, old: Any, field: Any) -> None:
    at, other = random.randrange(len(old)), random.randrange(len(old))
    match random.randrange(4):
        case 0:
            del old[at]
        case 1:
            old.add().CopyFrom(old[at])
        case 2:
            copy = type(old[at])()
            copy.CopyFrom(old[at])
            old[at].CopyFrom(old[other])
            old[other].CopyFrom(copy)
        case 3 if field.name == "node":
            old[at].op_type = random.choice(OPERATORS).decode()
        case _:
            old[at].Clear()


def deep_attribute(random: Random, model: Any) -> None:
    """A graph in a graph in a graph."""
    node = random.choice([*model.graph.node, model.graph.node.add()])
    for _ in range(random.choice((2, 30, 90))):
        attribute = node.attribute.add()
        attribute.name, attribute.type = "body", 5
        node = attribute.g.node.add()
        node.op_type = "If"


def onnx_files(random: Random, folder: Path) -> Attempt:
    """An ONNX file with damaged bytes or with other fields."""
    import onnx

    raw = random.choice((onnx_file, onnx_file, convolutions_file))()
    if random.random() < 0.3:
        raw = damaged(random, raw)
    else:
        model = onnx.load_model_from_string(raw)
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            deep_attribute(random, model) if random.random() < 0.02 else disturb(random, model)
        raw = model.SerializeToString()
    file = folder / "net.onnx"
    file.write_bytes(raw)

    def attempt() -> None:
        found = pareo.from_onnx(file)
        finite = all(np.isfinite(array).all() for array in found.parameters.values())
        expect(finite, "the weights of a network that is read are finite")

    return attempt


@cache
def exported_file() -> bytes:
    """A small module in a file of `torch.export`."""
    import torch

    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.Dropout(0.3), torch.nn.Flatten(), torch.nn.Linear(64, 3),
    )  # fmt: skip
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n", min=1, max=99)},)
        example = (torch.zeros(2, 2, 4, 4),)
        torch.export.save(torch.export.export(module, example, dynamic_shapes=shapes), made)
    return made.getvalue()


def exported_files(random: Random, folder: Path) -> Attempt:
    """A file of `torch.export`: its zip, its JSON or its weights are others."""
    raw = random.choice((damaged, *[rewritten] * 4))(random, exported_file())
    file, marker = folder / "net.pt2", folder / "executed"
    file.write_bytes(raw.replace(b"MARKER", str(marker).encode()))

    def attempt() -> None:
        from pareo.nn.torch_import.exported import exported, shape_of

        try:
            module = exported(file)
            pareo.from_torch(module, shape_of(module) or (2, 4, 4))
        finally:
            expect(not marker.exists(), "nothing in a file is executed")

    return attempt


class Trap:
    """Were it unpickled, it would make a directory."""

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, ("MARKER",)


def rewritten(random: Random, raw: bytes) -> bytes:
    """An archive with one file changed, left out, added or doubled."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    name = random.choice(list(files))
    if random.random() < 0.6:
        name = random.choice([one for one in files if one.endswith(".json")])
    content, more = files[name], {}
    match random.randrange(8):
        case 0:
            files.pop(name)
        case 1:
            more[name.rpartition("/")[0] + "/" + random.choice(("lib.so", "../x", "a"))] = content
        case 2:
            files[name] = pickle.dumps(Trap())
        case 3:
            files[name] = damaged(random, content)
        case 4 if name.endswith(".json"):
            files[name] = damaged_text(random, content.decode())
        case _ if name.endswith(".json"):
            files[name] = as_json(altered(random, json.loads(content)))
        case _:
            files[name] = damaged(random, content)
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w") as archive:
        warnings.simplefilter("ignore")
        for one, inside in (*files.items(), *more.items()):
            archive.writestr(one, inside)
        if random.random() < 0.05:
            archive.writestr(name, content)
    return made.getvalue()


def state_dicts(random: Random, folder: Path) -> Attempt:
    """A `state_dict` of PyTorch: a pickle that is damaged, or that would execute something."""
    import torch

    from pareo.nn import networks
    from pareo.training.weights import load_weights

    network, marker = networks.mlp([36, 4, 3]), folder / "executed"
    names = {"1.weight": (4, 36), "1.bias": (4,), "3.weight": (3, 4), "3.bias": (3,)}
    state: dict[str, Any] = {name: torch.ones(shape) for name, shape in names.items()}
    name = random.choice(list(state))
    match random.randrange(8):
        case 0:
            state[name] = Trap()
        case 1:
            state[name] = random.choice((None, 1, "x", [1.0], torch.nn.Linear(2, 2)))
        case 2:
            state[name] = torch.full_like(state[name], float("nan"))
        case 3:
            state[name] = state[name].to(random.choice((torch.float16, torch.int64, torch.bool)))
        case 4:
            state[name] = torch.ones(1).expand(random.choice((4, 2**20, 2**40)))
        case 5:
            state[name] = torch.ones(state[name].shape).to_sparse()
    made = io.BytesIO()
    torch.save(state, made)
    raw = made.getvalue().replace(b"MARKER", str(marker).encode()[:6])
    if random.random() < 0.5:
        raw = damaged(random, raw)
    if random.random() < 0.1:
        raw = raw.replace(struct.pack("<I", 144), struct.pack("<I", 2**31))
    file = folder / "weights.pt"
    file.write_bytes(raw)

    def attempt() -> None:
        try:
            found = load_weights(network, file)
            finite = all(np.isfinite(array).all() for array in found.values())
            expect(finite, "weights are finite")
        finally:
            expect(not marker.exists(), "nothing in a file is executed")

    return attempt


KINDS = (
    Kind("ONNX", onnx_files, 600, 6, 30.0, 150, False),
    Kind("torch.export", exported_files, 200, 0, 30.0, 100, False),
    Kind("state_dict", state_dicts, 300, 0, 30.0, 150, False),
)
