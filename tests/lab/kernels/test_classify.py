"""Kinds by name: CUDA's as recorded on an H200 in PyTorch, our own kernels, operators, XLA's."""

import re
from pathlib import Path

import pytest

import pareo
from pareo.lab.experiment.tasks import task_for
from pareo.lab.kernels.classify import CUDA, TORCH, XLA, kind, kind_of_operator
from pareo.lab.kernels.events import KINDS
from pareo.lab.machine.kernel_names import demangled, readable
from pareo.training.step import step_program

# Who launched it, its kind, and the symbol as CUPTI gave it, a line each.
RECORDED = [
    line.split("\t")
    for line in (Path(__file__).parent / "recorded_names.tsv").read_text().splitlines()
]


@pytest.mark.parametrize(("who", "expected", "symbol"), RECORDED)
def test_recorded_names_have_their_kind(who: str, expected: str, symbol: str) -> None:
    assert expected in KINDS
    assert kind(readable(symbol), CUDA) == expected


def own_kernels() -> set[str]:
    """The names after __global__ in pareo's sources, less those that a macro makes."""
    found: set[str] = set()
    for file in (Path(pareo.__file__).parent / "backends" / "cuda").rglob("*.cu"):
        found |= set(
            re.findall(r"__global__ void(?: __launch_bounds__\(.*?\))? (\w+)\(", file.read_text())
        )
    return found - {"name"}


def test_every_kernel_of_our_own_has_a_kind() -> None:
    names = own_kernels()
    assert {"gather", "max_pool", "filters_back", "update_all"} <= names
    assert {name for name in names if kind(name, CUDA) == "other"} == {
        "advance", "pick_numbers", "pick_seeds",
    }  # fmt: skip


def test_template_arguments_of_our_own_kernels_change_no_kind() -> None:
    named = {name: kind(name, CUDA) for name in own_kernels()}
    assert named == {name: kind(f"{name}<float, 4, true>", CUDA) for name in named}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("filters_back<64, 3>", "convolution"),
        ("dense_update", "gemm"),
        ("flip_filters", "copy"),
        ("transpose_gradients", "copy"),
        ("gather", "copy"),
        ("to_columns", "copy"),
        ("max_pool3_back", "reduction"),
        ("relu_bias_back", "reduction"),
        ("sum_rows", "reduction"),
        ("update_all", "elementwise"),
        ("relu_walk", "elementwise"),
        ("depthwise_weight", "convolution"),
        ("statistics_rows", "reduction"),
        ("gradients_packed", "elementwise"),
        ("take_packed", "copy"),
    ],
)
def test_our_own_kernels(name: str, expected: str) -> None:
    assert kind(name, CUDA) == expected


def test_names_are_readable() -> None:
    names = [readable(symbol) for _, _, symbol in RECORDED]
    assert not [name for name in names if name.startswith(("_Z", "void ")) or "::" in name[:20]]


def test_a_name_that_is_no_symbol_stays() -> None:
    assert demangled("_Znonsense") == "_Znonsense"
    assert readable("nvjet_sm90_tst_128x64") == "nvjet_sm90_tst_128x64"


@pytest.mark.parametrize("network", ["papers-cnn", "mlp-big", "alexnet", "googlenet"])
def test_flops_of_a_program_are_nearly_all_in_products_and_convolutions(network: str) -> None:
    program = step_program(task_for(network, 8, threads=1).network, 8)
    known: dict[str, int] = {}
    for instruction in program.instructions:
        found = kind_of_operator(instruction.name)
        known[found] = known.get(found, 0) + instruction.flops
    assert known["gemm"] > 0
    assert known.get("copy", 0) == known.get("other", 0) == 0
    assert (known["gemm"] + known.get("convolution", 0)) / program.flops > 0.75


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv_bias_sigmoid_gradient", "convolution"),
        ("subsample", "convolution"),
        ("dot_bias_relu", "gemm"),
        ("max_pool_gradient", "reduction"),
        ("cross_entropy_with_gradient", "reduction"),
        ("relu_bias_gradient", "reduction"),
        ("relu_gradient", "elementwise"),
        ("step_down", "elementwise"),
        ("concat", "copy"),
        ("pad", "copy"),
        ("batch_norm_relu", "reduction"),
        ("layer_norm_gradient", "reduction"),
        ("batch_norm_inference", "elementwise"),
        ("attention_with_sums", "batched gemm"),
        ("gelu_gradient", "elementwise"),
    ],
)
def test_operators(name: str, expected: str) -> None:
    assert kind_of_operator(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::addmm", "gemm"),
        ("aten::bmm", "batched gemm"),
        ("aten::convolution_backward", "convolution"),
        ("aten::conv2d", "other"),  # a wrapper, whose product is counted within
        ("aten::max_pool2d_with_indices", "reduction"),
        ("aten::_log_softmax", "reduction"),
        ("aten::threshold_backward", "elementwise"),
        ("aten::add_", "elementwise"),
        ("aten::copy_", "copy"),
        ("aten::index_select", "copy"),
        ("aten::transpose", "other"),  # a view
        ("aten::native_batch_norm_backward", "reduction"),
        ("aten::batch_norm", "other"),  # a wrapper
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "batched gemm"),
        ("aten::hardtanh_backward", "elementwise"),
        ("cudaLaunchKernel", "other"),
    ],
)
def test_torch(name: str, expected: str) -> None:
    assert kind(name, TORCH) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dot.3", "gemm"), ("wrapped_reduce-window.1", "reduction"), ("copy.5", "copy"),
     ("convolution.2", "convolution"), ("add_maximum_fusion", "elementwise")],
)  # fmt: skip
def test_xla(name: str, expected: str) -> None:
    assert kind(name, XLA) == expected
