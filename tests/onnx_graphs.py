"""ONNX files for tests: graphs of a few nodes, and modules of PyTorch."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

FLOAT = onnx.TensorProto.FLOAT


def model(
    nodes: list[Any], weights: dict[str, Any], shape: Any = ("N", 2, 6, 6), opset: int = 18,
    result: Any = ("N", 3),
) -> Any:  # fmt: skip
    """A model of one input 'x', and of weights by name; its result is 'y'."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, result)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def drawn(*shape: int, seed: int = 0) -> Any:
    """Random weights."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def pooled(nodes: list[Any], channels: int) -> tuple[list[Any], dict[str, Any]]:
    """Nodes that end in 'z', with the mean of the pixels and a dense layer behind them."""
    after = [
        helper.make_node("GlobalAveragePool", ["z"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["y"], "fc", transB=1),
    ]
    return [*nodes, *after], {"fc.weight": drawn(3, channels), "fc.bias": drawn(3)}


def exported(
    module: Any, path: Path, shape: tuple[int, ...], training: bool = False, **how: Any
) -> Path:
    """A module of PyTorch as an ONNX file: in inference, folded; or in training, as it is."""
    mode = torch.onnx.TrainingMode
    module.train(training)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.zeros(2, *shape),), str(path), dynamo=False, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
            training=mode.TRAINING if training else mode.EVAL,
            do_constant_folding=not training, **how,
        )  # fmt: skip
    return path
