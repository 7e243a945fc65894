"""Weights by name from the files of others: all that does not fit is listed, nothing executed."""

import pickle
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_modules
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

import pareo
from pareo import nn
from pareo.errors import DataError, PareoError, ShapeError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.nn.other_names import renamed
from pareo.nn.torch_names import to_torch_arrays, torch_names
from pareo.training import save
from pareo.training.weights import load_weights, matched

NETWORK = nn.Sequential(
    {"conv": nn.Conv(3, 3), "norm": nn.BatchNorm(), "flat": nn.Flatten(), "fc": nn.Dense(4)},
    (2, 5, 5),
    "small",
)


@pytest.fixture
def arrays() -> dict[str, Any]:
    return to_torch_arrays(NETWORK, NETWORK.initialise(7))


def tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(a) for name, a in arrays.items()}


@pytest.mark.parametrize("form", ["plain", "wrapped", "inside", "module", "half", "safetensors"])
def test_every_form_of_a_state_dict_is_read(form: str, arrays: Any, tmp_path: Path) -> None:
    path, found = tmp_path / "weights.file", tensors(arrays)
    found["norm.num_batches_tracked"] = torch.tensor(3)
    match form:
        case "plain":
            torch.save(found, path)
        case "wrapped":
            torch.save({f"module.{name}": a for name, a in found.items()}, path)
        case "inside":
            torch.save({"epoch": 3, "state_dict": found, "arch": "small"}, path)
        case "module":
            torch.save(nn_module(found).state_dict(), path)
        case "half":
            save_torch_file({n: a.bfloat16() for n, a in found.items()}, path)
        case "safetensors":
            save_file(arrays, path)
    loaded = load_weights(NETWORK, path)
    most = 0.01 if form == "half" else 0.0  # bfloat16 has 8 bits
    for name, array in NETWORK.initialise(7).items():
        assert loaded[name].dtype == np.float32
        assert np.abs(loaded[name] - array).max() <= most * np.abs(array).max()


def nn_module(found: dict[str, Any]) -> Any:
    module = torch.nn.Sequential()
    module.add_module("conv", torch.nn.Conv2d(2, 3, 3))
    module.add_module("norm", torch.nn.BatchNorm2d(3))
    module.add_module("fc", torch.nn.Linear(27, 4))
    module.load_state_dict(found)
    return module


def test_a_checkpoint_of_pareo_is_read(tmp_path: Path) -> None:
    weights = NETWORK.initialise(7)
    save(tmp_path / "kept.safetensors", NETWORK, weights)
    found = load_weights(NETWORK, tmp_path / "kept.safetensors")
    assert all(np.array_equal(found[path], a) for path, a in weights.items())


def test_all_that_does_not_fit_is_listed_at_once(arrays: Any, tmp_path: Path) -> None:
    for number in range(12):
        arrays[f"more.{number}"] = np.zeros(2, np.float32)
    arrays["fc.weight"], arrays["fc.bias"] = arrays["fc.weight"][:3], arrays["fc.bias"][:3]
    del arrays["conv.bias"], arrays["norm.running_var"]
    save_file(arrays, tmp_path / "w.safetensors")
    with pytest.raises(ShapeError) as caught:
        load_weights(NETWORK, tmp_path / "w.safetensors")
    said = str(caught.value)
    assert "missing: conv.bias, norm.running_var;" in said
    assert all(f"more.{number}" in said for number in range(12))
    assert "of another shape: fc.weight (3, 27) instead of (4, 27), fc.bias (3,) instead" in said
    fitting = load_weights(NETWORK, tmp_path / "w.safetensors", strict=False)
    assert set(fitting) == {"conv.w", "norm.scale", "norm.shift", "norm.mean"}
    found = matched(NETWORK, tmp_path / "w.safetensors")
    assert not found.complete
    assert len(found.left_over) == 12


def test_an_imported_network_has_the_names_of_its_module(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(),
                                 torch.nn.Linear(18, 3))  # fmt: skip
    other = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(),
                                torch.nn.Linear(18, 3))  # fmt: skip
    torch.save(other.state_dict(), tmp_path / "w.pt")
    imported = pareo.from_torch(module, (1, 5, 5))
    found = load_weights(imported, tmp_path / "w.pt")
    assert np.array_equal(found["2.w"], other[2].weight.detach().numpy().T)


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("/tmp/pareo-was-executed"),))


@pytest.mark.parametrize("inside", ["pickle", "torch"])
def test_nothing_in_a_file_is_executed(inside: str, tmp_path: Path) -> None:
    path, mark = tmp_path / "evil.pt", Path("/tmp/pareo-was-executed")
    mark.unlink(missing_ok=True)
    if inside == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    else:
        torch.save({"conv.weight": torch.zeros(1), "other": Evil()}, path)
    with pytest.raises(DataError, match="expected a safetensors file, or a state_dict"):
        load_weights(NETWORK, path)
    assert not mark.exists()


def test_wrong_files_are_one_sentence(arrays: Any, tmp_path: Path) -> None:
    file = tmp_path / "w.file"
    save_file(arrays, file)
    whole = file.read_bytes()
    cases = {
        "expected a complete safetensors file": whole[:-10],
        "expected a safetensors file, or a state_dict": b"",
        "expected a safetensors file, or a state_dict of": b"\x00" * 100,
    }
    for said, content in cases.items():
        file.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(said)) as caught:
            load_weights(NETWORK, file)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="No such file"):
        load_weights(NETWORK, tmp_path / "none.pt")
    torch.save([torch.zeros(2)], file)
    with pytest.raises(DataError, match="has no tensors by name"):
        load_weights(NETWORK, file)
    torch.save({"a.b": torch.zeros(2)}, file)
    with pytest.raises(PareoError, match=r"no weights that fit small; it has a\.b, for example"):
        load_weights(NETWORK, file, strict=False)
    arrays["fc.bias"] = arrays["fc.bias"] + np.float32("nan")
    save_file(arrays, file)
    with pytest.raises(DataError, match=r"values that are not finite in fc\.bias"):
        load_weights(NETWORK, file)


TIMM = {
    "vit-b-16": {
        "cls_token": "class_token",
        "pos_embed": "encoder.pos_embedding",
        "patch_embed.proj.bias": "conv_proj.bias",
        "blocks.0.attn.qkv.bias": "encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
        "blocks.0.mlp.fc2.bias": "encoder.layers.encoder_layer_0.mlp.3.bias",
        "norm.weight": "encoder.ln.weight",
        "head.weight": "heads.head.weight",
    },
    "convnext-tiny": {
        "stem.0.weight": "features.0.0.weight",
        "stages.2.downsample.1.bias": "features.4.1.bias",
        "stages.2.blocks.8.gamma": "features.5.8.layer_scale",
        "stages.3.blocks.2.norm.weight": "features.7.2.block.2.weight",
        "head.norm.bias": "classifier.0.bias",
        "head.fc.weight": "classifier.2.weight",
    },
    "vgg11": {
        "pre_logits.fc1.weight": "classifier.0.weight",
        "features.0.weight": "features.0.weight",
        "head.fc.bias": "classifier.6.bias",
    },
    "mobilenet-v2": {
        "conv_stem.weight": "features.0.0.weight",
        "blocks.0.0.conv_pw.weight": "features.1.conv.1.weight",
        "blocks.1.0.conv_pwl.weight": "features.2.conv.2.weight",
        "blocks.1.0.bn2.running_var": "features.2.conv.1.1.running_var",
        "classifier.bias": "classifier.1.bias",
    },
    "efficientnet-b0": {
        "conv_stem.weight": "features.0.0.weight",
        "blocks.0.0.conv_pw.weight": "features.1.0.block.2.0.weight",
        "blocks.0.0.se.conv_expand.bias": "features.1.0.block.1.fc2.bias",
        "blocks.1.0.conv_pwl.weight": "features.2.0.block.3.0.weight",
        "blocks.1.0.bn3.bias": "features.2.0.block.3.1.bias",
        "bn1.bias": "features.0.1.bias",
    },
    "alexnet": {"features.10.weight": "10.weight", "classifier.6.bias": "20.bias"},
}


@pytest.mark.parametrize("name", TIMM)
def test_names_of_timm_stand_for_those_of_torchvision(name: str) -> None:
    wanted = torch_names(networks.by_name(name))
    shapes = {entry.name: entry.shape for entry in wanted.values()}
    given = {theirs: np.broadcast_to(np.float32(0), shapes[ours])
             for theirs, ours in TIMM[name].items()}  # fmt: skip
    found = renamed(given, wanted)
    assert set(found) == set(TIMM[name].values())
    assert all(found[ours].shape == shapes[ours] for ours in found)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("mobilenet-v2", "mobilenetv2_100"), ("efficientnet-b0", "efficientnet_b0")],
)
def test_outputs_are_those_of_timm(name: str, theirs: str, tmp_path: Path) -> None:
    if not torch_modules.installed("vit-tiny-16"):
        pytest.skip("timm is not installed")
    torch_modules.torchvision()  # which timm imports, too
    module = import_module("timm").create_model(theirs).eval()
    torch.save(module.state_dict(), tmp_path / "w.pt")
    network: Sequential = networks.sized(name, (3, 64, 64), 1000)
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = module(x).numpy()
    with pareo.Device("vectorized"):
        found = network(load_weights(network, tmp_path / "w.pt"), x.numpy())
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)
