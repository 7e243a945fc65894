"""Passes, on programs that hypothesis draws: none may change what a program computes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo import Device, Spec, op, trace
from pareo.program import fuse, plan, remove_common, remove_dead

ONE = (op.sigmoid, op.tanh, op.relu, op.exp, lambda a: op.scale(0.5, a), op.transpose)
TWO = (op.add, op.sub, op.hadamard, op.dot)


@st.composite
def functions(draw: st.DrawFn) -> Any:
    """A function of two 3 x 3 matrices, as a list of steps over everything made so far."""
    steps = []
    for made in range(draw(st.integers(1, 12))):
        known = st.integers(0, made + 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(ONE)), (draw(known),)))
        else:
            steps.append((draw(st.sampled_from(TWO)), (draw(known), draw(known))))
    results = draw(st.lists(st.integers(0, len(steps) + 1), min_size=1, max_size=3))

    def function(a: Any, b: Any) -> Any:
        values = [a, b]
        for operator, inputs in steps:
            made = operator(*[values[i] for i in inputs])
            # What can grow is kept small; a view stays a view, which shares memory with others.
            values.append(op.tanh(made) if operator in (op.exp, op.dot) else made)
        return tuple(values[i] for i in results)

    return function


MATRICES = [np.random.default_rng(s).standard_normal((3, 3)).astype(np.float32) for s in (1, 2)]


def run_plainly(program: Any) -> list[Any]:
    """Every instruction by itself, in memory of its own: what any plan must reproduce."""
    values = dict(zip(program.inputs, MATRICES, strict=True)) | dict(program.constants)
    for instruction in program.instructions:
        result = instruction.operator(
            *[values[n] for n in instruction.inputs], **instruction.attributes
        )
        values[instruction.outputs[0]] = result
    return [values[n] for n in program.outputs]


@given(functions())
def test_dead_and_common_code_change_no_bit(function: Any) -> None:
    program = trace(function, *MATRICES)
    smaller = remove_dead(remove_common(program))
    for a, b in zip(run_plainly(program), run_plainly(smaller), strict=True):
        assert np.array_equal(a, b)
    keys = [i.key for i in smaller.instructions]
    assert len(set(keys)) == len(keys), "nothing is computed twice"
    read = {n for i in smaller.instructions for n in i.inputs} | set(smaller.outputs)
    assert all(not read.isdisjoint(i.outputs) for i in smaller.instructions), "nothing is in vain"


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
@given(function=functions())
@settings(max_examples=40)
def test_planned_memory_changes_no_bit(device: str, function: Any) -> None:
    with Device(device):
        program = trace(function, *MATRICES)
        expected = run_plainly(program)
        found = program.compile()(*MATRICES)
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)


@given(functions())
def test_values_that_are_needed_at_once_never_overlap(function: Any) -> None:
    backend = Device("compiled").backend
    program = fuse(remove_dead(remove_common(trace(function, *MATRICES))), backend)
    layout = plan(program, backend)
    last = dict.fromkeys(program.specs, -1)
    for position, instruction in enumerate(program.instructions):
        for n in instruction.inputs:
            last[n] = position
    last |= dict.fromkeys(program.outputs, len(program.instructions))
    for view, source in reversed(list(layout.views.items())):
        last[source] = max(last[source], last[view])
    born = {n: p for p, i in enumerate(program.instructions) for n in i.outputs}
    places = [
        (layout.offsets[n], layout.offsets[n] + program.specs[n].nbytes, born[n], last[n])
        for n in layout.offsets
    ]
    assert all(end <= layout.bytes for _, end, _, _ in places)
    for i, (start, end, first, final) in enumerate(places):
        for other_start, other_end, other_first, other_final in places[i + 1 :]:
            apart = end <= other_start or other_end <= start
            # One may begin where the other ends: that is an operation in place.
            assert apart or final <= other_first or other_final <= first


def test_equal_numbers_are_kept_once() -> None:
    program = trace(lambda x: op.add(op.scale(2, x), op.scale(2, x)), Spec((2,)))
    smaller = remove_common(program)
    assert len(smaller.constants) == 1
    assert [i.name for i in smaller.instructions] == ["scale", "add"]


def test_different_attributes_are_not_common() -> None:
    program = trace(lambda x: (op.sum(x, axis=0), op.sum(x, axis=1)), Spec((2, 2)))
    assert len(remove_common(program).instructions) == 2
