"""Random programs on every device against float64; `PAREO_EXPLORE=1` draws new ones, and more.

`python tests/fuzzing/explore.py` runs as many as you like, and makes those that fail smaller.
"""

import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from fuzzing.compare import PLAIN, Example, Hang, check, fault, refused, within
from fuzzing.draw import drawn
from fuzzing.recipe import Recipe
from fuzzing.reference import expected, interpret
from fuzzing.shrink import shrunk

from pareo import Spec, op, trace
from pareo.program import Program

EXPLORE = "PAREO_EXPLORE" in os.environ
BLOCKS, EACH = (20, 50) if EXPLORE else (4, 12)
FIRST = random.randrange(10**9) if EXPLORE else 1008
# With these, the fixed ones meet the checks that `fuse`, `plan` and `update` make: without one,
# some program fails on `compiled`. Only that of `_taken_over` for views is left to test_plan.py.
RARE = () if EXPLORE else (1191, 1227, 1237)
DTYPES = ("float32", "float64")

every_block = pytest.mark.parametrize("block", range(BLOCKS))


def seeds(block: int, device: str) -> Sequence[int]:
    """`sequential` is plain loops, so it gets a few."""
    start = FIRST + block * EACH
    found = range(start, start + (EACH // 6 if device == "sequential" else EACH))
    return (*found, *RARE) if block == 0 and device == "compiled" else found


@every_block
@pytest.mark.parametrize("device", DEVICES)
def test_programs(device: str, block: int) -> None:
    for seed in seeds(block, device):
        example = Example(drawn(seed), seed)
        if device == "sequential" and example.program.flops > PLAIN:
            continue
        try:
            check(example, device, DTYPES[seed % 2], threads=1 + seed % 2)
        except Exception as error:
            error.add_note(f"the program of seed {seed} on {device} in {DTYPES[seed % 2]}")
            raise


@pytest.mark.parametrize("device", DEVICES)
def test_updates_of_another_shape_are_refused(device: str) -> None:
    for seed in seeds(0, device)[:4]:
        refused(drawn(seed), device)


def test_a_result_that_is_a_thousandth_off_is_found() -> None:
    """What is allowed is far below what a wrong kernel would do."""
    seen = 0
    for seed in seeds(0, "vectorized"):
        example = Example(drawn(seed), seed)
        for right in example.expected[0] or ():
            if right.value.dtype.kind == "f" and right.largest > 1e-3 and right.stable:
                seen += 1
                off = np.asarray(right.value * 1.001, "float32")
                assert fault(off, right, "float32"), f"seed {seed}"
                assert not fault(np.asarray(right.value, "float32"), right, "float32")
    assert seen > EACH


def test_a_program_that_fails_is_made_smaller() -> None:
    """Down to the one line that matters, and the arguments that it reads."""

    def fails(recipe: Recipe) -> bool:
        return any(line.name == "dot" for line in recipe.lines)

    recipe = next(recipe for recipe in map(drawn, range(FIRST, FIRST + 99)) if fails(recipe))
    small = shrunk(recipe, fails)
    assert small.count() == 1
    assert len(small.outputs) == 1
    assert sum(line.name == "argument" for line in small.lines) <= 2


@pytest.mark.parametrize("name", ["batch_norm_gradient", "layer_norm_gradient"])
def test_what_cancels_inside_a_normalisation_has_noise(name: str) -> None:
    """The mean of one slope is that slope: the difference is 0, but for rounding."""
    random = np.random.default_rng(1)
    arrays = [random.uniform(0.5, 2, (1, 1)), *random.uniform(0.5, 2, (4, 1))]
    shapes = [(1, 1), (1, 1), (1,), (1,), (1,)][: 5 if name[0] == "b" else 3]
    given = [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=False)]
    if name[0] == "b":
        given[3] = given[1][0]  # the mean is the element
    program = trace(lambda *a: op.registry[name](*a, epsilon=0.1)[0], *map(Spec.of, given))
    (right,) = expected(program, given, seed=0) or ()
    assert np.abs(right.value).max() < 1e-15
    assert 2.0**-26 < right.moved < 2.0**-18


def test_what_does_not_end_is_stopped() -> None:
    with pytest.raises(Hang), within(0.01):
        time.sleep(10)


def slope(program: Program, arrays: list[Any], towards: dict[int, Any], step: float) -> float:
    """The difference quotient of a program's one number along a direction."""

    def at(move: float) -> float:
        moved = [
            np.asarray(array + move * towards[place]) if place in towards else array
            for place, array in enumerate(arrays)
        ]
        return float(interpret(program, moved)[0])

    return (at(step) - at(-step)) / (2 * step)


@every_block
def test_gradients(block: int) -> None:
    """Along a random direction, first and second derivatives are what the difference quotient is.

    Quotients of steps of 1e-5 and 2e-5 err by the third derivative times step^2, and by rounding
    of 1e-15 / step. Where they differ by more than a millionth, a kink or a jump lies between.
    """
    tested = 0
    for seed in range(FIRST + block * EACH, FIRST + (block + 1) * EACH):
        recipe = drawn(seed)
        for number, line in recipe.numbered:
            if line.name != "gradient":
                continue
            places = list(recipe.arguments)
            arrays = list(recipe.arguments.values())
            of = replace(recipe, outputs=line.operands, nesting=None, updates={}, wrt=())
            found = replace(of, outputs=tuple(range(number, number + line.results)))
            draw = np.random.default_rng(seed)
            towards = {n: draw.uniform(-1, 1, recipe.arguments[n].shape) for n in line.wrt}
            by_place = {places.index(n): array for n, array in towards.items()}
            gradients = interpret(found.program("float64"), arrays)
            value = sum(
                float(np.sum(g * towards[n])) for g, n in zip(gradients, line.wrt, strict=True)
            )
            program = of.program("float64")
            one, two = (slope(program, arrays, by_place, step) for step in (1e-5, 2e-5))
            if abs(one - two) > 1e-6 * max(1, abs(one)):
                continue
            tested += 1
            assert value == pytest.approx(one, rel=1e-5, abs=1e-5), f"seed {seed}\n{of.pruned()}"
    assert tested
