"""A network in one line, as Python writes its layers."""

from dataclasses import MISSING, fields
from typing import Any

from pareo import nn
from pareo.nn.layers import Shape

OMITTED = ("start", "name", "names", "input_shape", "shortcut_name")


def described(network: nn.Sequential) -> str:
    """The shape of an input, and the layers.

    >>> layers = [nn.Conv(4, 5, 2), nn.Residual([nn.ReLU()]), nn.Flatten(), nn.Dense(3)]
    >>> described(nn.Sequential(layers, (1, 9, 9)))
    '1x9x9: Conv(4, 5, 2), Residual([ReLU]), Flatten, Dense(3)'
    """
    return f"{size(network.inputs)}: {', '.join(map(written, network.layers))}"


def size(shape: Shape) -> str:
    """A shape as in 3x32x32."""
    return "x".join(map(str, shape))


def written(value: Any) -> str:
    """A layer with its arguments, without those that have their default or begin weights."""
    match value:
        case nn.Sequential():
            return f"[{', '.join(map(written, value.layers))}]"
        case nn.Branches() | nn.Add() | nn.Multiply():
            return f"{type(value).__name__}({', '.join(map(written, value.branches))})"
        case nn.Layer():
            return _layer(value)
        case tuple() if len(set(value)) == 1:
            return written(value[0])
        case tuple():
            return f"({', '.join(map(written, value))})"
    return str(value)


def _layer(layer: nn.Layer) -> str:
    words, gap = [], False
    for field in fields(layer):  # type: ignore[arg-type]  # every layer is a dataclass
        value = getattr(layer, field.name)
        default = "" if field.default is MISSING else written(field.default)
        if field.name in OMITTED or written(value) == default:
            gap = True
            continue
        words.append(f"{field.name}={written(value)}" if gap else written(value))
    return f"{type(layer).__name__}({', '.join(words)})" if words else type(layer).__name__
