"""Fusion: only what the backend offers, only where it is right, and to the same results."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from devices import CUDA, home, placed
from networks_for_tests import draw, mlp, papers_cnn

from pareo import Device, Spec, op, trace
from pareo.errors import PareoError
from pareo.program import differentiate, fuse, remove_common, remove_dead, tree
from pareo.program.fuse import in_order

COMPILED = Device("compiled").backend


def fused_names(program: Any) -> list[str]:
    lowered = COMPILED.lower(remove_dead(remove_common(program)))
    return [i.name for i in fuse(lowered, COMPILED).instructions]


def conv_layer(activation: str, channels: int = 2, filters: int = 4, wide: int = 9) -> Any:
    """A first layer's loss: convolution, bias, activation."""
    act = getattr(op, activation) if activation else (lambda a: a)

    def loss(w: Any, b: Any, x: Any, g: Any) -> Any:
        return op.sum(op.hadamard(act(op.add_bias(op.conv(x, w, padding=1), b)), g))

    shapes = (filters, channels, 3, 3), (filters,), (3, channels, wide, wide)
    return loss, draw(*shapes, (3, filters, wide, wide))


def down(p: Any, a: Any, b: Any, rate: Any) -> Any:
    """A matrix down a gradient that is a product."""
    return (op.sub(p, op.scale(rate, op.dot(op.transpose(a), b))),)


DOWN = draw((3, 4), (5, 3), (5, 4), ())


def step(p: Any, g: Any, rate: Any) -> Any:
    """A parameter down its gradient."""
    return (op.sub(p, op.scale(rate, g)),)


STEP = draw((2, 3, 4), (2, 3, 4), ())


def average(a: Any, b: Any, p: Any, q: Any) -> Any:
    """A moving average."""
    return (op.add(op.scale(p, a), op.scale(q, b)),)


AVERAGE = draw((2, 3, 4), (2, 3, 4), (), ())


NORMALISED = "relu", "clip", "silu", "hard_swish", "sum", "sum_relu", "sum_relu_shared"
NORM = draw((2, 3, 5, 7), (3,), (3,), (2, 3, 5, 7), (2, 3, 5, 7))


def _after_norm(kind: str, y: Any, r: Any) -> Any:
    """An activation of y, or its sum with r."""
    if kind.startswith("sum"):
        total = op.add(y, r)
        return total if kind == "sum" else op.relu(total)
    return op.clip(y, -0.5, 0.5) if kind == "clip" else getattr(op, kind)(y)


def normalised(kind: str) -> Any:
    """A loss with batch normalisation in training."""

    def loss(x: Any, s: Any, b: Any, r: Any, g: Any) -> Any:
        z = _after_norm(kind, op.batch_norm(x, s, b)[0], r)
        first = op.hadamard(z, g)
        return op.sum(op.add(first, op.tanh(z)) if kind == "sum_relu_shared" else first)

    return loss


def inference(kind: str) -> Any:
    """The same with given statistics."""

    def result(x: Any, s: Any, b: Any, r: Any, g: Any) -> Any:
        return (_after_norm(kind, op.batch_norm_inference(x, s, b, b, op.hadamard(s, s)), r),)

    return result


def programs() -> dict[str, Any]:
    """One program or more for every fusion that the compiled backend offers."""
    found = {}
    for activation in ("sigmoid", "tanh", "relu", ""):
        for large in (False, True):
            sizes = (24, 40, 7) if large else (2, 4, 9)
            loss, arguments = conv_layer(activation, *sizes)
            name = f"conv {activation or 'plain'} {'columns' if large else 'rows'}"
            found[name] = (differentiate(trace(loss, *arguments), wrt=(0, 1)), arguments)
    for activation in ("sigmoid", "tanh", "relu"):
        loss, arguments = mlp(activation)
        found[f"mlp {activation}"] = (
            differentiate(trace(loss, *arguments), wrt=range(2, 6)),
            arguments,
        )
    found["descend"] = (trace(down, *DOWN), DOWN)
    found["step down"] = (trace(step, *STEP), STEP)
    found["moving average"] = (trace(average, *AVERAGE), AVERAGE)
    for kind in NORMALISED:
        trained = differentiate(trace(normalised(kind), *NORM), wrt=range(4))
        found[f"norm {kind}"] = (trained, NORM)
        found[f"inference {kind}"] = (trace(inference(kind), *NORM), NORM)
    loss, arguments = papers_cnn()
    found["papers_cnn"] = (differentiate(trace(loss, *arguments), wrt=range(2, 8)), arguments)
    return found


PROGRAMS = programs()


def test_every_fusion_is_met() -> None:
    met = {name for program, _ in PROGRAMS.values() for name in fused_names(program)}
    assert {fusion.name for fusion in COMPILED.fusions} <= met


@pytest.mark.parametrize("name", PROGRAMS)
def test_fused_gives_what_the_parts_give(name: str) -> None:
    program, arguments = PROGRAMS[name]
    with Device("sequential"):
        # In double precision, operator by operator: the specification.
        exact_arguments = [
            np.asarray(a, np.float64) if a.dtype == np.float32 else a for a in arguments
        ]
        with Device("vectorized"):
            exact = _retraced(name, exact_arguments)
    found = program.compile(Device("compiled"))(*arguments)
    for a, b in zip(found, exact, strict=True):
        # float32 sums of up to a few thousand terms of order one.
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def _retraced(name: str, arguments: list[Any]) -> Any:
    kind = name.split()[0]
    if kind == "conv":
        activation = "" if "plain" in name else name.split()[1]
        loss, wrt = conv_layer(activation)[0], (0, 1)
    elif kind == "mlp":
        loss, wrt = mlp(name.split()[1])[0], range(2, 6)
    elif kind == "norm":
        loss, wrt = normalised(name.split()[1]), range(4)
    elif kind == "inference":
        return trace(inference(name.split()[1]), *arguments).compile()(*arguments)
    elif kind == "descend":
        return trace(down, *arguments).compile()(*arguments)
    elif kind == "step":
        return trace(step, *arguments).compile()(*arguments)
    elif kind == "moving":
        return trace(average, *arguments).compile()(*arguments)
    else:
        loss, wrt = papers_cnn()[0], range(2, 8)
    return differentiate(trace(loss, *arguments), wrt=wrt).compile()(*arguments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_flops_stay_and_bytes_shrink(name: str) -> None:
    program = remove_dead(remove_common(PROGRAMS[name][0]))
    fused = fuse(COMPILED.lower(program), COMPILED)
    assert fused.flops == program.flops
    assert fused.bytes < program.bytes


def test_a_value_that_others_read_is_not_hidden() -> None:
    def shared(x: Any, w: Any, b: Any) -> Any:
        u = op.add_bias(op.dot(x, w), b)
        return op.sigmoid(u), u

    specs = Spec((2, 3)), Spec((3, 4)), Spec((4,))
    assert fused_names(trace(shared, *specs)) == ["dot_bias", "sigmoid"]


def test_no_value_may_leave_a_fusion_and_come_back() -> None:
    def detour(logits: Any, labels: Any) -> Any:
        loss = op.cross_entropy(logits, labels)
        return op.cross_entropy_gradient(op.scale(2, loss), logits, labels)

    specs = Spec((2, 3)), Spec((2,), "int64")
    assert fused_names(trace(detour, *specs)) == [
        "cross_entropy",
        "scale",
        "cross_entropy_gradient",
    ]


def test_a_backend_without_fusions_keeps_the_program() -> None:
    program, _ = PROGRAMS["papers_cnn"]
    assert fuse(program, Device("vectorized").backend).instructions == program.instructions


def test_fused_program_is_rebuilt_for_another_batch() -> None:
    specs = Spec((2, 3), batch=0), Spec((3, 4)), Spec((4,))
    program = fuse(trace(lambda x, w, b: op.add_bias(op.dot(x, w), b), *specs), COMPILED)
    again = program.with_batch(9)
    assert [i.name for i in again.instructions] == ["dot_bias"]
    assert again.specs[again.outputs[0]].shape == (9, 4)


def difference(x: Any, w: Any) -> Any:
    y = op.dot(x, w)
    return op.sub(y, op.scale(0.1, y))


def nothing(x: Any) -> Any:
    s = op.scale(0.5, x)
    return op.sub(s, s)


def product_from_itself(x: Any, w: Any) -> Any:
    """The number that scales a product is made from it."""
    t = op.dot(x, w)
    return op.sub(x, op.scale(op.sum(t), t))


def loss_by_itself(logits: Any, labels: Any) -> Any:
    loss = op.cross_entropy(logits, labels)
    return op.cross_entropy_gradient(loss, logits, labels), loss


def slope_of_itself(x: Any) -> Any:
    """A sum beside a slope that is its own operand: what the pattern gives is what it reads."""
    d = op.relu_gradient(x, x)
    return op.relu_gradient(d, d), op.sum(d, axis=0)


INSIDE = {
    "difference": (difference, Spec((4, 3)), Spec((3, 3))),
    "nothing": (nothing, Spec((4, 3))),
    "product": (product_from_itself, Spec((3, 3)), Spec((3, 3))),
    "loss": (loss_by_itself, Spec((4, 3)), Spec((4,), "int64")),
    "slope": (slope_of_itself, Spec((4, 3))),
}


@pytest.mark.parametrize("derivative", [False, True])
@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("device", ["compiled", CUDA])
def test_a_fusion_reads_nothing_that_it_makes(device: str, name: str, derivative: bool) -> None:
    function, *specs = INSIDE[name]

    def total(*arguments: Any) -> Any:
        found = function(*arguments)
        parts = found if isinstance(found, tuple) else (found,)
        result = op.sum(op.hadamard(parts[0], parts[0]))
        return result if len(parts) == 1 else op.add(result, op.sum(parts[1]))

    program = trace(function, *specs)
    if derivative:
        program = differentiate(trace(total, *specs))
    arguments = [
        np.arange(spec.size).reshape(spec.shape) % 3
        if spec.dtype.kind == "i"
        else draw(spec.shape)[0]
        for spec in specs
    ]
    found = program.compile(Device(device))(*[placed(device, a) for a in arguments])
    wanted = program.compile(Device("vectorized"))(*arguments)
    for a, b in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(home(device, a), b, rtol=1e-4, atol=1e-5)  # some ten roundings


SHAPES = [
    ((3, 2), (1, 2), (2, 2)),
    ((3, 2), (3, 2), (2, 1)),
    ((1, 2), (3, 2), (2, 2)),
    ((2, 3, 2), (3, 2), (2, 2)),
    ((2,), (3, 2), (2, 2)),
    ((3, 3, 2), (1, 3, 2), (1, 2, 2)),
    ((1, 3, 2), (3, 3, 2), (3, 2, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("device", ["compiled", CUDA])
def test_operands_are_repeated_inside_a_fusion_as_outside(device: str, shapes: Any) -> None:
    p, a, b = draw(*shapes)

    def steps(p: Any, a: Any, b: Any) -> Any:
        product = op.dot(a, b)
        return (
            op.sub(p, op.scale(0.5, op.dot(a, b))),
            op.sub(p, op.scale(0.25, op.reshape(product, product.shape))),
            op.add(p, op.dot(op.scale(2, a), b)),
            op.relu(op.add(op.dot(op.scale(3, a), b), p)),
        )

    found = trace(steps, p, a, b).compile(Device(device))(*[placed(device, x) for x in (p, a, b)])
    t = a.astype(np.float64) @ b
    for result, exact in zip(
        found, (p - 0.5 * t, p - 0.25 * t, p + 2 * t, np.maximum(3 * t + p, 0)), strict=True
    ):
        assert result.shape == exact.shape
        np.testing.assert_allclose(home(device, result), exact, rtol=1e-5, atol=1e-6)


def test_instructions_that_wait_for_each_other_are_an_error() -> None:
    program = trace(lambda x: op.exp(op.relu(x)), Spec((2,)))
    first, second = program.instructions
    circle = [replace(first, inputs=second.outputs), second]
    with pytest.raises(PareoError, match="depend on each other's results: relu, exp"):
        in_order(program, circle)
