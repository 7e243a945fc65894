"""The gate of imports: the network computes what onnxruntime does with the file, or it is refused.

onnxruntime computes in float32, pareo in float64, so that the difference is onnxruntime's rounding.
Small weights are drawn around the file's own, so that a scale of 1 or a shift of 0 hides nothing.
Both compute in inference: what a file has of training is made plain for onnxruntime.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.errors import PareoError
from pareo.nn.containers import OwnOperators
from pareo.nn.layers import Context
from pareo.nn.network import Sequential
from pareo.nn.onnx_import.file import File, onnx_module
from pareo.nn.onnx_import.reader import OnnxReader
from pareo.nn.torch_import.moved import Moved
from pareo.nn.torch_import.values import Value

BATCH = 3  # not that with which the graph was read, so that a shape with a fixed batch is found
# Of the norm of the outputs. Rounding to float32 is 6e-8 of a number, and brings onnxruntime's
# outputs 4e-8 to 7e-7 away from float64's (22 exports of 15 networks of torchvision). What
# is wrong makes far more, but for an epsilon: 1e-6 in place of 1e-5 makes 4e-6.
TOLERANCE = 1e-5
# A network that amplifies rounding may differ by so many times what float32 changes in pareo, too.
ROUNDING, MOST = 10, 1e-3
SMALL = 10_000  # elements of a weight that is drawn
MEMORY = 2**33  # bytes that the check of a network may take


def check(reader: OnnxReader, again: Any, name: str, seed: int = 0) -> None:
    """Refuse a network that computes something else than its file.

    again: reads a file as the reader's was read.
    """
    random = np.random.default_rng(seed)
    network = reader.network(name, chance=False)
    batch = reader.fixed_batch or BATCH
    _check_memory(network, batch, name)
    file, used = _drawn(reader, random), reader
    try:
        used = again(file)
    except PareoError:
        file = reader.file
    if used.network(name, chance=False) != network:  # a number was drawn that is none of a weight's
        file, used = reader.file, reader
    images = random.standard_normal((batch, *network.inputs))
    images = images.astype(np.float32).astype(reader.dtype)
    (expected,) = run(_inference(file), [reader.graph.output[0].name], images, name)
    found = _outputs(network, used.parameters, images)
    if found.shape != expected.shape:
        raise PareoError(
            f"{name} is not imported, because its output would have the shape {found.shape}, not "
            f"{expected.shape}"
        )
    off, norm = (float(np.linalg.norm(a)) for a in (found - expected, expected))
    if not off <= TOLERANCE * norm and not off <= _rounding(network, used, images, found):
        shown = off / norm if norm else off
        where = _first_difference(used, network, file, images, name)
        raise PareoError(
            f"{name} is not imported, because its output would differ from onnxruntime's by "
            f"{shown:.1g} of its norm{where}"
        )


def _check_memory(network: Sequential, batch: int, name: str) -> None:
    needed = network.program(batch, "float64").memory(on=Device("vectorized"))
    if needed > MEMORY:
        raise PareoError(
            f"{name} is not imported, because its check would take {needed / 2**30:,.0f} GiB of "
            f"memory, more than {MEMORY / 2**30:,.0f}"
        )


def _drawn(reader: OnnxReader, random: np.random.Generator) -> File:
    """A copy of the file with other numbers in its small weights; variances stay above 0."""
    onnx = onnx_module()
    kinds: dict[str, set[str]] = {}
    for path, origin in reader.names.items():
        kinds.setdefault(reader.root(origin.name), set()).add(path.rpartition(".")[2])
    model = onnx.ModelProto()
    model.CopyFrom(reader.file.model)
    helper = onnx_module("onnx.numpy_helper")
    for tensor in model.graph.initializer:
        if tensor.name not in kinds:
            continue
        array = helper.to_array(tensor)
        constant = array.size > 0 and (array == array.flat[0]).all()
        if array.dtype.kind != "f" or (array.size > SMALL and not constant):
            continue
        drawn = array * np.exp(0.2 * random.standard_normal(array.shape))
        if array.ndim < 2 and "variance" not in kinds[tensor.name]:
            drawn = drawn + 0.2 * random.standard_normal(array.shape)
        tensor.CopyFrom(helper.from_array(drawn.astype(array.dtype), tensor.name))
    return File(reader.file.path, model, reader.file.opset)


def _inference(file: File) -> Any:
    """A copy of the model in which batch normalisation and dropout do what they do in inference."""
    model = onnx_module().ModelProto()
    model.CopyFrom(file.model)
    for node in model.graph.node:
        if node.op_type == "Dropout":
            node.op_type = "Identity"
            del node.input[1:], node.output[1:], node.attribute[:]
        elif node.op_type == "BatchNormalization":
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]
    return model


def run(model: Any, names: list[str], images: Any, name: str, done: str = "imported") -> list[Any]:
    """What onnxruntime computes of these tensors, in float64; `done` is what is not, else."""
    runtime = onnx_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        data = model if isinstance(model, bytes) else model.SerializeToString()
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        found = session.run(names, {session.get_inputs()[0].name: images})
    except Exception as error:  # onnxruntime's, of many kinds; protobuf's for more than 2 GiB
        said = " ".join(str(error).split()) or type(error).__name__
        raise PareoError(
            f"{name} is not {done}, because onnxruntime does not compute {len(images)} "
            f"inputs of it: {said[:300]}"
        ) from error
    return [np.asarray(array, np.float64) for array in found]


def _rounding(network: Sequential, reader: OnnxReader, images: Any, exact: Any) -> float:
    """What float32 may change in the outputs, from what it changes in those of pareo."""
    rounded = _outputs(network, reader.parameters, images, "float32")
    own, norm = (float(np.linalg.norm(a)) for a in (rounded - exact, exact))
    return min(ROUNDING * own, MOST * norm)


def _outputs(
    network: Sequential, parameters: Mapping[str, Any], images: Any, dtype: str = "float64"
) -> Any:
    exact = {path: parameters[path].astype(dtype) for path in _paths(network)}
    with Device("vectorized"):
        forward = network.program(len(images), dtype).compile()
        return np.array(forward(exact, images.astype(dtype)), np.float64)


def _paths(network: Sequential) -> Any:
    return network.parameters(network.inputs)


def _first_difference(
    reader: OnnxReader, network: Sequential, file: File, images: Any, name: str
) -> str:
    """The first node of the file whose result differs, as the end of a sentence."""
    ours = _values(network, reader.parameters, images)
    model = _inference(file)
    names, places = [], {}
    for node in model.graph.node:
        for output in node.output[:1]:
            value = reader.values.get(output)
            origin = value.origin if isinstance(value, Moved) else value
            known = isinstance(origin, Value) and origin.node in ours and not origin.wide
            if known and output not in reader.changed:
                names.append(output)
                places[output] = node
    outputs = {one.name for one in model.graph.output}
    for output in names:
        if output not in outputs:
            model.graph.output.append(
                onnx_module("onnx.helper").make_empty_tensor_value_info(output)
            )
    for output, right in zip(names, run(model, names, images, name), strict=True):
        found = _seen(reader.values[output], ours, len(images), reader.batch)
        if found is None or found.shape != right.shape:
            continue
        if not np.linalg.norm(found - right) <= TOLERANCE * np.linalg.norm(right):
            node = places[output]
            called = node.name or output
            return f"; the first node that differs is '{called}', {_a(node.op_type)}"
    return "; no node before the last differs"


def _a(op: str) -> str:
    return f"an {op}" if op[0] in "AEIOU" else f"a {op}"


def _seen(value: Any, ours: Mapping[str, Any], images: int, batch: int) -> Any:
    """The array of a value as the file sees it; None for one that depends on the batch."""
    if isinstance(value, Moved):
        return None if images != batch else ours[value.origin.node].ravel()[value.index]
    array = ours[value.node]
    return array.transpose(0, 2, 3, 1) if value.last else array


def _values(network: Sequential, parameters: Mapping[str, Any], images: Any) -> dict[str, Any]:
    """The output of every node of the network, and its input."""
    exact = {path: parameters[path].astype(np.float64) for path in _paths(network)}
    x = images.astype(np.float64)
    context = Context(False)
    with Device("vectorized"):
        if network.names == ("",):
            graph: Any = network.layers[0]
            found = graph.values(exact, x, OwnOperators(context))
            return {name: np.asarray(array) for name, array in found.items()}
        found = {"input": x}
        for name, layer in zip(network.names, network.layers, strict=True):
            own = {path.rpartition(".")[2]: a for path, a in exact.items()
                   if path.rpartition(".")[0] == name}  # fmt: skip
            x = found[name] = np.asarray(layer.apply(own, x, context))
        return found
