"""The node tests of the package onnx, for every operator that is read, on each CPU device.

A case passes, or it is in one of the lists below, by the reason that its refusal gives.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case import base, node

from pareo import Device, nn
from pareo.errors import PareoError
from pareo.nn.onnx_import import constants
from pareo.nn.onnx_import.file import File, check
from pareo.nn.onnx_import.imported import read_network
from pareo.nn.onnx_import.operators import OPERATORS
from pareo.nn.torch_import.values import Unsupported

INPUT = "all inputs"
# Operators of several values; of the others, all inputs but the first are constants.
SEVERAL = {"Add", "Concat", "Div", "Mul", "Pow", "Sub", "Sum"}
# Operators whose cases of one axis may have a batch of one in front.
ELEMENTWISE = {
    "Clip", "Div", "Dropout", "Elu", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log",
    "Mish", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign",
    "Sqrt", "Sub", "Sum", "Swish", "Tanh",
}  # fmt: skip
# Cases of dropout that draw numbers, and the share that they drop.
DROPPED = {
    "test_training_dropout": 0.75,
    "test_training_dropout_mask": 0.75,
    "test_training_dropout_default": 0.5,
    "test_training_dropout_default_mask": 0.5,
}
# Cases of values, by the reason for which they are refused.
REFUSED = {
    "with a constant of shape (5,)": "add_bcast div_bcast sub_bcast",
    "with slopes of shape (5,)": "prelu_broadcast",
    "PRelu (with a constant of shape (3, 4, 5))": "prelu_example",
    "its input is not images (N, C, H, W)": "averagepool_1d_default maxpool_1d_default",
    "with dilations = [2, 2]": "averagepool_2d_dilations maxpool_2d_dilations",
    "with to = ": """
        cast_FLOAT_to_FLOAT16 cast_DOUBLE_to_FLOAT16 cast_FLOAT_to_DOUBLE cast_DOUBLE_to_FLOAT
        cast_FLOAT_to_BFLOAT16 cast_FLOAT_to_FLOAT8E4M3FN cast_no_saturate_FLOAT_to_FLOAT8E4M3FN
        cast_FLOAT_to_FLOAT8E4M3FNUZ cast_no_saturate_FLOAT_to_FLOAT8E4M3FNUZ
        cast_FLOAT_to_FLOAT8E5M2 cast_no_saturate_FLOAT_to_FLOAT8E5M2
        cast_FLOAT_to_FLOAT8E5M2FNUZ cast_no_saturate_FLOAT_to_FLOAT8E5M2FNUZ
        cast_FLOAT_to_UINT4 cast_FLOAT_to_INT4 cast_FLOAT_to_FLOAT4E2M1 cast_FLOAT_to_UINT2
        cast_FLOAT_to_INT2 cast_e8m0_FLOAT_to_FLOAT8E8M0
    """,
    "expected an input of shape (N, ...)": """
        concat_1d_axis_0 concat_1d_axis_negative_1 gather_negative_indices matmul_1d_3d
        matmul_1d_1d split_equal_parts_1d_opset13 split_variable_parts_1d_opset13
        split_equal_parts_default_axis_opset13 split_variable_parts_default_axis_opset13
        split_equal_parts_1d_opset18 split_variable_parts_1d_opset18
        split_equal_parts_default_axis_opset18 split_variable_parts_default_axis_opset18
        split_zero_size_splits_opset13 split_zero_size_splits_opset18
        split_1d_uneven_split_opset18
    """,
    "along the batch": """
        concat_2d_axis_0 concat_2d_axis_negative_2 concat_3d_axis_0 concat_3d_axis_negative_3
        layer_normalization_4d_axis0 layer_normalization_4d_axis_negative_4
        layer_normalization_2d_axis0 layer_normalization_2d_axis_negative_2
        layer_normalization_3d_axis0_epsilon layer_normalization_3d_axis_negative_3_epsilon
        gather_0 logsoftmax_axis_0 slice slice_neg_steps softmax_axis_0
        reduce_max_default_axes_keepdims_random reduce_max_default_axes_keepdim_example
        reduce_mean_default_axes_keepdims_example reduce_mean_default_axes_keepdims_random
        reduce_min_default_axes_keepdims_example reduce_min_default_axes_keepdims_random
        reduce_sum_default_axes_keepdims_random reduce_sum_default_axes_keepdims_example
    """,
    "outside of GELU": "erf",
    "from (3, 1) to (2, 3, 6)": "expand_dim_changed",
    "its result is repeated by Expand": "expand_dim_unchanged",
    "the batch is not the first axis of its result": """
        flatten_axis0 flatten_axis2 flatten_axis3 flatten_negative_axis4 flatten_negative_axis2
        flatten_negative_axis1 reshape_reordered_all_dims reshape_one_dim
        reshape_negative_extended_dims squeeze transpose_default transpose_all_permutations_2
        transpose_all_permutations_3 transpose_all_permutations_4 transpose_all_permutations_5
        unsqueeze_axis_0
    """,
    "at places of several axes": "gather_2d_indices",
    "its bias has the shape (3, 4)": "gemm_default_matrix_bias",
    "with transA = 1": "gemm_transposeA gemm_all_attributes",
    "its weight has the shape": "matmul_3d matmul_4d matmul_bcast matmul_4d_1d",
    "its result is one of Pad before other operators than convolutions and pooling": """
        constant_pad constant_pad_axes constant_pad_negative_axes
    """,
    "with an exponent that is not one number": """
        pow_example pow pow_bcast_array pow_types_float32_int64 pow_types_float32_int32
        pow_types_float32_uint64 pow_types_float32_uint32
    """,
    ", which pareo does not take": """
        reshape_allowzero_reordered reduce_max_empty_set reduce_min_empty_set reduce_sum_empty_set
        reduce_sum_empty_set_non_reduced_axis_zero
    """,
    "its result does not depend on its input": """
        shape_example shape shape_start_1 shape_end_1 shape_start_negative_1
        shape_end_negative_1 shape_start_1_end_negative_1 shape_start_1_end_2 shape_clip_start
        shape_clip_end shape_start_greater_than_end size_example size
    """,
    "of no elements": "slice_start_out_of_bounds",
}
# The same of constants.
REFUSED_CONSTANTS = {
    "between ": """
        cast_FLOAT_to_BFLOAT16 cast_BFLOAT16_to_FLOAT cast_FLOAT_to_FLOAT8E4M3FN
        cast_no_saturate_FLOAT_to_FLOAT8E4M3FN cast_FLOAT16_to_FLOAT8E4M3FN
        cast_no_saturate_FLOAT16_to_FLOAT8E4M3FN cast_FLOAT_to_FLOAT8E4M3FNUZ
        cast_no_saturate_FLOAT_to_FLOAT8E4M3FNUZ cast_FLOAT16_to_FLOAT8E4M3FNUZ
        cast_no_saturate_FLOAT16_to_FLOAT8E4M3FNUZ cast_FLOAT8E4M3FN_to_FLOAT
        cast_FLOAT8E4M3FN_to_FLOAT16 cast_FLOAT8E4M3FNUZ_to_FLOAT cast_FLOAT8E4M3FNUZ_to_FLOAT16
        cast_FLOAT_to_FLOAT8E5M2 cast_no_saturate_FLOAT_to_FLOAT8E5M2 cast_FLOAT16_to_FLOAT8E5M2
        cast_no_saturate_FLOAT16_to_FLOAT8E5M2 cast_FLOAT_to_FLOAT8E5M2FNUZ
        cast_no_saturate_FLOAT_to_FLOAT8E5M2FNUZ cast_FLOAT16_to_FLOAT8E5M2FNUZ
        cast_no_saturate_FLOAT16_to_FLOAT8E5M2FNUZ cast_FLOAT8E5M2_to_FLOAT
        cast_FLOAT8E5M2_to_FLOAT16 cast_FLOAT8E5M2FNUZ_to_FLOAT cast_FLOAT8E5M2FNUZ_to_FLOAT16
        cast_FLOAT_to_UINT4 cast_FLOAT16_to_UINT4 cast_FLOAT_to_INT4 cast_FLOAT16_to_INT4
        cast_UINT4_to_FLOAT cast_UINT4_to_FLOAT16 cast_UINT4_to_UINT8 cast_INT4_to_FLOAT
        cast_INT4_to_FLOAT16 cast_INT4_to_INT8 cast_FLOAT4E2M1_to_FLOAT
        cast_FLOAT4E2M1_to_FLOAT16 cast_FLOAT_to_FLOAT4E2M1 cast_FLOAT16_to_FLOAT4E2M1
        cast_FLOAT_to_UINT2 cast_FLOAT16_to_UINT2 cast_FLOAT_to_INT2 cast_FLOAT16_to_INT2
        cast_UINT2_to_FLOAT cast_UINT2_to_FLOAT16 cast_UINT2_to_UINT8 cast_INT2_to_FLOAT
        cast_INT2_to_FLOAT16 cast_INT2_to_INT8 cast_e8m0_FLOAT_to_FLOAT8E8M0
        cast_e8m0_FLOAT16_to_FLOAT8E8M0 cast_e8m0_FLOAT8E8M0_to_FLOAT
        cast_e8m0_FLOAT8E8M0_to_FLOAT16
    """,
    "of other values than tensors": "identity_sequence identity_opt",
    "by 0": """
        mod_float_edge_cases_fmod_0_float16 mod_float_edge_cases_fmod_0_float32
        mod_float_edge_cases_fmod_0_float64
    """,
    "zero-size array": "reduce_max_empty_set reduce_max_empty_set_bool reduce_min_empty_set",
}
MODULES = {one.name.replace("_", ""): one.name for one in iter_modules(node.__path__)}
MODULES["range"] = "rangeop"


@contextmanager
def not_run() -> Iterator[None]:
    """Let classes of cases be made without running all of their cases: 3-D pooling is slow."""
    before = base._Exporter.__init__
    base._Exporter.__init__ = type.__init__
    try:
        yield
    finally:
        base._Exporter.__init__ = before


@cache
def cases(op: str) -> list[Any]:
    """The cases of one operator that are one node."""
    with not_run(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = import_module(f"onnx.backend.test.case.node.{MODULES[op.lower()]}")
        start = len(node._NodeTestCases)
        kinds = [one for one in vars(module).values() if isinstance(one, base._Exporter)]
        for kind in kinds:
            for name, export in list(vars(kind).items()):
                if name.startswith("export") and not ("3d" in name and "pool" in op.lower()):
                    np.random.seed(0)  # noqa: NPY002  # as onnx itself does
                    export()
        found = node._NodeTestCases[start:]
        for one in found:
            node._existing_names.pop(one.name, None)
    # Those of opsets before 13 are called old.
    found = [one for one in found if not one.name.endswith("_old")]
    return [one for one in found if [n.op_type for n in one.model.graph.node] == [op]]


def array(given: Any) -> Any:
    if isinstance(given, onnx.TensorProto):
        return numpy_helper.to_array(given)
    return np.asarray(given) if isinstance(given, np.ndarray | np.generic) else None


def arrays(case: Any) -> tuple[dict[str, Any], Any]:
    """The inputs by name, and the first result."""
    inputs, outputs = case.data_sets[0]
    names = [name for name in case.model.graph.node[0].input if name]
    return dict(zip(names, map(array, inputs), strict=True)), array(outputs[0])


def network_of(case: Any) -> tuple[Any, Any, Any]:
    """A model of one input, this input, and the expected result."""
    given, expected = arrays(case)
    first, op = next(iter(given)), case.model.graph.node[0].op_type
    if op in ELEMENTWISE and given[first].ndim == 1 and expected.ndim == 1:
        given = {name: a[None] if a.ndim == 1 else a for name, a in given.items()}
        expected = expected[None]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for opset in model.opset_import:
        opset.version = max(13, opset.version)
    graph = model.graph
    del graph.output[1:], graph.input[:]
    batch = given[first].shape[:1]
    alike = [
        n for n, a in given.items()
        if a.ndim == given[first].ndim and a.shape[:1] == batch and a.dtype == given[first].dtype
    ]  # fmt: skip
    values = alike if op in SEVERAL and len(alike) > 1 and given[first].ndim > 1 else [first]
    x, name = given[first], first
    if len(values) > 1:
        x, name = np.concatenate([given[n].reshape(*batch, -1) for n in values], 1), INPUT
        _parted(graph, {n: given[n].shape for n in values})
    for other, a in given.items():
        if other not in values:
            graph.initializer.append(numpy_helper.from_array(a, other))
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph.input.append(helper.make_tensor_value_info(name, kind, x.shape))
    shape = graph.output[0].type.tensor_type.shape
    del shape.dim[:]
    shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in expected.shape)
    return model, x, expected


def _parted(graph: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Nodes that make several values of one input, in which they lie side by side."""
    start, before = 0, []
    for name, shape in shapes.items():
        stop = start + int(np.prod(shape[1:]))
        whole = {"from": [start], "to": [stop], "axis": [1], "shape": [0, *shape[1:]]}
        for what, numbers in whole.items():
            tensor = numpy_helper.from_array(np.array(numbers, np.int64), f"{name} {what}")
            graph.initializer.append(tensor)
        places = [f"{name} {what}" for what in ("from", "to", "axis")]
        before.append(helper.make_node("Slice", [INPUT, *places], [f"{name} flat"]))
        before.append(helper.make_node("Reshape", [f"{name} flat", f"{name} shape"], [name]))
        start = stop
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def run_network(case: Any) -> None:
    model, x, expected = network_of(case)
    file = check(File(Path(case.name), model, model.opset_import[0].version))
    reader = read_network(file)
    network = reader.network(case.name)
    if network.seeds():  # no two frameworks draw the same numbers
        assert network.layers == (nn.Dropout(DROPPED[case.name]),)
        return
    training = "training_mode" in case.name
    parameters = {p: reader.parameters[p] for p in network.parameters(network.inputs)}
    for device in ("sequential", "vectorized", "compiled"):
        with Device(device):
            found = np.asarray(network(parameters, x, training))
        # float32 has 6e-8 of the largest number of a sum; the cases' own tolerance is a thousandth.
        np.testing.assert_allclose(
            found, expected, case.rtol, 1e-6, err_msg=f"{case.name} {device}"
        )


def run_constants(case: Any) -> None:
    given, expected = arrays(case)
    if expected is None or any(a is None for a in given.values()):
        raise Unsupported("of other values than tensors")
    proto = case.model.graph.node[0]
    how = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
    how = {n: numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v
           for n, v in how.items()}  # fmt: skip
    found = constants.compute(proto.op_type, [given.get(n) for n in proto.input], how)
    assert (
        constants.size_of_result(proto.op_type, [given.get(n) for n in proto.input], how)
        >= found.size
        or proto.op_type in constants.NO_MEMORY
    )
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), 1e-5, 1e-6, err_msg=case.name
    )
    assert found.dtype == expected.dtype, case.name


def refusals(run: Any, found: list[Any]) -> dict[str, str]:
    refused = {}
    for case in found:
        try:
            run(case)
        except (PareoError, Unsupported) as error:
            refused[case.name.removeprefix("test_")] = str(error)
    return refused


def is_value(case: Any) -> bool:
    """Whether a case can be that of a network: its first input is floating point numbers."""
    given, expected = arrays(case)
    a = next(iter(given.values()), None)
    floats = a is not None and a.dtype in (np.float32, np.float64) and a.ndim > 0
    return floats and expected is not None and all(b is not None for b in given.values())


@pytest.mark.parametrize("op", OPERATORS)
def test_networks_of_one_node(op: str) -> None:
    found = [case for case in cases(op) if is_value(case)]
    _check(refusals(run_network, found), {case.name for case in found}, REFUSED)


@pytest.mark.parametrize("op", constants.FUNCTIONS)
def test_constants(op: str) -> None:
    found = cases(op)
    _check(refusals(run_constants, found), {case.name for case in found}, REFUSED_CONSTANTS)


def _check(refused: dict[str, str], found: set[str], reasons: dict[str, str]) -> None:
    expected = {
        name: reason
        for reason, names in reasons.items()
        for name in names.split()
        if f"test_{name}" in found
    }
    assert refused.keys() == expected.keys()
    for name, reason in expected.items():
        assert reason in refused[name]


def test_every_list_is_of_cases_that_there_are() -> None:
    ops = {*OPERATORS, *constants.FUNCTIONS}
    every = {case.name.removeprefix("test_") for op in ops for case in cases(op)}
    for reasons in (REFUSED, REFUSED_CONSTANTS):
        assert {name for names in reasons.values() for name in names.split()} <= every
