"""A network as JSON and back: layers by name with their numbers, nothing to execute."""

import dataclasses
from collections.abc import Callable
from typing import Any

from pareo import nn
from pareo.errors import DataError, PareoError
from pareo.nn.graph import Node
from pareo.nn.layers import Layer, registered
from pareo.nn.network import Auxiliary, Sequential

LAYERS: dict[str, type[Layer]] = {
    kind.__name__: kind
    for kind in (
        nn.AdaptiveAveragePool,
        nn.Affine,
        nn.Attention,
        nn.AveragePool,
        nn.BatchNorm,
        nn.ClassToken,
        nn.Clip,
        nn.Conv,
        nn.Dense,
        nn.Dropout,
        nn.ELU,
        nn.Exp,
        nn.FirstToken,
        nn.FixedProduct,
        nn.FixedSum,
        nn.Flatten,
        nn.GELU,
        nn.GlobalAveragePool,
        nn.GroupNorm,
        nn.HardSigmoid,
        nn.HardSwish,
        nn.Identity,
        nn.Index,
        nn.LayerNorm,
        nn.LeakyReLU,
        nn.Learned,
        nn.Log,
        nn.LogSoftmax,
        nn.Lrn,
        nn.MaxPool,
        nn.Mix,
        nn.Normalise,
        nn.Pad,
        nn.Part,
        nn.Permute,
        nn.PositionEmbedding,
        nn.Power,
        nn.ReLU,
        nn.Reshape,
        nn.Scale,
        nn.Sigmoid,
        nn.SiLU,
        nn.Softmax,
        nn.Softplus,
        nn.StochasticDepth,
        nn.Subsample,
        nn.TableProduct,
        nn.TableSum,
        nn.Tanh,
        nn.Tokens,
    )
}
PARALLEL = {kind.__name__: kind for kind in (nn.Branches, nn.Add, nn.Multiply)}
# Fields that layers gained after the first checkpoints were written, with their defaults.
ADDED: dict[str, dict[str, Any]] = {
    "AveragePool": {"counts_padding": False},
    "Conv": {"bias": True, "dilation": 1},
    "Dense": {"bias": True},
    "Softmax": {"axis": 1},
}
SKIPS: dict[str, Callable[..., Layer]] = {
    kind.__name__: kind for kind in (nn.Residual, nn.Gate, nn.Append)
}


def kind_of(name: Any) -> type[Layer] | None:
    """The class of a layer by its name: pareo's, or one that the user has registered."""
    return (LAYERS.get(name) or registered.get(name)) if isinstance(name, str) else None


def describe(layer: Layer) -> dict[str, Any]:
    """The layer, or the network, as values that JSON can represent.

    >>> from pareo.nn import Dense, Sequential
    >>> describe(Sequential([Dense(2)], input_shape=(4,)))["layers"]
    [{'layer': 'Dense', 'units': 2, 'start': 'glorot'}]
    """
    if isinstance(layer, Sequential):
        shape = None if layer.input_shape is None else list(layer.input_shape)
        return {
            "layer": "Sequential",
            "name": layer.name,
            "input_shape": shape,
            "layers": [describe(part) for part in layer.layers],
            **({} if layer.numbered else {"names": list(layer.names)}),
        }
    kind = type(layer).__name__
    if isinstance(layer, nn.Branches | nn.Add | nn.Multiply):
        return {"layer": kind, "branches": [describe(part) for part in layer.branches]}
    if isinstance(layer, nn.Residual | nn.Gate | nn.Append):
        return {
            "layer": kind,
            "body": describe(layer.body),
            "shortcut": None if layer.shortcut is None else describe(layer.shortcut),
            "activation": None if layer.activation is None else describe(layer.activation),
            "shortcut_name": layer.shortcut_name,
        }
    if isinstance(layer, nn.Graph):
        return {"layer": "Graph", "nodes": [_described_node(node) for node in layer.nodes]}
    if isinstance(layer, Auxiliary):
        return {"layer": "Auxiliary", "head": describe(layer.head), "weight": layer.weight}
    name = type(layer).__name__
    if kind_of(name) is not type(layer):
        raise DataError(
            f"a layer of your own is written to a file if its class is decorated with nn.register; "
            f"got {layer!r}"
        )
    values = {field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)}  # type: ignore[arg-type]
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
    for key, value in ADDED.get(name, {}).items():
        if plain[key] == value:
            del plain[key]  # so that the description is that of the versions before it was added
    return {"layer": name, **plain}


def _described_node(node: Node) -> dict[str, Any]:
    what = describe(node.what) if isinstance(node.what, Layer) else node.what
    return {"name": node.name, "what": what, "reads": list(node.reads)}


def rebuild(described: Any, depth: int = 0) -> Layer:
    """The layer that `describe` described; anything else raises `DataError`.

    >>> from pareo.nn import networks
    >>> rebuild(describe(networks.papers_cnn())) == networks.papers_cnn()
    True
    """
    if not isinstance(described, dict) or depth > 16:
        raise DataError("expected a layer with its name and numbers")
    rest = dict(described)
    name = rest.pop("layer", None)
    try:
        if name == "Sequential":
            parts = [rebuild(part, depth + 1) for part in _items(rest.pop("layers"))]
            shape = rest.pop("input_shape")
            if shape is not None:
                shape = tuple(_number(size) for size in _items(shape))
            names = _items(rest.pop("names", [str(number) for number in range(len(parts))]))
            named = list(zip(names, parts, strict=True))
            return Sequential(named, shape, str(rest.pop("name")))
        if isinstance(name, str) and name in PARALLEL:
            branches = [rebuild(part, depth + 1) for part in _items(rest.pop("branches"))]
            return PARALLEL[name](*branches)
        if isinstance(name, str) and name in SKIPS:
            return SKIPS[name](
                rebuild(rest.pop("body"), depth + 1),
                *(_rebuilt_or_none(rest.pop(key), depth) for key in ("shortcut", "activation")),
                str(rest.pop("shortcut_name")),
            )
        if name == "Graph":
            return nn.Graph([_rebuilt_node(node, depth) for node in _items(rest.pop("nodes"))])
        if name == "Auxiliary":
            head = rebuild(rest.pop("head"), depth + 1)
            if not isinstance(head, Sequential):
                raise DataError("an auxiliary head is a Sequential")
            return Auxiliary(head, float(rest.pop("weight")))
        kind = kind_of(name) if isinstance(name, str) else None
        if kind is None:
            raise DataError(
                f"pareo has no layer {name!r:.60}; if it is your own, import its module first"
            )
        values = {key: _value(value) for key, value in rest.items()}
        return kind(**values)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError, PareoError) as error:
        raise DataError(f"the layer {name!r:.60} cannot be built: {error}") from error


def _rebuilt_node(described: Any, depth: int) -> tuple[str, list[Any]]:
    if not isinstance(described, dict):
        raise DataError("expected a node with its name and what it reads")
    what = described["what"]
    made = what if isinstance(what, str) else rebuild(what, depth + 1)
    return described["name"], [made, *_items(described["reads"])]


def _rebuilt_or_none(described: Any, depth: int) -> Layer | None:
    return None if described is None else rebuild(described, depth + 1)


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"expected a list; got {value!r:.60}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise DataError(f"expected a size of 1 or more; got {value!r:.60}")
    return value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if value is not None and not isinstance(value, (int, float, str)):
        raise DataError(f"expected a number or a word; got {value!r:.60}")
    return value
