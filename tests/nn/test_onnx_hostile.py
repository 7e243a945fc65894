"""ONNX files that are cut off, altered, cyclic, huge by declaration, or point outside."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx_graphs import FLOAT, drawn, model, pooled

import pareo
from pareo import nn
from pareo.errors import PareoError

node = helper.make_node
ROOM = 2**29  # bytes that reading a small file may take


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Let all that is imported, and its memory, come before memory is measured."""
    import onnxruntime  # noqa: F401


@pytest.fixture
def bounded() -> Iterator[None]:
    """Refuse memory beyond what the process has, and some room."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with operators of most kinds."""
    graph = nn.Graph({
        "conv": nn.Conv(3, 3, padding=1, bias=False), "bn": nn.BatchNorm(), "silu": nn.SiLU(),
        "pool": nn.MaxPool(2), "tokens": nn.Tokens(), "class": nn.ClassToken(),
        "norm": nn.LayerNorm(), "qkv": nn.Dense(9), "attention": nn.Attention(1),
        "sum": ("add", "attention", "class"), "first": nn.FirstToken(), "fc": nn.Dense(2),
    })  # fmt: skip
    network = nn.Sequential([("", graph)], (2, 4, 4), "small")
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    pareo.to_onnx(network, network.initialise(), path)
    return path.read_bytes()


def refused(path: Path, data: bytes | Any) -> str:
    """The sentence with which a file is refused."""
    path.write_bytes(data if isinstance(data, bytes) else data.SerializeToString())
    with pytest.raises(PareoError) as caught:
        pareo.from_onnx(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message or path.stem in message
    return message


changes = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=3
)


@settings(max_examples=150, deadline=None)
@given(cut=st.none() | st.floats(0, 1), changes=changes)
def test_an_altered_file_is_refused_or_read(
    cut: float | None, changes: Any, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing else than a refusal in one sentence, or a network that passes the gate."""
    data = bytearray(whole if cut is None else whole[: int(cut * len(whole))])
    for place, length, new in changes if cut is None else ():
        start = int(place * len(data))
        data[start : start + length] = new
    path = tmp_path_factory.getbasetemp() / "altered.onnx"
    path.write_bytes(bytes(data))
    said = ""
    try:
        pareo.from_onnx(path)
    except PareoError as error:
        said = str(error)
    assert "\n" not in said
    assert said or cut is None or len(data) == len(whole)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with pytest.raises(PareoError, match="there is no such file"):
        pareo.from_onnx(path)
    with pytest.raises(PareoError, match="there is no such file"):
        pareo.from_onnx(tmp_path)
    assert "it has no graph" in refused(path, b"")
    assert "expected an ONNX file; cannot read its 9 bytes" in refused(path, b"not ONNX.")
    assert "has the opset 12; pareo reads 13 to" in refused(path, _small(opset=12))


def _small(**how: Any) -> Any:
    nodes, weights = pooled([node("Relu", ["x"], ["z"], "relu")], 2)
    return model(nodes, weights, **how)


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    nodes, weights = pooled(
        [node("Add", ["x", "b"], ["a"], "first"), node("Relu", ["a"], ["b"], "second"),
         node("Relu", ["b"], ["z"], "third")], 2
    )  # fmt: skip
    message = refused(tmp_path / "net.onnx", model(nodes, weights))
    assert "the node 'first' reads 'b', which nothing before it makes" in message


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("size", [2**20, 2**40, 2**62])
def test_sizes_that_are_only_declared(size: int, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    large = _small()
    weight = large.graph.initializer[0]
    del weight.dims[:]
    weight.dims.extend([size, 4])
    assert "but the file has 24 for it" in refused(path, large)
    weight.ClearField("raw_data")
    weight.float_data.extend([0.5] * 6)
    assert refused(path, large)
    weight.dims[0] = -size
    assert "has the shape" in refused(path, large)
    if size > 2**20:
        shape = ("N", 2, size, size)
        assert "which pareo does not take" in refused(path, _small(shape=shape))
        assert "which pareo does not take" in refused(path, _small(shape=(size, 2, 4, 4)))


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "nodes",
    [
        [node("ConstantOfShape", ["many"], ["a"]), node("Add", ["a", "one"], ["w"])],
        [node("Expand", ["one", "many"], ["a"]), node("Mul", ["a", "a"], ["w"])],
        [node("Expand", ["one", "many"], ["a"]), node("Reshape", ["a", "line"], ["w"])],
        [node("Expand", ["one", "many"], ["a"]), node("Concat", ["a", "a"], ["w"], axis=0)],
        [node("Range", ["zero", "end", "step"], ["w"])],
        [node("Gather", ["one", "places"], ["a"]), node("Expand", ["a", "many"], ["b"]),
         node("Exp", ["b"], ["w"])],
        [node("ReduceSum", ["none", "places"], ["w"])],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)  # fmt: skip
def test_constants_that_grow(nodes: list[Any], tmp_path: Path) -> None:
    weights = {
        "many": np.array([2**16, 2**16]), "one": np.ones((1, 1), "f"), "line": np.array([-1]),
        "zero": np.float32(0), "end": np.float32(2.0**40), "step": np.float32(1),
        "places": np.array([0]), "none": np.zeros((0, 2**20, 2**12), "f"),
    }  # fmt: skip
    more, dense = pooled([*nodes, node("Add", ["x", "w"], ["z"], "sum")], 2)
    message = refused(tmp_path / "net.onnx", model(more, {**weights, **dense}))
    assert "elements" in message


@pytest.mark.usefixtures("bounded")
def test_values_that_grow(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    nodes, weights = pooled([node("Conv", ["x", "w"], ["z"], "conv", pads=[2**20] * 4)], 2)
    weights["w"] = drawn(2, 2, 3, 3)
    assert "elements for each input" in refused(path, model(nodes, weights))
    # Of values that are each small enough, all together are too many.
    steps = [node("Conv", ["x", "w"], ["a0"], "conv", pads=[2**12] * 4)]
    steps += [node("Sigmoid", [f"a{n}"], [f"a{n + 1}"]) for n in range(9)]
    nodes, weights = pooled([*steps, node("Relu", ["a9"], ["z"])], 2)
    weights["w"] = drawn(2, 2, 3, 3)
    message = refused(path, model(nodes, weights, shape=(8, 2, 6, 6)))
    assert "GiB of memory" in message


def external(path: Path, location: str, **more: int) -> Any:
    """A small model whose first weight is in another file."""
    found = _small()
    weight = found.graph.initializer[0]
    data = weight.raw_data
    onnx.external_data_helper.set_external_data(weight, location, **more)
    weight.ClearField("raw_data")
    path.write_bytes(found.SerializeToString())
    return data


def test_weights_in_a_file_beside_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    (tmp_path / "data").mkdir()
    data = external(path, "data/weights.bin", offset=4, length=24)
    (tmp_path / "data" / "weights.bin").write_bytes(b"\0" * 4 + data)
    found = pareo.from_onnx(path)
    np.testing.assert_array_equal(found.parameters["fc.w"].T, drawn(3, 2))


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path, outside = folder / "net.onnx", tmp_path / "outside.bin"
    outside.write_bytes(external(path, "x"))
    (folder / "link.bin").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    for location in ("../outside.bin", str(outside), "link.bin", "up/outside.bin", "a/../../x"):
        external(path, location)
        message = refused(path, path.read_bytes())
        assert "outside the folder of the file" in message, location
    for location in ("", "nothing.bin", "x" * 5000, "a\0b"):
        external(path, location)
        assert "the tensor 'fc.weight' is in" in refused(path, path.read_bytes())


@pytest.mark.usefixtures("bounded")
def test_places_of_weights_are_compared_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    (tmp_path / "w.bin").write_bytes(external(path, "w.bin", offset=0, length=24))
    assert pareo.from_onnx(path)
    for more in ({"offset": 4}, {"offset": -4}, {"length": 2**40}, {"offset": 2**62}):
        external(path, "w.bin", **{"offset": 0, "length": 24, **more})
        assert "takes 24 bytes, but the file has" in refused(path, path.read_bytes())
    # Many tensors in the same bytes would take any amount of memory.
    found = onnx.load_model(path, load_external_data=False)
    again = onnx.TensorProto()
    again.CopyFrom(found.graph.initializer[0])
    again.name = "again"
    for tensor in (found.graph.initializer[0], again):
        tensor.raw_data = b"\0" * 24
        onnx.external_data_helper.set_external_data(tensor, "w.bin", offset=0, length=24)
        tensor.ClearField("raw_data")
    found.graph.initializer.append(again)
    assert "its tensors take more bytes than w.bin has" in refused(path, found)


def test_networks_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    several = _small()
    several.graph.input.append(helper.make_tensor_value_info("more", FLOAT, (1, 2)))
    assert "expected a network of one input; got 2" in refused(path, several)
    several = _small()
    several.graph.output.append(helper.make_tensor_value_info("z", FLOAT, "NCHW"))
    assert "expected a network with one result; got 2" in refused(path, several)
    images = model([node("Relu", ["x"], ["y"], "relu")], {}, result="NCHW")
    assert "expected a result of shape (N, classes); got ('N', 2, 6, 6)" in refused(path, images)
    fixed = model([node("Identity", ["w"], ["y"], "w")], {"w": drawn(2, 3)})
    assert "its result does not depend on its input" in refused(path, fixed)
    whole_numbers = _small()
    whole_numbers.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert "expected an input of float32 or float64" in refused(path, whole_numbers)
    half = _small()
    array = numpy_helper.to_array(half.graph.initializer[0]).astype("float16")
    half.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "fc.weight"))
    assert "its weight 'fc.weight' is float16, not float32" in refused(path, half)
    own = model([node("Own", ["x"], ["y"], "mine", domain="me")], {})
    own.opset_import.append(helper.make_opsetid("me", 1))
    assert "me.Own in the node 'mine'" in refused(path, own)


def test_an_attribute_of_a_function_that_there_is_not_is_refused(
    tmp_path: Path, whole: bytes
) -> None:
    file = onnx.load_model_from_string(whole)
    conv = next(one for one in file.graph.node if one.op_type == "Conv")
    next(one for one in conv.attribute if one.name == "strides").ref_attr_name = "x"
    path = tmp_path / "reference.onnx"
    path.write_bytes(file.SerializeToString())
    with pytest.raises(
        PareoError, match=r"the attribute 'strides' of Conv refers to one of a function"
    ):
        pareo.from_onnx(path)
