"""Files from outside with seeded changes: numbers, names, structure and bytes."""

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

LARGE = (-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))
WORDS = ("", "x", "../../etc/passwd", "Identity", "Conv", "Reshape", "Loop", "If", "a\nb", "\0")


def of_bytes(random: np.random.Generator, data: bytes) -> bytes:
    """A file cut off, or with some bytes changed, left out or put in."""
    if random.random() < 0.2:
        return data[: random.integers(len(data) + 1)]
    found = bytearray(data)
    for _ in range(random.integers(1, 6)):
        start, length = random.integers(len(found) + 1), random.integers(0, 9)
        found[start : start + length] = random.bytes(random.integers(0, 9))
    return bytes(found)


def of_onnx(random: np.random.Generator, data: bytes) -> bytes:
    """An ONNX file with one to three changes of its graph, or of its bytes."""
    if random.random() < 0.25:
        return of_bytes(random, data)
    model = onnx.load_from_string(data)
    for _ in range(_few(random)):
        changes = (_node, _edge, _attribute, _tensor, _external, _declared, _twice, _raw)
        changes[random.integers(len(changes))](random, model.graph)
    return model.SerializeToString()


def _few(random: np.random.Generator) -> int:
    return int(random.choice([1, 1, 1, 2, 3]))


def _one(random: np.random.Generator, many: Any) -> Any:
    return many[int(random.integers(len(many)))]


def _node(random: np.random.Generator, graph: Any) -> None:
    names = sorted({node.op_type for node in graph.node} | set(WORDS) | {"Gather", "Expand", "Pad"})
    _one(random, graph.node).op_type = _one(random, names)


def _edge(random: np.random.Generator, graph: Any) -> None:
    """Another input of a node, or another name of a result; both may make cycles."""
    node = _one(random, graph.node)
    names = [name for one in graph.node for name in (*one.input, *one.output)]
    side = node.input if random.random() < 0.7 or not node.output else node.output
    if side:
        side[int(random.integers(len(side)))] = _one(random, [*names, *WORDS])


def _attribute(random: np.random.Generator, graph: Any) -> None:
    nodes = [node for node in graph.node if node.attribute]
    found = _one(random, _one(random, nodes).attribute)
    number = int(_one(random, LARGE))
    if found.ints:
        found.ints[int(random.integers(len(found.ints)))] = number
        if random.random() < 0.3:
            found.ints.append(number)
    elif random.random() < 0.3:
        found.name = _one(random, WORDS)
    else:
        found.i, found.f = number, float(random.choice([np.nan, np.inf, -1.0, 0.0, 1e30]))


def _tensor(random: np.random.Generator, graph: Any) -> None:
    found = _one(random, graph.initializer)
    if found.dims and random.random() < 0.7:
        found.dims[int(random.integers(len(found.dims)))] = int(_one(random, LARGE))
    elif random.random() < 0.5:
        found.data_type = int(random.integers(0, 24))
    else:
        found.dims.append(int(_one(random, LARGE)))


def _external(random: np.random.Generator, graph: Any) -> None:
    found = _one(random, graph.initializer)
    found.data_location = onnx.TensorProto.EXTERNAL
    if random.random() < 0.5:
        found.ClearField("raw_data")
    for key in ("location", "offset", "length"):
        entry = found.external_data.add()
        entry.key = key
        places = ("../outside.bin", "/etc/passwd", "", ".", "altered.onnx", "no/such", "a\0b")
        entry.value = _one(random, places) if key == "location" else str(_one(random, LARGE))


def _declared(random: np.random.Generator, graph: Any) -> None:
    shape = _one(random, [*graph.input, *graph.output]).type.tensor_type.shape
    _one(random, shape.dim).dim_value = int(_one(random, LARGE))


def _twice(random: np.random.Generator, graph: Any) -> None:
    many = graph.node if random.random() < 0.5 else graph.initializer
    if random.random() < 0.5:
        many.add().CopyFrom(_one(random, many))
    else:
        del many[int(random.integers(len(many)))]


def _raw(random: np.random.Generator, graph: Any) -> None:
    found = _one(random, graph.initializer)
    found.raw_data = random.bytes(int(random.integers(0, 64)))


def of_pt2(random: np.random.Generator, data: bytes) -> bytes:
    """A file of torch.export with one to three changes of its JSON, or of its bytes."""
    if random.random() < 0.25:
        return of_bytes(random, data)
    made = io.BytesIO()
    packing = zipfile.ZIP_DEFLATED if random.random() < 0.05 else zipfile.ZIP_STORED
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w", packing) as new:
        entries = old.infolist()
        chosen = int(random.integers(len(entries)))
        files = [entry.filename for entry in entries if entry.filename.endswith(".json")]
        graph = next(name for name in files if name.endswith("model.json"))
        altered = graph if random.random() < 0.7 else _one(random, files)
        for number, entry in enumerate(entries):
            content, name = old.read(entry), entry.filename
            if name == altered:
                content = _changed_json(random, content)
            elif number == chosen and random.random() < 0.3:
                content = of_bytes(random, content) if content else b"x"
            if number == chosen and random.random() < 0.1:
                name = _one(random, ("../x", "net/../../x", name + "2", "other/" + name))
            new.writestr(name, content)
    return made.getvalue()


def _changed_json(random: np.random.Generator, content: bytes) -> bytes:
    tree = json.loads(content)
    places = list(_places(tree))
    targets = sorted({tree[key] for tree, key in places if key == "target"}, key=str)
    for _ in range(_few(random)):
        if places:
            inside, key = _one(random, places)
            old = inside[key]
            if key == "target" and random.random() < 0.7:
                inside[key] = _one(random, targets)
            elif isinstance(old, str) and random.random() < 0.8:
                inside[key] = _one(random, [*WORDS, "torch.ops.aten.sum.default", "os.system", "w"])
            else:
                inside[key] = _one(random, [*LARGE, None, [], {}, [[]], "1e999", True])
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree that holds no other one."""
    pairs: Any = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        if isinstance(value, dict | list) and value:
            yield from _places(value)
        else:
            yield tree, key
