"""The interpreter of networks that writes the nodes of an ONNX graph."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.errors import PareoError
from pareo.nn.containers import Container, joined_shape
from pareo.nn.layers import Layer, Shape
from pareo.nn.network import Sequential
from pareo.nn.onnx_import.file import onnx_module

OPSET, IR = 20, 9  # of 2023; GELU is an operator from this opset on
INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file: its name, and its shape without the batch."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Weight:
    """A parameter by its path."""

    path: str
    array: Any


class Writer:
    """Writes the nodes of each layer, by the functions that are given."""

    def __init__(self, dtype: Any, writers: Mapping[type[Layer], "Write"]) -> None:
        self._writers = writers
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.initialisers: dict[str, Any] = {}
        self._numbers = 0

    def layer(self, layer: Layer, parameters: Mapping[str, Any], x: Any) -> Any:
        """The nodes of one layer."""
        write = self._writers.get(type(layer))
        if write is None:
            raise PareoError(f"to_onnx does not know the layer {layer.label}")
        found = write(self, layer, parameters, x)
        return Tensor(found, layer.output(x.shape))

    def join(self, how: str, parts: Sequence[Any]) -> Any:
        """The node of a join, or several."""
        shape = joined_shape(how, how, [part.shape for part in parts])
        if how == "concat":
            return Tensor(self.node("Concat", *(part.name for part in parts), axis=1), shape)
        if how == "matmul":
            return Tensor(self.node("MatMul", *(part.name for part in parts)), shape)
        name = parts[0].name
        for part in parts[1:]:
            name = self.node("Add" if how == "add" else "Mul", name, part.name)
        return Tensor(name, shape)

    def head(self, weight: float, head: Container, parameters: Mapping[str, Any], x: Any) -> None:
        """Nothing: auxiliary heads are for training."""

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one result, whose name is returned."""
        self._numbers += 1
        name = f"{op}_{self._numbers}"
        make = onnx_module("onnx.helper").make_node
        result = f"{name}_output"
        self.nodes.append(make(op, list(inputs), [result], name, **attributes))
        return result

    def constant(self, values: Any, dtype: Any = None) -> str:
        """An array that is not trained, and its name."""
        array = np.asarray(values, self.dtype if dtype is None else dtype)
        return self._initialiser(f"constant_{len(self.initialisers)}", array)

    def fixed(self, values: Any) -> str:
        """An array that is part of the graph, so that no reader takes it for a weight."""
        make = onnx_module("onnx.numpy_helper").from_array
        return self.node("Constant", value=make(np.asarray(values, self.dtype)))

    def whole(self, values: Any) -> str:
        """Whole numbers, such as a shape."""
        return self.constant(values, np.int64)

    def weight(self, weight: Weight, shape: Shape | None = None) -> str:
        """A parameter under its path, in its own shape, or in another one by `Reshape`."""
        name = self._initialiser(weight.path, weight.array)
        if shape is None or shape == weight.array.shape:
            return name
        return self.node("Reshape", name, self.whole(shape))

    def _initialiser(self, name: str, array: Any) -> str:
        if name not in self.initialisers:
            make = onnx_module("onnx.numpy_helper").from_array
            self.initialisers[name] = make(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def model(self, network: Sequential, result: Tensor) -> Any:
        """The model whose result is this tensor."""
        helper = onnx_module("onnx.helper")
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes.append(helper.make_node("Identity", [result.name], [OUTPUT], OUTPUT))
        graph = helper.make_graph(
            self.nodes,
            network.name or "network",
            [helper.make_tensor_value_info(INPUT, kind, ["N", *network.inputs])],
            [helper.make_tensor_value_info(OUTPUT, kind, ["N", *result.shape])],
            list(self.initialisers.values()),
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="pareo")


Write = Callable[[Writer, Any, Mapping[str, Any], Tensor], str]
