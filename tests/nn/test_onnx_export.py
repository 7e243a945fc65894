"""Networks as ONNX files: every layer, any batch size, and back again."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pareo
from pareo import Device, nn
from pareo.errors import PareoError, ShapeError
from pareo.nn import networks, onnx_export
from pareo.nn.network import Auxiliary
from pareo.nn.tables import packed
from pareo.training.definition import LAYERS

IMAGES, TOKENS = (4, 7, 6), (5, 6)
# A network of each layer, by the shape of its inputs.
CASES: list[tuple[tuple[int, ...], nn.Layer]] = [
    (IMAGES, nn.AdaptiveAveragePool((3, 4))),
    (IMAGES, nn.AdaptiveAveragePool((7, 6))),
    (IMAGES, nn.AveragePool(3, 2, (0, 1, 2, 1), ceil=True, counts_padding=True)),
    (IMAGES, nn.AveragePool((3, 2), 2, (1, 0))),
    (IMAGES, nn.Affine(-2.0, 0.5)),
    (IMAGES, nn.Affine(0.0)),
    (IMAGES, nn.BatchNorm(0.3, 1e-3)),
    (IMAGES, nn.Clip(-0.5, 0.25)),
    (IMAGES, nn.Conv(6, (3, 2), (2, 1), (0, 1, 2, 0), groups=2, dilation=(1, 2))),
    (IMAGES, nn.Conv(3, 1, bias=False)),
    (IMAGES, nn.Dropout(0.5)),
    (IMAGES, nn.ELU(0.7)),
    (IMAGES, nn.Exp()),
    (IMAGES, nn.FixedProduct((4, 1, 1), packed(np.arange(4) / 3, "<f8"))),
    (IMAGES, nn.Flatten()),
    (IMAGES, nn.GELU()),
    (IMAGES, nn.GELU(approximate=True)),
    (IMAGES, nn.GlobalAveragePool()),
    (IMAGES, nn.GroupNorm(2, 1e-3)),
    (IMAGES, nn.GroupNorm(4, trained=False)),
    (IMAGES, nn.HardSigmoid()),
    (IMAGES, nn.HardSwish()),
    (IMAGES, nn.Identity()),
    (IMAGES, nn.Index(2, (3, 0, 0, 1))),
    (IMAGES, nn.LayerNorm(1, 1e-6)),
    (IMAGES, nn.LeakyReLU(0.2)),
    (IMAGES, nn.Log()),
    (IMAGES, nn.Lrn(3, 0.5, 0.7, 1.5)),
    (IMAGES, nn.MaxPool(3, 2, (1, 0, 0, 1), ceil=True)),
    (IMAGES, nn.Mix(2, 3, packed(np.arange(3 * IMAGES[1]) / 9, "<f8"))),
    (IMAGES, nn.Normalise((0.1, 0.2, -0.3, 0.0), (0.5, 1.0, 2.0, 3.0))),
    (IMAGES, nn.Pad((0, 1, 2), (3, 0, 1))),
    (IMAGES, nn.Part(2, 1, 4)),
    (IMAGES, nn.Permute((0, 3, 1, 2))),
    (IMAGES, nn.Power(-0.5)),
    (IMAGES, nn.Power(-1.0)),
    (IMAGES, nn.ReLU()),
    (IMAGES, nn.Reshape((2, 2, 42))),
    (IMAGES, nn.Scale()),
    (IMAGES, nn.Sigmoid()),
    (IMAGES, nn.Softplus()),
    (IMAGES, nn.SiLU()),
    (IMAGES, nn.StochasticDepth(0.5)),
    (IMAGES, nn.Subsample(2, 2)),
    (IMAGES, nn.Tanh()),
    (IMAGES, nn.Tokens()),
    (TOKENS, nn.Attention(2)),
    (TOKENS, nn.Attention(1, causal=True)),
    (TOKENS, nn.ClassToken()),
    (TOKENS, nn.FixedSum((1, TOKENS[1]), packed(np.arange(TOKENS[1]) / 7, "<f8"))),
    (TOKENS, nn.TableSum((TOKENS[0], 1), (2, 2), packed(np.arange(TOKENS[0]) % 4, "<i4"))),
    (TOKENS, nn.TableProduct((1, 1), (1,), packed(np.zeros(1), "<i4"))),
    (TOKENS, nn.Dense(3)),
    (TOKENS, nn.Dense(3, bias=False)),
    (TOKENS, nn.FirstToken()),
    (TOKENS, nn.GroupNorm(1)),
    (TOKENS, nn.Learned((2, 3))),
    (TOKENS, nn.LayerNorm()),
    (TOKENS, nn.LogSoftmax()),
    (TOKENS, nn.Softmax(2)),
    (TOKENS, nn.PositionEmbedding()),
    (TOKENS, nn.Scale()),
    ((6,), nn.Dense(3)),
    ((6,), nn.Dense(3, bias=False)),
    ((6,), nn.BatchNorm()),
    ((6,), nn.Normalise((0.5,) * 6, (2.0,) * 6)),
    ((6,), nn.Softmax()),
]


def drawn(network: nn.Sequential, dtype: str = "float32") -> dict[str, Any]:
    """Parameters that are all other than those of a new network; variances are above 0."""
    random = np.random.default_rng(0)
    return {
        path: np.asarray(random.uniform(0.2, 1.5, p.shape), dtype)
        for path, p in network.parameters(network.inputs).items()
    }


def check(network: nn.Sequential, parameters: Any, path: Path) -> None:
    """Compare a file with the network, for several batch sizes."""
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    dtype = next((a.dtype for a in parameters.values()), np.dtype("float32"))
    for batch in (1, 2, 5):
        x = random.standard_normal((batch, *network.inputs)).astype(dtype)
        (found,) = session.run(None, {"input": x})
        with Device("vectorized"):
            expected = network(parameters, x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "layer"), CASES, ids=lambda one: str(one)[:40])
def test_each_layer(shape: Any, layer: nn.Layer, tmp_path: Path) -> None:
    above = {"above": nn.Softplus()} if isinstance(layer, nn.Log | nn.Power) else {}
    network = nn.Sequential({**above, "one": layer}, shape)
    parameters = drawn(network)
    pareo.to_onnx(network, parameters, tmp_path / "net.onnx")
    check(network, parameters, tmp_path / "net.onnx")
    found = onnx.load(tmp_path / "net.onnx").graph.initializer
    assert {one.name for one in found} >= set(parameters)


def test_there_is_a_case_for_every_layer() -> None:
    every = set(LAYERS.values())
    assert {type(layer) for _, layer in CASES} == every == set(onnx_export.WRITERS)


GRAPH = nn.Graph({
    "stem": nn.Conv(4, 3, padding=1, bias=False), "norm": nn.BatchNorm(), "act": nn.HardSwish(),
    "side": (nn.Conv(4, 1), "input"), "sum": ("add", "act", "side"),
    "gate": (nn.Sigmoid(), "side"), "product": ("multiply", "sum", "gate"),
    "both": ("concat", "product", "act"), "drop": nn.Dropout(0.5), "pool": nn.GlobalAveragePool(),
    "flat": nn.Flatten(), "fc": nn.Dense(3),
})  # fmt: skip


def _layers(network: nn.Sequential) -> list[nn.Layer]:
    """The layers in inference, in order."""
    every = (layer for _, layer, _ in network.walk(network.inputs))
    return [one for one in every if not isinstance(one, nn.Graph | nn.Dropout)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_there_and_back(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "there.onnx"
    network = nn.Sequential([("", GRAPH)], (2, 5, 5), "there")
    parameters = drawn(network, dtype)
    if dtype == "float64":  # onnxruntime has no convolutions of it
        with pytest.raises(PareoError, match="is not written, because onnxruntime does not"):
            pareo.to_onnx(network, parameters, path)
        network = nn.Sequential([nn.Flatten(), nn.Dense(4), nn.Tanh(), nn.Dense(3)], (2, 5, 5))
        parameters = drawn(network, dtype)
    pareo.to_onnx(network, parameters, path)
    check(network, parameters, path)
    found = pareo.from_onnx(path)
    assert set(found.parameters) == set(parameters)
    assert _layers(found.network) == _layers(network)
    for name, array in parameters.items():
        np.testing.assert_array_equal(found.parameters[name], array)
        assert found.parameters[name].dtype == dtype
    x = np.random.default_rng(2).standard_normal((4, 2, 5, 5)).astype(dtype)
    with Device("vectorized"):
        ours, theirs = network(parameters, x), found.network(found.parameters, x)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["papers-cnn", "resnet8", "lenet5"])
def test_networks_by_name(name: str, tmp_path: Path) -> None:
    network = networks.by_name(name)
    parameters = network.initialise()
    pareo.to_onnx(network, parameters, tmp_path / "net.onnx")
    found = pareo.from_onnx(tmp_path / "net.onnx")
    if name != "papers-cnn":  # its filter for all channels is one for each, here
        assert {p: a.shape for p, a in found.parameters.items()} == {
            p: a.shape for p, a in parameters.items()
        }


def test_auxiliary_heads_are_left_out(tmp_path: Path) -> None:
    head = nn.Sequential({"aux": nn.Dense(3)})
    network = nn.Sequential({"one": nn.Dense(4), "h": Auxiliary(head), "two": nn.Dense(3)}, (5,))
    parameters = drawn(network)
    pareo.to_onnx(network, parameters, tmp_path / "net.onnx")
    check(network, parameters, tmp_path / "net.onnx")
    names = {one.name for one in onnx.load(tmp_path / "net.onnx").graph.initializer}
    assert names == {"one.w", "one.b", "two.w", "two.b"}


def test_what_cannot_be_written(tmp_path: Path) -> None:
    network = nn.Sequential({"fc": nn.Dense(2)}, (3,))
    parameters = network.initialise()
    with pytest.raises(ShapeError, match=r"not those of network: fc\.b"):
        pareo.to_onnx(network, {"fc.w": parameters["fc.w"]}, tmp_path / "net.onnx")
    with pytest.raises(ShapeError, match=r"not those of network: fc\.b"):
        pareo.to_onnx(network, {**parameters, "fc.b": np.ones(3, "f")}, tmp_path / "net.onnx")
    half = {path: array.astype("float16") for path, array in parameters.items()}
    with pytest.raises(PareoError, match="float32 or float64"):
        pareo.to_onnx(network, half, tmp_path / "net.onnx")
    (tmp_path / "file").write_text("")
    with pytest.raises(PareoError, match="cannot be written"):
        pareo.to_onnx(network, parameters, tmp_path / "file" / "net.onnx")

    class Own(nn.Identity):
        pass

    with pytest.raises(PareoError, match="does not know the layer Own"):
        pareo.to_onnx(nn.Sequential({"own": Own()}, (3,)), {}, tmp_path / "net.onnx")
    assert not list(tmp_path.glob("*.onnx"))


def test_a_file_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {**onnx_export.WRITERS, nn.ReLU: onnx_export.WRITERS[nn.Tanh]}
    monkeypatch.setattr(onnx_export.written, "WRITERS", wrong)
    network = nn.Sequential([nn.Dense(2), nn.ReLU()], (3,))
    with pytest.raises(PareoError, match="is not written, because onnxruntime's outputs"):
        pareo.to_onnx(network, network.initialise(), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())
