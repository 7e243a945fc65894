"""ONNX files as networks: what is read, how it is named, and the gate."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx_graphs import drawn, exported, model, pooled
from torch import nn as tnn
from torch.nn import functional
from torch_steps import batches, steps_of_pareo

import pareo
from pareo import Device, nn
from pareo.errors import PareoError
from pareo.nn.onnx_import import file, gate, imported, norms, operators, reader

node = helper.make_node


class Block(tnn.Module):
    """A residual block with batch normalisation, and squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        self.bn = tnn.BatchNorm2d(4, eps=1e-3, momentum=0.3)
        self.squeeze = tnn.Conv2d(4, 2, 1)
        self.excite = tnn.Conv2d(2, 4, 1)

    def forward(self, x: Any) -> Any:
        y = functional.silu(self.bn(self.conv(x)))
        mean = functional.relu(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))
        return functional.hardswish(x + functional.hardsigmoid(self.excite(mean)) * y)


class Convolutions(tnn.Module):
    """Pools, branches, shuffled channels and the usual activations."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tnn.Sequential(tnn.Conv2d(3, 4, (3, 5), (2, 1), (1, 2)), tnn.ReLU6())
        self.blocks = tnn.ModuleList([Block()])
        self.pool = tnn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.average = tnn.AvgPool2d(3, 2, 1, ceil_mode=True)
        self.drop = tnn.Dropout(0.25)
        self.fc = tnn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = torch.cat([self.pool(x), functional.leaky_relu(self.average(x), 0.2)], 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        left, right = x.chunk(2, 1)
        x = torch.cat([left + right, torch.tanh(right)], 1)
        return self.fc(self.drop(x.mean([2, 3])))


class Tokens(tnn.Module):
    """Attention in PyTorch's own layer, and written out as it often is; GELU and LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Conv2d(3, 8, 2, stride=2)
        self.token = tnn.Parameter(torch.full((1, 1, 8), 0.5))
        self.position = tnn.Parameter(torch.randn(1, 10, 8))
        self.norm = tnn.LayerNorm(8, eps=1e-6)
        self.attention = tnn.MultiheadAttention(8, 2, batch_first=True)
        self.qkv = tnn.Linear(8, 24, bias=False)
        self.gamma = tnn.Parameter(torch.full((8,), 0.3))
        self.head = tnn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.position
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        q, k, v = self.qkv(x).reshape(n, -1, 3, 4, 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, -1, c) * self.gamma
        return self.head(functional.gelu(x)[:, 0])


class Last(tnn.Module):
    """Images with channels last in the middle, as in ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Conv2d(3, 4, 2, stride=2)
        self.norm = tnn.LayerNorm(4, eps=1e-6)
        self.wide = tnn.Linear(4, 8)
        self.narrow = tnn.Linear(8, 4, bias=False)
        self.gamma = tnn.Parameter(torch.full((4, 1, 1), 1e-2))
        self.head = tnn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        y = self.narrow(functional.gelu(self.wide(self.norm(x.permute(0, 2, 3, 1)))))
        x = x + self.gamma * y.permute(0, 3, 1, 2)
        return self.head(torch.sigmoid(functional.adaptive_avg_pool2d(x, 1).flatten(1)))


def made(kind: Any) -> Any:
    """A module whose batch normalisations are not those of a new one."""
    torch.manual_seed(0)
    module = kind()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, tnn.BatchNorm2d):
                for tensor in (part.weight, part.bias, part.running_mean):
                    tensor.uniform_(0.5, 1.5)
                part.running_var.uniform_(0.5, 2.0)
    return module


def saved(found: Any, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save_model(found, path)
    return path


SHAPES = {Convolutions: (3, 12, 12), Tokens: (3, 6, 6), Last: (3, 8, 8)}


@pytest.mark.parametrize(
    ("training", "opset"), [(False, 17), (True, 14)], ids=["folded", "training"]
)
@pytest.mark.parametrize("kind", SHAPES)
def test_outputs_are_those_of_the_module(
    kind: Any, training: bool, opset: int, tmp_path: Path
) -> None:
    module, shape = made(kind), SHAPES[kind]
    path = exported(module, tmp_path / "net.onnx", shape, training, opset_version=opset)
    found = pareo.from_onnx(path)
    x = np.random.default_rng(0).standard_normal((4, *shape)).astype("float32")
    with Device("vectorized"):
        ours = found.network(found.parameters, x)
    with torch.no_grad():
        expected = module.eval()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_parameters_have_the_names_of_the_initialisers(tmp_path: Path) -> None:
    module = made(Convolutions)
    found = pareo.from_onnx(exported(module, tmp_path / "net.onnx", (3, 12, 12), True))
    state = module.state_dict()
    assert found.network.name == "net"
    assert found.names["blocks.0.bn.variance"].name == "blocks.0.bn.running_var"
    assert {name.name for name in found.names.values()} == {
        name for name in state if not name.endswith("num_batches_tracked")
    }
    for path, name in found.names.items():
        np.testing.assert_array_equal(name.to_torch(found.parameters[path]), state[name.name])
        shape = found.parameters[path].shape
        np.testing.assert_array_equal(
            name.from_torch(state[name.name], shape), found.parameters[path]
        )
    layers = {path: layer for path, layer, _ in found.network.walk((3, 12, 12))}
    assert layers["blocks.0.bn"] == nn.BatchNorm(0.3, 1e-3)
    assert layers["drop"] == nn.Dropout(0.25)
    assert layers["stem.1"] == nn.Clip()
    assert found.notes == ()


def test_folded_batch_normalisation_is_said(tmp_path: Path) -> None:
    found = pareo.from_onnx(exported(made(Convolutions), tmp_path / "net.onnx", (3, 12, 12)))
    assert {"stem.0.w", "blocks.0.conv.w", "blocks.0.conv.b", "fc.w"} <= set(found.parameters)
    assert not found.network.state
    assert any("folded into the convolutions" in note for note in found.notes)


def test_attention_is_one_layer(tmp_path: Path) -> None:
    found = pareo.from_onnx(exported(made(Tokens), tmp_path / "net.onnx", (3, 6, 6), True))
    layers = [layer for _, layer, _ in found.network.walk((3, 6, 6))]
    assert [layer for layer in layers if isinstance(layer, nn.Attention)] == [
        nn.Attention(2), nn.Attention(4, causal=True)
    ]  # fmt: skip
    assert nn.GELU() in layers
    names = {path: name.name for path, name in found.names.items()}
    assert names["token.w"] == "token"
    assert names["position.w"] == "position"
    assert names["attention.out_proj.b"] == "attention.out_proj.bias"


@pytest.mark.parametrize("kind", SHAPES)
def test_five_steps_of_training_are_those_of_torch(kind: Any, tmp_path: Path) -> None:
    module, shape = made(kind), SHAPES[kind]
    for part in module.modules():
        if isinstance(part, tnn.Dropout):
            part.p = 0.0
    found = pareo.from_onnx(exported(module, tmp_path / "net.onnx", shape, True))
    parameters = {path: a.astype("float64") for path, a in found.parameters.items()}
    data = list(batches(found.network, 4, 5, "float64"))
    steps = steps_of_pareo(found.network, "vectorized", parameters, data, 0.1)
    module = module.double().train()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for seen, (images, labels) in zip(steps, data, strict=True):
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(torch.tensor(images)), torch.tensor(labels))
        loss.backward()
        # PyTorch's gradient of hardsigmoid has 1/6 in float32, which is 3e-8 off
        assert seen.loss == pytest.approx(loss.item(), rel=1e-7)
        named = dict(module.named_parameters())
        for path, gradient in seen.gradients.items():
            expected = named[found.names[path].name].grad.numpy()
            ours = found.names[path].to_torch(gradient)
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-8, err_msg=path)
        optimizer.step()


def test_it_is_an_ordinary_network(tmp_path: Path) -> None:
    found = pareo.from_onnx(exported(made(Tokens), tmp_path / "net.onnx", (3, 6, 6)))
    assert "Attention" in found.network.summary()
    pareo.save(tmp_path / "net.safetensors", found.network, found.parameters)
    known = pareo.load(tmp_path / "net.safetensors")
    assert known.network == found.network
    assert all(np.array_equal(known.weights[path], a) for path, a in found.parameters.items())


def outputs(found: Any, x: Any) -> tuple[Any, Any]:
    """What pareo and onnxruntime compute of a model, in float64."""
    read = imported.read_network(file.check(file.File(Path("model"), found, 18)))
    network = read.network("model")
    ours = gate._outputs(network, read.parameters, x)
    return ours, gate.run(found, ["y"], x, "model")[0]


sides = st.integers(0, 2)


@settings(max_examples=60, deadline=None)
@given(
    op=st.sampled_from(["Conv", "MaxPool", "AveragePool"]),
    auto=st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(sides, sides, sides, sides),
    dilation=st.integers(1, 2),
    ceil=st.booleans(),
    counts=st.booleans(),
    before=st.tuples(sides, sides, sides, sides),
)
def test_windows_of_every_padding(
    op: str, auto: str, kernel: Any, strides: Any, pads: Any, dilation: int, ceil: bool,
    counts: bool, before: Any,
) -> None:  # fmt: skip
    how: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    how |= {"pads": pads} if auto == "NOTSET" else {"auto_pad": auto}
    weights: dict[str, Any] = {}
    if op == "Conv":
        how |= {"dilations": (dilation, dilation)}
        weights = {"w": drawn(3, 2, *kernel)}
    elif auto == "NOTSET":
        how |= {"ceil_mode": int(ceil)}
    if op == "AveragePool":
        how |= {"count_include_pad": int(counts)}
    image, nodes = "x", []
    if op == "Conv" and any(before):  # a Pad of zeros becomes part of the convolution
        weights["pads"] = np.array([0, 0, *before[:2], 0, 0, *before[2:]])
        nodes, image = [node("Pad", ["x", "pads"], ["padded"])], "padded"
    nodes.append(node(op, [image, *[w for w in weights if w == "w"]], ["y"], **how))
    found = model(nodes, weights, (2, 2, 6, 7), result=(2, *"CHW"))
    refused = ""
    try:
        ours, expected = outputs(found, drawn(2, 2, 6, 7))
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    except PareoError as error:
        refused = str(error)
    # pareo refuses windows inside the padding or larger than the image, and so may onnxruntime
    known = ("padding smaller", "window of at least", "onnxruntime does not compute")
    assert not refused or any(why in refused for why in known)


def test_optional_inputs_may_be_left_out(tmp_path: Path) -> None:
    nodes, weights = pooled([
        node("Conv", ["x", "conv.weight", ""], ["a"], "conv"),
        node("Clip", ["a", "", "high"], ["b"], "clip"),
        node("Clip", ["b", "low"], ["z"], "relu"),
    ], 4)  # fmt: skip
    weights |= {"conv.weight": drawn(4, 2, 3, 3), "high": np.float32(0.5), "low": np.float32(0)}
    network = pareo.from_onnx(saved(model(nodes, weights), tmp_path)).network
    assert network.layers[:3] == (
        nn.Conv(4, 3, bias=False), nn.Clip(-float(np.finfo("float32").max), 0.5), nn.ReLU()
    )  # fmt: skip


def test_sums_and_products_of_constants(tmp_path: Path) -> None:
    """A bias after its convolution, numbers for channels, and a scale and a shift."""
    nodes, weights = pooled([
        node("Sub", ["x", "mean"], ["a"], "centre"),
        node("Div", ["a", "deviation"], ["b"], "divide"),
        node("Conv", ["b", "conv.weight"], ["c"], "conv"),
        node("Add", ["c", "conv.bias"], ["d"], "bias"),
        node("Mul", ["d", "bn.scale"], ["e"], "scale"),
        node("Add", ["bn.shift", "e"], ["f"], "shift"),
        node("Mul", ["f", "half"], ["g"], "half"),
        node("Add", ["g", "half"], ["z"], "more"),
    ], 4)  # fmt: skip
    weights |= {
        "mean": drawn(1, 2, 1, 1), "deviation": np.abs(drawn(2, 1, 1)) + 1, "half": np.float32(0.5),
        "conv.weight": drawn(4, 2, 3, 3), "conv.bias": drawn(1, 4, 1, 1),
        "bn.scale": drawn(4, 1, 1), "bn.shift": drawn(4, 1, 1, seed=1),
    }  # fmt: skip
    found = pareo.from_onnx(saved(model(nodes, weights), tmp_path))
    kinds = [type(layer) for layer in found.network.layers]
    assert kinds == [
        nn.Normalise, nn.Normalise, nn.Conv, nn.Conv, nn.Normalise, nn.Normalise,
        nn.GlobalAveragePool, nn.Flatten, nn.Dense,
    ]  # fmt: skip
    assert {"conv.w", "conv.b", "bn.w", "bn.b", "fc.w", "fc.b"} == set(found.parameters)
    assert any("'mean' stay as they are" in note for note in found.notes)


def test_a_weight_that_is_used_twice_is_two(tmp_path: Path) -> None:
    nodes, weights = pooled([
        node("Conv", ["x", "w"], ["a"], "first"), node("Conv", ["a", "w"], ["z"], "second")
    ], 2)  # fmt: skip
    weights["w"] = drawn(2, 2, 3, 3)
    found = pareo.from_onnx(saved(model(nodes, weights), tmp_path))
    assert {"w.w", "w_2.w"} <= set(found.parameters)
    assert any("train apart: w" in note for note in found.notes)


def test_all_unknown_operators_are_listed_with_their_nodes(tmp_path: Path) -> None:
    nodes, weights = pooled([
        node("Cos", ["x"], ["a"], "first"),
        node("Tan", ["x"], ["b"]),
        node("MaxPool", ["a"], ["c"], "pool", kernel_shape=[2, 2], dilations=[2, 2]),
        node("Add", ["a", "b"], ["d"], "sum"),
        node("Sin", ["d"], ["z"], "third"),
    ], 2)  # fmt: skip
    with pytest.raises(PareoError) as caught:
        pareo.from_onnx(saved(model(nodes, weights), tmp_path))
    message = str(caught.value)
    assert "Cos in the node 'first'" in message
    assert "Tan in the node that makes 'b'" in message
    assert "MaxPool (with dilations = [2, 2]) in the node 'pool'" in message
    assert "Sin in the node 'third'" in message
    assert "\n" not in message


def test_the_gate_names_the_first_node_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, weights = pooled([
        node("Conv", ["x", "conv.weight"], ["a"], "conv"),
        node("Relu", ["a"], ["b"], "rectify"),
        node("Sigmoid", ["b"], ["z"], "last"),
    ], 2)  # fmt: skip
    weights["conv.weight"] = drawn(2, 2, 3, 3)
    path = saved(model(nodes, weights), tmp_path)
    wrong = {**operators.OPERATORS, "Relu": operators.OPERATORS["Tanh"]}
    monkeypatch.setattr(imported, "OPERATORS", wrong)
    with pytest.raises(PareoError, match="the first node that differs is 'rectify', a Relu"):
        pareo.from_onnx(path)


def test_the_gate_allows_for_rounding_that_the_network_amplifies(tmp_path: Path) -> None:
    """Differences of large numbers have few digits in float32, in onnxruntime and here."""
    nodes, weights = pooled([
        node("Add", ["x", "many"], ["a"], "up"), node("Sub", ["a", "many"], ["z"], "down"),
    ], 2)  # fmt: skip
    weights["many"] = np.float32(10_000)
    found = pareo.from_onnx(saved(model(nodes, weights), tmp_path))
    x = drawn(3, 2, 6, 6)
    ours = gate._outputs(found.network, found.parameters, x)
    (expected,) = gate.run(model(nodes, weights), ["y"], x, "net")
    assert np.linalg.norm(ours - expected) > gate.TOLERANCE * np.linalg.norm(expected)


def test_the_gate_draws_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale of 1 and a shift of 0, as of new normalisations, do not hide a wrong order."""
    nodes, weights = pooled([node("BatchNormalization", ["x", *"smvw"], ["z"], "bn")], 2)
    weights |= {"s": np.ones(2, "f"), "m": np.zeros(2, "f"), "v": np.zeros(2, "f")}
    weights |= {"w": np.ones(2, "f")}
    path = saved(model(nodes, weights), tmp_path)
    assert set(pareo.from_onnx(path).parameters) > {"s.scale", "s.shift"}
    before = norms.batch_normalization

    def exchanged(own: reader.OnnxReader, step: reader.Step) -> Any:
        x, scale, shift, mean, variance = step.inputs
        step.inputs = [x, variance, mean, shift, scale]
        return before(own, step)

    wrong = {**operators.OPERATORS, "BatchNormalization": exchanged}
    monkeypatch.setattr(imported, "OPERATORS", wrong)
    with pytest.raises(PareoError, match="the first node that differs is 'bn'"):
        pareo.from_onnx(path)


def test_a_batch_that_the_file_fixes_is_any_batch_here(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", ["x", "shape"], ["flat"], "flat"),
        node("Gemm", ["flat", "fc.weight"], ["y"], "fc", transB=1),
    ]
    weights = {"shape": np.array([1, 72]), "fc.weight": drawn(3, 72)}
    found = pareo.from_onnx(saved(model(nodes, weights, (1, 2, 6, 6)), tmp_path))
    x = drawn(5, 2, 6, 6)
    with Device("vectorized"):
        ours = found.network(found.parameters, x)
    expected = x.reshape(5, 72) @ weights["fc.weight"].T
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_open_sizes_need_a_shape(tmp_path: Path) -> None:
    nodes, weights = pooled([node("Relu", ["x"], ["z"], "relu")], 2)
    path = saved(model(nodes, weights, ("N", 2, "H", "W")), tmp_path)
    with pytest.raises(PareoError, match=r"its input is \(\?, 2, \?, \?\); give the shape"):
        pareo.from_onnx(path)
    assert pareo.from_onnx(path, (2, 5, 7)).network.inputs == (2, 5, 7)
    with pytest.raises(PareoError, match="not"):
        pareo.from_onnx(path, (3, 5, 7))


def test_nothing_imports_onnx_before_it_is_needed() -> None:
    modules = "pareo, pareo.nn.onnx_import, pareo.nn.onnx_export, pareo.cli.export"
    code = f"import {modules}, sys; print({{'onnx', 'onnxruntime', 'torch'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_without_onnx_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PareoError, match=r"pip install 'pareo\[onnx\]'"):
        pareo.from_onnx(tmp_path / "net.onnx")


def test_padding_that_the_file_computes(tmp_path: Path) -> None:
    """TensorFlow's padding, which depends on the image: the bottom and the right have more."""
    nodes, weights = pooled([
        node("Shape", ["x"], ["shape"], "shape", start=2),
        node("Sub", ["window", "shape"], ["short"], "short"),
        node("Clip", ["short", "zero"], ["more"], "more"),
        node("Div", ["more", "two"], ["before"], "before"),
        node("Sub", ["more", "before"], ["after"], "after"),
        node("Concat", ["none", "before", "none", "after"], ["pads"], "pads", axis=0),
        node("Pad", ["x", "pads"], ["padded"], "pad"),
        node("Conv", ["padded", "conv.weight"], ["z"], "conv", strides=[2, 2]),
    ], 4)  # fmt: skip
    weights |= {
        "window": np.array([9, 7]), "two": np.array([2, 2]), "none": np.array([0, 0]),
        "zero": np.int64(0), "conv.weight": drawn(4, 2, 3, 3),
    }  # fmt: skip
    network = pareo.from_onnx(saved(model(nodes, weights), tmp_path)).network
    assert network.layers[0] == nn.Conv(4, 3, 2, (1, 0, 2, 1), bias=False)


def test_a_scale_and_a_shift_of_features(tmp_path: Path) -> None:
    """As in ResMLP: both are trained, and there are no other parameters."""
    nodes = [
        node("Mul", ["x", "alpha"], ["a"], "scale"), node("Add", ["beta", "a"], ["b"], "shift"),
        node("ReduceMean", ["b", "axis"], ["c"], "mean", keepdims=0),
        node("MatMul", ["c", "fc.weight"], ["d"], "fc"), node("Add", ["d", "fc.bias"], ["y"], "b"),
    ]  # fmt: skip
    weights = {
        "alpha": drawn(4), "beta": drawn(1, 1, 4), "axis": np.array([1]),
        "fc.weight": drawn(4, 3), "fc.bias": drawn(3),
    }  # fmt: skip
    found = pareo.from_onnx(saved(model(nodes, weights, ("N", 5, 4)), tmp_path))
    assert set(found.parameters) == {"alpha.w", "alpha.b", "fc.w", "fc.b"}
    assert found.network.count() == 4 + 4 + 12 + 3
    np.testing.assert_array_equal(found.parameters["alpha.b"], weights["beta"].ravel())
