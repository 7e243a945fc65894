"""The networks of torchvision and timm that pareo has, and the files in nn/torch_names about them.

A file has the name and the shape of each parameter and each running statistic, and the first
logits of two images in training, from `weights` and `images` below. It is written by

    PYTHONPATH=src:tests python tests/torch_modules.py

where torchvision (0.28) and timm (1.0.30) are installed; the tests need neither.
"""

import sys
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "nn" / "torch_names"
# pareo's name, and the function of torchvision.models; ViT-Tiny is timm's.
MODULES = {
    "vgg11": "vgg11",
    "vgg11-bn": "vgg11_bn",
    "vgg16": "vgg16",
    "vgg16-bn": "vgg16_bn",
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "squeezenet1.1": "squeezenet1_1",
    "mobilenet-v2": "mobilenet_v2",
    "densenet121": "densenet121",
    "efficientnet-b0": "efficientnet_b0",
    "convnext-tiny": "convnext_tiny",
    "vit-tiny-16": "vit_tiny_patch16_224",
    "vit-b-16": "vit_b_16",
}
SIZE, BATCH = 64, 2
DECLARED: list[Any] = []  # a library of operators lives as long as its object


def installed(name: str) -> bool:
    """Whether the package that has a network is installed; it is not imported."""
    return find_spec("timm" if name == "vit-tiny-16" else "torchvision") is not None


def weights(name: str, shape: tuple[int, ...]) -> Any:
    """Weights from a name alone: of the usual spread, and around 1 for scales and variances."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = random.random(shape, np.float32) - np.float32(0.5)
    if (len(shape) > 1 and shape[-2:] != (1, 1)) or len(shape) == 4:
        return drawn * np.float32(np.sqrt(24 / np.prod(shape[1:])))
    positive = name.endswith(("weight", "running_var", "layer_scale"))
    return drawn * np.float32(0.4) + np.float32(positive)


def images() -> Any:
    """Two random images."""
    drawn = np.random.default_rng(7).standard_normal((BATCH, 3, SIZE, SIZE))
    return drawn.astype(np.float32)


@cache
def torchvision() -> Any:
    """torchvision; where its compiled part does not load, its import needs names declared."""
    import torch

    try:
        import torchvision
    except RuntimeError:
        for known in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[known]
        DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                DECLARED[0].define(schema)
        import torchvision
    return torchvision


def module_of(name: str, size: int = SIZE) -> Any:
    """The module of torchvision or timm, for images of this size, without dropout of any kind."""
    torchvision()
    if name == "vit-tiny-16":
        import timm

        return timm.create_model(MODULES[name], img_size=size)
    more = {"image_size": size} if name.startswith("vit") else {}
    module = getattr(torchvision().models, MODULES[name])(**more)
    for part in module.modules():
        for rate in ("p", "dropout"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)
    return module


def described(module: Any) -> tuple[dict[str, tuple[int, ...]], Any]:
    """Names and shapes, and logits in training from `weights` and `images`."""
    import torch

    found = module.state_dict()
    shapes = {
        name: tuple(a.shape)
        for name, a in found.items()
        if not name.endswith("num_batches_tracked")
    }
    loaded = {name: torch.from_numpy(weights(name, shape)) for name, shape in shapes.items()}
    module.load_state_dict(loaded)
    with torch.no_grad():
        return shapes, module.train()(torch.from_numpy(images())).numpy()


def read(name: str) -> tuple[dict[str, tuple[int, ...]], list[list[float]]]:
    """Names and shapes, and the first logits of each image, from the file of a network."""
    shapes: dict[str, tuple[int, ...]] = {}
    logits = []
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        first, *rest = line.split()
        if first == "logits":
            logits.append([float(number) for number in rest])
        elif first != "#":
            shapes[first] = tuple(int(size) for size in rest[0].split("x"))
    return shapes, logits


def write(name: str, shapes: Mapping[str, tuple[int, ...]], logits: Any) -> None:
    """Write the file of a network."""
    lines = ["# names and shapes of its parameters; see tests/torch_modules.py"]
    lines += [f"{path} {'x'.join(map(str, shape))}" for path, shape in shapes.items()]
    lines += ["logits " + " ".join(f"{value:.6g}" for value in row[:6]) for row in logits]
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    for name in MODULES:
        write(name, *described(module_of(name)))
