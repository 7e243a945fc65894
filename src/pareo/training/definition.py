"""A network as JSON and back: layers by name with their numbers, nothing to execute."""

import dataclasses
from typing import Any

from pareo import nn
from pareo.errors import DataError, PareoError
from pareo.nn.layers import Layer
from pareo.nn.network import Auxiliary, Branches, Sequential

LAYERS: dict[str, type[Layer]] = {
    kind.__name__: kind
    for kind in (
        nn.AveragePool,
        nn.Conv,
        nn.Dense,
        nn.Dropout,
        nn.Flatten,
        nn.Lrn,
        nn.MaxPool,
        nn.ReLU,
        nn.Sigmoid,
        nn.Softmax,
        nn.Subsample,
        nn.Tanh,
    )
}


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
        }
    if isinstance(layer, Branches):
        return {"layer": "Branches", "branches": [describe(part) for part in layer.branches]}
    if isinstance(layer, Auxiliary):
        return {"layer": "Auxiliary", "head": describe(layer.head), "weight": layer.weight}
    name = type(layer).__name__
    if LAYERS.get(name) is not type(layer):
        raise DataError(f"a custom layer cannot be written to a file: {layer!r}")
    values = {field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)}  # type: ignore[arg-type]
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
    return {"layer": name, **plain}


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
            return Sequential(parts, shape, str(rest.pop("name")))
        if name == "Branches":
            return Branches(*[rebuild(part, depth + 1) for part in _items(rest.pop("branches"))])
        if name == "Auxiliary":
            head = rebuild(rest.pop("head"), depth + 1)
            if not isinstance(head, Sequential):
                raise DataError("an auxiliary head is a Sequential")
            return Auxiliary(head, float(rest.pop("weight")))
        if name not in LAYERS:
            raise DataError(f"pareo has no layer {name!r}")
        values = {key: _value(value) for key, value in rest.items()}
        return LAYERS[name](**values)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, PareoError) as error:
        raise DataError(f"the layer {name!r} cannot be built: {error}") from error


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"expected a list; got {value!r}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise DataError(f"expected a size of 1 or more; got {value!r}")
    return value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if value is not None and not isinstance(value, (int, float, str)):
        raise DataError(f"expected a number or a word; got {value!r}")
    return value
