"""Every operator on every device: forward, gradient, out=, layouts, NaN and infinities.

The tests follow from `op.registry` and the table in `cases.py`.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICES, home, placed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operators.cases import CASES
from operators.drawing import LAYOUTS, Call, laid_out

from pareo import Device, op
from pareo.errors import GradientError
from pareo.program import grad

DTYPES = ("float32", "float64")
NO_GRADIENT = {
    "adam", "argmax", "attention_gradient", "augment", "batch_norm_gradient", "gelu_gradient",
    "hard_swish_gradient", "layer_norm_gradient", "lion", "lrn_gradient", "max_gradient",
    "max_pool_gradient", "sgd", "silu_gradient",
}  # fmt: skip
FIRST_ONLY = {"attention_with_sums"}  # the gradient is that of the first result

# The same examples at every run; PAREO_EXPLORE=1 looks for new ones instead, and for more.
EXPLORE = "PAREO_EXPLORE" in os.environ


def examples(number: int) -> settings:
    return settings(
        max_examples=20 * number if EXPLORE else number,
        derandomize=not EXPLORE,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


every_operator = pytest.mark.parametrize("name", op.registry)
every_device = pytest.mark.parametrize("device", DEVICES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def case_of(name: str) -> Any:
    if name not in CASES:
        pytest.fail(f"op.{name} has no case: add a function {name} to tests/operators/cases.py")
    return CASES[name]


def several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def run(name: str, call: Call, device: str, *operands: Any, **more: Any) -> tuple[Any, ...]:
    """What the device computes, on the host; `out` stays where it is."""
    there = [placed(device, operand) for operand in operands or call.operands]
    with Device(device):
        found = several(call.of(op.registry[name], *there, **more))
    return found if "out" in more else tuple(home(device, result) for result in found)


def integer(value: Any) -> bool:
    """Whether this operand is an array of integers; a Python number stands for a float."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def arrays(call: Call, dtype: str) -> list[Any]:
    """The operands as new arrays of a dtype, in C order; those of integers keep their own."""
    return [np.array(a, None if integer(a) else dtype, order="C") for a in call.operands]


def in_torch(name: str, call: Call, gradients: bool = False) -> tuple[list[Any], tuple[Any, ...]]:
    """The call's operands as float64 tensors, and what PyTorch computes from them."""
    tensors = [torch.from_numpy(array) for array in arrays(call, "float64")]
    for tensor in tensors:
        tensor.requires_grad_(gradients and tensor.is_floating_point())
    return tensors, several(call.of(CASES[name].torch, *tensors))


def close(found: Any, expected: Any, tolerance: float, what: str) -> None:
    """Equal up to `tolerance` times the largest number expected, or times 1 where that is small.

    Relative to the largest, because what a sum loses in rounding it loses by its largest terms.
    """
    expected = np.asarray(expected)
    assert found.shape == expected.shape, what
    if expected.size:
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=tolerance * scale, err_msg=f"against {what}"
        )


def rounding(dtype: str) -> float:
    """A sum of n terms errs by at most n roundings; the longest here has fewer than 128 terms."""
    return 128 * float(np.finfo(dtype).eps)


@every_operator
@every_device
@every_dtype
@examples(20)
@given(data=st.data())
def test_forward(name: str, device: str, dtype: str, data: Any) -> None:
    """As `sequential` computes it, and as PyTorch does in float64."""
    case = case_of(name)
    call = data.draw(case.calls(dtype))
    before = [np.copy(a) for a in call.operands]
    found = run(name, call, device)
    for result, expected in zip(found, run(name, call, "sequential"), strict=True):
        assert result.dtype == expected.dtype
        assert result.flags.c_contiguous
        if case.exact:
            np.testing.assert_array_equal(result, expected, "against sequential", strict=True)
        close(result, expected, rounding(dtype), "sequential")
        assert not any(np.may_share_memory(result, a) for a in call.operands)
    if case.torch:
        for result, expected in zip(found, in_torch(name, call)[1], strict=True):
            close(result, expected.detach(), rounding(dtype), "PyTorch")
    for operand, value in zip(call.operands, before, strict=True):
        np.testing.assert_array_equal(operand, value, "an operand was written to")


def moving(name: str, results: Any) -> tuple[Any, ...]:
    """The results that have gradients."""
    return several(results)[:1] if name in FIRST_ONLY else several(results)


def numerical_gradients(name: str, call: Call, weights: list[Any]) -> list[Any]:
    """Central differences of sum(out * weights) in float64, by each floating operand."""
    step = 1e-5
    operands = arrays(call, "float64")

    def loss() -> float:
        results = moving(name, run(name, call, "vectorized", *operands))
        return float(sum(np.sum(r * w) for r, w in zip(results, weights, strict=True)))

    gradients = []
    for operand in operands:
        if integer(operand):
            continue
        gradient = np.empty_like(operand)
        for index in np.ndindex(operand.shape):
            here = operand[index]
            operand[index] = here + step
            above = loss()
            operand[index] = here - step
            gradient[index] = (above - loss()) / (2 * step)
            operand[index] = here
        gradients.append(gradient)
    return gradients


@pytest.mark.parametrize("name", [name for name in op.registry if name not in NO_GRADIENT])
@every_device
@every_dtype
@examples(16)
@given(data=st.data())
def test_gradient(name: str, device: str, dtype: str, data: Any) -> None:
    """As the difference quotient has it, and as PyTorch's autograd does."""
    case = case_of(name)
    call = data.draw(case.calls(dtype))
    specs = moving(name, op.registry[name].bind(*arguments(call))[3])
    random = np.random.default_rng(0)
    weights = [random.uniform(0.5, 2, spec.shape) for spec in specs]
    operands = arrays(call, dtype)
    wrt = tuple(i for i, a in enumerate(operands) if not integer(a))

    def loss(*given: Any) -> Any:
        results = moving(name, call.of(op.registry[name], *given))
        total = None
        for result, weight in zip(results, weights, strict=True):
            part = op.sum(op.hadamard(result, weight.astype(dtype)))
            total = part if total is None else op.add(total, part)
        return total

    with Device(device):
        found = grad(loss, wrt=wrt)(*[placed(device, operand) for operand in operands])
    found = [home(device, gradient) for gradient in found]
    assert all(gradient.dtype == dtype for gradient in found)

    # Differences of two numbers near 10, each with a rounding error of 1e-15, over 2e-5; and the
    # neglected third derivative, near 10, times 1e-10 / 6. Both stay below 1e-8.
    tolerance = max(1e-8, rounding(dtype))
    for gradient, expected in zip(found, numerical_gradients(name, call, weights), strict=True):
        close(gradient, expected, tolerance, "the difference quotient")

    if case.torch:
        tensors, out = in_torch(name, call, gradients=True)
        leaves = [tensors[i] for i in wrt]
        expected_ones = torch.autograd.grad(
            moving(name, out),
            leaves,
            [torch.tensor(weight) for weight in weights],
            allow_unused=True,
            materialize_grads=True,
        )
        for gradient, expected in zip(found, expected_ones, strict=True):
            close(gradient, expected, rounding(dtype), "PyTorch")


def arguments(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((call.operands,) if call.many else call.operands), call.attributes


@pytest.mark.parametrize("name", sorted(NO_GRADIENT))
@given(data=st.data())
@examples(3)
def test_no_gradient(name: str, data: Any) -> None:
    """Where there is none, that is said; nothing comes out as if it were zero."""
    call = data.draw(case_of(name).calls("float64"))

    def loss(*given: Any) -> Any:
        result = several(call.of(op.registry[name], *given))[0]
        return result if name == "argmax" else op.sum(result)

    assert not op.registry[name].differentiable
    with pytest.raises(GradientError, match=r"has no gradient|expects a function that returns one"):
        grad(loss)(*arrays(call, "float64"))


def test_every_operator_without_a_gradient_is_known() -> None:
    assert {name for name in op.registry if not op.registry[name].differentiable} == NO_GRADIENT


@every_operator
@every_device
@every_dtype
@examples(6)
@given(data=st.data())
def test_out(name: str, device: str, dtype: str, data: Any) -> None:
    """The same numbers, in the very array that was given, and nowhere else."""
    call = data.draw(case_of(name).calls(dtype))
    expected = run(name, call, device)
    for layout in ("C", "F", "sliced", "reversed"):
        given_out = [placed(device, laid_out(np.zeros_like(result), layout)) for result in expected]
        found = run(name, call, device, out=given_out if len(given_out) > 1 else given_out[0])
        for result, target, value in zip(found, given_out, expected, strict=True):
            assert result is target
            np.testing.assert_array_equal(home(device, result), value)
            if layout == "sliced" and value.ndim and not target.flags.c_contiguous:
                gaps = home(device, target.base)[..., 1::2]
                assert np.all(np.isnan(gaps) | (gaps == -1)), "written between the elements"


@every_operator
@every_device
@every_dtype
@examples(6)
@given(data=st.data())
def test_out_is_an_operand(name: str, device: str, dtype: str, data: Any) -> None:
    """An operand may be overwritten by the result, or by one of them."""
    call = data.draw(case_of(name).calls(dtype))
    # All in order: NumPy's exp of an array that runs backwards may differ in the last bit.
    own = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in call.operands]
    expected = run(name, call, device, *[placed(device, value) for value in own])
    for position, operand in enumerate(own):
        for number, result in enumerate(expected):
            if not isinstance(operand, np.ndarray) or operand.dtype != result.dtype:
                continue
            if operand.shape != result.shape:
                continue
            operands = [placed(device, value) for value in own]
            target = operands[position] = placed(device, operand.copy(order="K"))
            out: Any = [None] * len(expected)
            out[number] = target
            found = run(name, call, device, *operands, out=out if len(out) > 1 else target)
            assert found[number] is target
            for given_back, value in zip(found, expected, strict=True):
                np.testing.assert_array_equal(home(device, given_back), value)


@every_operator
@every_device
@pytest.mark.parametrize("layout", LAYOUTS[1:])
@examples(3)
@given(data=st.data())
def test_layout(name: str, device: str, layout: str, data: Any) -> None:
    """How operands lie in memory makes no difference, but for the order of a sum's terms."""
    call = data.draw(case_of(name).calls("float64", layout))
    plain = [a.copy(order="C") if isinstance(a, np.ndarray) else a for a in call.operands]
    for result, expected in zip(
        run(name, call, device), run(name, call, device, *plain), strict=True
    ):
        close(result, expected, rounding("float64"), "C order")
