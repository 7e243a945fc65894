"""Networks of torchvision, imported from PyTorch and from ONNX, trained as PyTorch does, written.

torchvision (0.28) is not a dependency; where it is not installed, these tests are skipped. As a
program, this file prints a table, of all networks or of those that are named:

    PYTHONPATH=src:tests python tests/nn/test_torchvision.py resnet18 vit_b_16
"""

import copy
import sys
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx_graphs import exported
from torch_modules import torchvision
from torch_steps import batches, largest_errors, steps_of_module, steps_of_pareo

import pareo

# Pixels a side, where those that a network allows are not small: PyTorch writes AdaptiveAvgPool2d
# to ONNX only where it divides the pixels evenly.
PIXELS = {"alexnet": 224, "vgg16": 224, "vgg11_bn": 224, "inception_v3": 128, "vit_b_16": 32}
NAMES = (
    "alexnet", "vgg16", "vgg11_bn", "googlenet", "inception_v3", "squeezenet1_1", "resnet18",
    "resnet50", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v2", "mobilenet_v3_small",
    "mnasnet1_0", "shufflenet_v2_x1_0", "densenet121", "regnet_y_400mf", "efficientnet_b0",
    "convnext_tiny", "vit_b_16",
)  # fmt: skip
STEPS = 5
BATCHES = {"AlexNet": 1, "VGG": 1}  # images a step, where pixels are many; otherwise two
RATE = 1e-4  # with two images and many normalisations, rounding grows 300-fold in a step at 0.01
# With random weights, the gradients of these have norms of hundreds.
RATES = {"Inception3": 1e-6, "MNASNet": 1e-6, "ResNet": 1e-6}
# Of float64, where some networks amplify rounding a hundredfold in a step, and where PyTorch's
# hardsigmoid has 1/6 in float32.
TOLERANCE = 1e-6
WRITTEN_BATCHES = (1, 2, 5)


@dataclass(frozen=True)
class Tried:
    """What became of one network.

    torch, onnx: the largest relative difference of a loss, a gradient or a running statistic in
    five steps, of the network from the module and of that from its ONNX export in training.
    outputs: the largest relative difference of onnxruntime's outputs of what pareo wrote.
    """

    pixels: int
    parameters: int
    torch: float
    onnx: float
    outputs: float


def module_of(name: str) -> Any:
    """The network with random weights, without chance in training."""
    torch.manual_seed(0)
    more: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        more = {"aux_logits": False, "init_weights": False}
    elif name.startswith("vit"):
        more = {"image_size": PIXELS[name]}
    module = getattr(torchvision().models, name)(num_classes=10, **more)
    if name.startswith("vit"):  # whose outputs would all be 0
        torch.nn.init.normal_(module.heads.head.weight, std=0.03)
    for part in module.modules():
        for rate in ("p", "dropout"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)
    return module


def by_torch_export(module: Any, path: Path, shape: tuple[int, ...]) -> Path:
    """A module as PyTorch's newer exporter writes it, which needs onnxscript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), (torch.zeros(2, *shape),), str(path), dynamo=True, verbose=False,
            external_data=False, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        )  # fmt: skip
    return path


def steps_differ_by(found: Any, module: Any) -> float:
    """The largest relative difference of a loss, a gradient or a statistic in five steps."""
    state = {n for n in module.state_dict() if not n.endswith("num_batches_tracked")}
    assert {one.name for one in found.names.values()} == state
    kind = type(module).__name__
    parameters = {path: a.astype("float64") for path, a in found.parameters.items()}
    data = list(batches(found.network, BATCHES.get(kind, 2), STEPS, "float64"))
    exact = copy.deepcopy(module).double()
    rate = RATES.get(kind, RATE)
    ours = steps_of_pareo(found.network, "vectorized", parameters, data, rate)
    theirs = steps_of_module(exact, found.network, data, rate, found.names)
    worst, count = 0.0, 0
    for seen, expected in zip(ours, theirs, strict=True):
        ordered = type(seen)(
            seen.loss, {path: seen.gradients[path] for path in expected.gradients}, seen.state
        )
        assert set(seen.gradients) == set(expected.gradients)
        worst = max(worst, *largest_errors(ordered, expected).values())
        count += 1
    assert count == STEPS
    return worst


def outputs_differ_by(found: Any, module: Any, path: Path) -> float:
    """The network as ONNX: the largest relative difference of onnxruntime's from PyTorch's."""
    pareo.to_onnx(found.network, found.parameters, path)
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in WRITTEN_BATCHES:
        images = np.random.default_rng(batch).standard_normal((batch, *found.network.inputs))
        images = images.astype(np.float32)
        (seen,) = session.run(None, {session.get_inputs()[0].name: images})
        with torch.no_grad():
            expected = module.eval()(torch.from_numpy(images)).numpy()
        assert seen.shape == expected.shape == (batch, 10)
        worst = max(worst, float(np.linalg.norm(seen - expected) / np.linalg.norm(expected)))
    return worst


def tried(name: str, folder: Path) -> Tried:
    """What became of one network; an error is that of pareo."""
    pixels = PIXELS.get(name, 64)
    shape, module = (3, pixels, pixels), module_of(name)
    pareo.from_onnx(exported(module, folder / "folded.onnx", shape, opset_version=17))
    if find_spec("onnxscript") is not None:
        pareo.from_onnx(by_torch_export(module, folder / "newer.onnx", shape))
    found = pareo.from_onnx(exported(module, folder / "training.onnx", shape, True))
    by_onnx = steps_differ_by(found, module)
    written = outputs_differ_by(found, module, folder / "from_onnx.onnx")
    found = pareo.from_torch(module, shape)
    by_torch = steps_differ_by(found, module)
    written = max(written, outputs_differ_by(found, module, folder / "from_torch.onnx"))
    return Tried(pixels, found.network.count(), by_torch, by_onnx, written)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # vgg16 takes over five minutes in float64 on one core
@pytest.mark.skipif(not find_spec("torchvision"), reason="torchvision is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_imported_trained_and_written(name: str, tmp_path: Path) -> None:
    found = tried(name, tmp_path)
    assert found.torch < TOLERANCE
    assert found.onnx < TOLERANCE
    assert found.outputs < 1e-4  # of float32


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torchvision"), reason="torchvision is not installed")
def test_swin_is_imported_from_the_module() -> None:
    found = pareo.from_torch(module_of("swin_t"), (3, 64, 64))  # whose windows need padding
    kinds = {type(layer).__name__ for _, layer, _ in found.network.walk(found.network.inputs)}
    assert {"TableSum", "FixedSum", "Pad"} <= kinds


if __name__ == "__main__":
    print("| network | pixels | parameters | from PyTorch | from ONNX | written | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or NAMES:
        start = time.perf_counter()
        with TemporaryDirectory() as folder:
            one = tried(name, Path(folder))
        differences = (f"{value:.0e}" for value in (one.torch, one.onnx, one.outputs))
        seconds = f"{time.perf_counter() - start:.0f}"
        row = (name, one.pixels, f"{one.parameters:,}", *differences, seconds)
        print(f"| {' | '.join(map(str, row))} |", flush=True)
