"""`pareo export`: checkpoints as ONNX files, and as weights by PyTorch's names."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from pareo import from_onnx, nn
from pareo.cli import app
from pareo.errors import PareoError
from pareo.training import save


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    network = nn.Sequential(
        {"conv": nn.Conv(2, 3), "norm": nn.BatchNorm(), "flat": nn.Flatten(), "fc": nn.Dense(3)},
        (1, 5, 5), "mine",
    )  # fmt: skip
    parameters = network.initialise(seed=1)
    path = tmp_path / "last.safetensors"
    average = {f"average.{name}": a + 1 for name, a in parameters.items()}
    save(path, network, parameters, slots=average)
    return path, {name: a + 1 for name, a in parameters.items()}


def export(*arguments: Any) -> Any:
    found = CliRunner().invoke(app, ["export", *map(str, arguments)])
    if isinstance(found.exception, PareoError):
        raise found.exception
    return found


def test_an_onnx_file_has_the_weights_that_were_tested(saved: Any, tmp_path: Path) -> None:
    _, weights = saved
    done = export(tmp_path, tmp_path / "mine.onnx")
    assert done.exit_code == 0
    assert "mine, ONNX, checked against onnxruntime" in done.stdout
    onnx.checker.check_model(tmp_path / "mine.onnx", full_check=True)
    found = from_onnx(tmp_path / "mine.onnx")
    for name, array in weights.items():
        np.testing.assert_array_equal(found.parameters[name], array)


def test_weights_by_the_names_of_torch(saved: Any, tmp_path: Path) -> None:
    path, weights = saved
    done = export(path, tmp_path / "out" / "w.safetensors", "--names", "torchvision")
    assert "8 tensors of mine, by torchvision's names" in done.stdout
    found = load_file(tmp_path / "out" / "w.safetensors")
    assert set(found) == {
        "conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean",
        "norm.running_var", "fc.weight", "fc.bias",
    }  # fmt: skip
    np.testing.assert_array_equal(found["fc.weight"], weights["fc.w"].T)
    np.testing.assert_array_equal(found["norm.running_var"], weights["norm.variance"])
    export(path, tmp_path / "own.safetensors")
    assert set(load_file(tmp_path / "own.safetensors")) == set(weights)


def test_what_is_wrong_is_one_sentence(saved: Any, tmp_path: Path) -> None:
    path, _ = saved
    with pytest.raises(PareoError, match=r"ends in \.onnx or \.safetensors; got"):
        export(path, tmp_path / "net.pt")
    with pytest.raises(PareoError, match="--names expects one of pareo, torchvision; got 'jax'"):
        export(path, tmp_path / "net.safetensors", "--names", "jax")
    with pytest.raises(PareoError, match=r"--names is for \.safetensors"):
        export(path, tmp_path / "net.onnx", "--names", "torchvision")
    with pytest.raises(PareoError, match="expected a checkpoint"):
        export(tmp_path / "none.safetensors", tmp_path / "net.onnx")
    with pytest.raises(PareoError, match="cannot be written"):
        export(path, path / "w.safetensors")
