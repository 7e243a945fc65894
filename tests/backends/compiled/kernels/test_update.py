"""Updates in one pass give the bits of their operators, whatever their size and threads."""

from typing import Any

import numpy as np
import pytest

from pareo import Device, op, trace
from pareo.backends.compiled.backend import GRAIN
from pareo.spec import Spec

SIZES = (1,), (5, 7), (2 * GRAIN + 3,)


def moved(device: Device, size: tuple[int, ...], dtype: Any, in_place: bool) -> list[Any]:
    """An average and a parameter after one step of a program, and its names of instructions."""

    def step(a: Any, b: Any, p: Any, g: Any, rate: Any) -> Any:
        kept, new = op.scale(0.9, a), op.scale(0.1, b)
        return op.add(kept, new), op.sub(p, op.scale(rate, g))

    draw = np.random.default_rng(5)
    arrays = [draw.standard_normal(size).astype(dtype) for _ in range(4)]
    rate = np.asarray(0.3, dtype)
    program = trace(step, *map(Spec.of, (*arrays, rate)))
    updates = {0: 0, 1: 2} if in_place else {}
    run = program.compile(device, updates)
    found = [np.array(a) for a in run(*arrays, rate)]
    if in_place:
        np.testing.assert_array_equal(arrays[0], found[0])
        np.testing.assert_array_equal(arrays[2], found[1])
    return [found, [i.name for i in run.program.instructions]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("in_place", [False, True])
def test_updates_agree_with_their_operators(
    size: tuple[int, ...], dtype: Any, threads: int, in_place: bool
) -> None:
    expected, _ = moved(Device("vectorized"), size, dtype, False)
    found, names = moved(Device("compiled", threads=threads), size, dtype, in_place)
    assert sorted(names) == ["blend", "step_down"]
    np.testing.assert_array_equal(found[0], expected[0])
    # A product and a sum may be one instruction, which rounds once.
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-6)
