"""Fusion: only what the backend offers, only where it is right, and to the same results."""

from typing import Any

import numpy as np
import pytest
from networks_for_tests import draw, mlp, papers_cnn

from pareo import Device, Spec, op, trace
from pareo.program import differentiate, fuse, remove_common, remove_dead

COMPILED = Device("compiled").backend


def fused_names(program: Any) -> list[str]:
    return [i.name for i in fuse(remove_dead(remove_common(program)), COMPILED).instructions]


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
    elif kind == "descend":
        return trace(down, *arguments).compile()(*arguments)
    elif kind == "step":
        return trace(step, *arguments).compile()(*arguments)
    else:
        loss, wrt = papers_cnn()[0], range(2, 8)
    return differentiate(trace(loss, *arguments), wrt=wrt).compile()(*arguments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_flops_stay_and_bytes_shrink(name: str) -> None:
    program = remove_dead(remove_common(PROGRAMS[name][0]))
    fused = fuse(program, COMPILED)
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
