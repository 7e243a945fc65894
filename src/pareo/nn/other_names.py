"""timm's names of weights as torchvision's, and torchvision's of AlexNet as pareo's.

The networks of `pareo.nn.networks` have torchvision's names. A file with other names is read by the
rules of its family, which are found by the names alone.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.nn.torch_names import TorchName

Rules = list[tuple[str, str]]  # a pattern and its replacement; the first that matches counts

_LAYER = r"encoder.layers.encoder_layer_\1"
VIT: Rules = [
    (r"cls_token", "class_token"),
    (r"pos_embed", "encoder.pos_embedding"),
    (r"patch_embed\.proj\.(\w+)", r"conv_proj.\1"),
    (r"blocks\.(\d+)\.norm([12])\.(\w+)", rf"{_LAYER}.ln_\2.\3"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", rf"{_LAYER}.self_attention.in_proj_\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", rf"{_LAYER}.self_attention.out_proj.\2"),
    (r"blocks\.(\d+)\.mlp\.fc1\.(\w+)", rf"{_LAYER}.mlp.0.\2"),
    (r"blocks\.(\d+)\.mlp\.fc2\.(\w+)", rf"{_LAYER}.mlp.3.\2"),
    (r"norm\.(\w+)", r"encoder.ln.\1"),
    (r"head\.(\w+)", r"heads.head.\1"),
]  # fmt: skip
VGG: Rules = [
    (r"pre_logits\.fc1\.(\w+)", r"classifier.0.\1"),
    (r"pre_logits\.fc2\.(\w+)", r"classifier.3.\1"),
    (r"head\.fc\.(\w+)", r"classifier.6.\1"),
]
# The layers of torchvision's AlexNet, which pareo numbers one after another.
ALEXNET: Rules = [
    (r"features\.(\d+)\.(\w+)", r"\1.\2"),
    (r"classifier\.1\.(\w+)", r"15.\1"),
    (r"classifier\.4\.(\w+)", r"18.\1"),
    (r"classifier\.6\.(\w+)", r"20.\1"),
]
# The layers of a block of MobileNetV2 and EfficientNet, in timm and in torchvision.
EXPANDED = {"conv_pw": "0.0", "bn1": "0.1", "conv_dw": "1.0", "bn2": "1.1"}
PLAIN = {"conv_dw": "0.0", "bn1": "0.1"}


def renamed(arrays: Mapping[str, Any], wanted: Mapping[str, TorchName]) -> dict[str, Any]:
    """The arrays under the names that are wanted, if those of timm stand for them; else as is.

    An array whose shape differs only by axes of one element, or because it is the same matrix as a
    convolution, gets the shape that is wanted.
    """
    shapes = {name.name: tuple(name.shape) for name in wanted.values()}
    known = any(name in shapes for name in arrays if "." in name)
    if known and "pre_logits.fc1.weight" not in arrays:  # the features of VGG have the same names
        return dict(arrays)
    found = {_renamed(name, arrays, shapes): a for name, a in arrays.items()}
    if len(found) != len(arrays) or not any(name in shapes for name in found):
        return dict(arrays)
    return {name: _reshaped(a, shapes.get(name)) for name, a in found.items()}


def _reshaped(array: Any, shape: tuple[int, ...] | None) -> Any:
    if shape is None or array.shape == shape or array.size != int(np.prod(shape)):
        return array
    return array.reshape(shape) if array.shape[:1] == shape[:1] else array


def _renamed(name: str, arrays: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    if "cls_token" in arrays:
        return _by_rules(name, VIT)
    if "pre_logits.fc1.weight" in arrays:
        return _by_rules(name, VGG)
    if "stem.0.weight" in arrays:
        return _convnext(name)
    if "conv_stem.weight" in arrays:
        return _mobile(name, arrays, mobilenet="features.1.conv.0.0.weight" in wanted)
    return _by_rules(name, ALEXNET) if "0.weight" in wanted else name


def _by_rules(name: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def _convnext(name: str) -> str:
    """The name in torchvision's ConvNeXt, where stages and what is between them are one list.

    >>> _convnext("stages.1.downsample.0.weight"), _convnext("stages.2.blocks.8.mlp.fc2.bias")
    ('features.2.0.weight', 'features.5.8.block.5.bias')
    """
    if match := re.fullmatch(r"stem\.(\d)\.(\w+)", name):
        return f"features.0.{match[1]}.{match[2]}"
    if match := re.fullmatch(r"stages\.(\d)\.downsample\.(\d)\.(\w+)", name):
        return f"features.{2 * int(match[1])}.{match[2]}.{match[3]}"
    if match := re.fullmatch(r"stages\.(\d)\.blocks\.(\d+)\.(.+)", name):
        block = f"features.{2 * int(match[1]) + 1}.{match[2]}"
        layers = {"conv_dw": "0", "norm": "2", "mlp.fc1": "3", "mlp.fc2": "5"}
        layer, _, last = match[3].rpartition(".")
        return f"{block}.layer_scale" if last == "gamma" else (
            f"{block}.block.{layers.get(layer, layer)}.{last}")  # fmt: skip
    return re.sub(r"^head\.norm\.", "classifier.0.", re.sub(r"^head\.fc\.", "classifier.2.", name))


def _mobile(name: str, arrays: Mapping[str, Any], mobilenet: bool) -> str:
    """The name in torchvision's MobileNetV2 or EfficientNet."""
    places = sorted({tuple(map(int, match.groups())) for match in
                     (re.match(r"blocks\.(\d+)\.(\d+)\.", other) for other in arrays)
                     if match})  # fmt: skip
    last = len(places) + 1 if mobilenet else 1 + max((stage for stage, _ in places), default=-1) + 1
    match = re.fullmatch(r"blocks\.(\d+)\.(\d+)\.(.+)\.(\w+)", name)
    if match is None:
        ends = {"conv_stem": "features.0.0", "bn1": "features.0.1", "classifier": "classifier.1",
                "conv_head": f"features.{last}.0", "bn2": f"features.{last}.1"}  # fmt: skip
        layer, _, end = name.rpartition(".")
        return f"{ends.get(layer, layer)}.{end}"
    stage, block, layer, end = int(match[1]), int(match[2]), match[3], match[4]
    plain = f"blocks.{stage}.{block}.conv_pwl.weight" not in arrays  # without an expansion
    known = PLAIN if plain else EXPANDED
    number = 1 if plain else 2  # of the gate, where there is one, or of what comes last
    if mobilenet:
        place = f"features.{1 + places.index((stage, block))}.conv"
        ends = {("conv_pw" if plain else "conv_pwl"): f"{number}",
                ("bn2" if plain else "bn3"): f"{number + 1}"}  # fmt: skip
    else:
        place = f"features.{stage + 1}.{block}.block"
        ends = {("conv_pw" if plain else "conv_pwl"): f"{number + 1}.0",
                ("bn2" if plain else "bn3"): f"{number + 1}.1",
                "se.conv_reduce": f"{number}.fc1", "se.conv_expand": f"{number}.fc2"}  # fmt: skip
    return f"{place}.{known.get(layer) or ends.get(layer, layer)}.{end}"
