"""Networks of torchvision from their ONNX exports: read, trained as PyTorch does, and written.

torchvision (0.28) is not a dependency; where it is not installed, these tests are skipped. As a
program, this file prints a table:

    PYTHONPATH=src:tests python tests/nn/test_onnx_torchvision.py
"""

import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from onnx_graphs import exported
from torch.nn import functional
from torch_modules import torchvision
from torch_steps import batches, steps_of_pareo

import pareo

# Pixels a side, where those that a network allows are not small.
PIXELS = {"alexnet": 224, "vgg16": 224, "vgg11_bn": 224, "inception_v3": 96, "vit_b_16": 32}
NAMES = (
    "alexnet", "vgg16", "vgg11_bn", "googlenet", "inception_v3", "squeezenet1_1", "resnet18",
    "resnet50", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v2", "mobilenet_v3_small",
    "mnasnet1_0", "shufflenet_v2_x1_0", "densenet121", "regnet_y_400mf", "efficientnet_b0",
    "convnext_tiny", "vit_b_16",
)  # fmt: skip
# Those whose training is compared; the others only take longer.
TRAINED = {"resnet18", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x1_0", "vit_b_16"}
STEPS, BATCH = 5, 2
RATE = 1e-4  # with two images and many normalisations, rounding grows 300-fold in a step at 0.01


def module_of(name: str) -> Any:
    """The network with random weights, without chance in training."""
    torch.manual_seed(0)
    more: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        more = {"aux_logits": False, "init_weights": False}
    elif name.startswith("vit"):
        more = {"image_size": PIXELS[name]}
    module = getattr(torchvision().models, name)(num_classes=10, **more)
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
    """The largest relative difference of the losses, and of all gradients, in five steps."""
    parameters = {path: a.astype("float64") for path, a in found.parameters.items()}
    data = list(batches(found.network, BATCH, STEPS, "float64"))
    steps = steps_of_pareo(found.network, "vectorized", parameters, data, RATE)
    module = module.double().train()
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    worst = 0.0
    for seen, (images, labels) in zip(steps, data, strict=True):
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(torch.tensor(images)), torch.tensor(labels))
        loss.backward()
        named = dict(module.named_parameters())
        gradients = {path: named[found.names[path].name].grad for path in seen.gradients}
        off = sum(
            float(np.linalg.norm(found.names[path].to_torch(seen.gradients[path]) - a.numpy())) ** 2
            for path, a in gradients.items()
        )
        norm = sum(float(torch.linalg.norm(a)) ** 2 for a in gradients.values())
        worst = max(worst, abs(seen.loss - loss.item()) / loss.item(), (off / norm) ** 0.5)
        optimizer.step()
    return worst


def tried(name: str, folder: Path) -> dict[str, Any]:
    """What became of one network; an error is that of pareo."""
    pixels = PIXELS.get(name, 64)
    shape, module = (3, pixels, pixels), module_of(name)
    pareo.from_onnx(exported(module, folder / "folded.onnx", shape, opset_version=17))
    found = pareo.from_onnx(exported(module, folder / "training.onnx", shape, True))
    newer = find_spec("onnxscript") is not None
    if newer:
        pareo.from_onnx(by_torch_export(module, folder / "newer.onnx", shape))
    pareo.to_onnx(found.network, found.parameters, folder / "back.onnx")
    state = {n for n in module.state_dict() if not n.endswith("num_batches_tracked")}
    return {
        "pixels": pixels,
        "parameters": found.network.count(),
        "newer": newer,
        "names": {one.name for one in found.names.values()} == state,
        "steps": f"{steps_differ_by(found, module):.0e}" if name in TRAINED else "",
    }


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torchvision"), reason="torchvision is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_from_onnx_trained_and_back(name: str, tmp_path: Path) -> None:
    found = tried(name, tmp_path)
    assert found["names"]
    # float64, where some networks amplify rounding a hundredfold in a step
    assert not found["steps"] or float(found["steps"]) < 1e-6


if __name__ == "__main__":
    print("| network | pixels | parameters | newer exporter | five steps differ by | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or NAMES:
        start = time.perf_counter()
        with TemporaryDirectory() as folder:
            one = tried(name, Path(folder))
        assert one["names"]
        seconds = f"{time.perf_counter() - start:.0f}"
        newer = "yes" if one["newer"] else "not tried"
        row = (name, one["pixels"], f"{one['parameters']:,}", newer, one["steps"], seconds)
        print(f"| {' | '.join(map(str, row))} |", flush=True)
