"""Updates in place: the same numbers, in the caller's own arrays, and less memory."""

from typing import Any

import numpy as np
import pytest
from networks_for_tests import draw

from pareo import Device, Spec, op, trace, value_and_grad
from pareo.errors import DtypeError

DEVICES = ["sequential", "vectorized", "compiled"]


def two_layers(w: Any, v: Any, x: Any, rate: Any) -> Any:
    """One step down the gradient of a small network: the loss, and both matrices moved."""

    def loss(w: Any, v: Any) -> Any:
        return op.sum(op.hadamard(h := op.dot(op.tanh(op.dot(x, w)), v), h))

    value, (gw, gv) = value_and_grad(loss, wrt=(0, 1))(w, v)
    return value, op.sub(w, op.scale(rate, gw)), op.sub(v, op.scale(rate, gv))


def arguments() -> list[Any]:
    return [*draw((5, 4), (4, 3), (6, 5), dtype=np.float64), np.array(0.1)]


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_equals_apart(device: str) -> None:
    program = trace(two_layers, *arguments())
    apart = program.compile(Device(device))
    here = program.compile(Device(device), updates={1: 0, 2: 1})
    assert len(here._over) == 2, "both are written straight over their arguments"
    w, v, x, rate = arguments()
    mine = [w.copy(), v.copy()]
    for _ in range(3):
        loss, new_w, new_v = (np.array(a) for a in apart(w, v, x, rate))
        w, v = new_w, new_v
        found = here(*mine, x, rate)
        assert found[1] is mine[0]
        np.testing.assert_allclose(found[0], loss, rtol=1e-12)
        # A fused step adds its product straight to the matrix: one rounding less.
        np.testing.assert_allclose(mine[0], w, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(mine[1], v, rtol=1e-12, atol=1e-14)


def test_gradients_take_no_memory_where_the_step_is_fused() -> None:
    program = trace(two_layers, *arguments())
    names = [i.name for i in program.compile(Device("compiled"), {1: 0, 2: 1}).program.instructions]
    assert names.count("descend") == 2
    with_room = program.compile(Device("compiled")).nbytes
    assert program.compile(Device("compiled"), {1: 0, 2: 1}).nbytes < with_room


@pytest.mark.parametrize("device", DEVICES)
def test_an_argument_that_is_needed_later_is_copied_at_the_end(device: str) -> None:
    def crossed(a: Any, b: Any) -> Any:
        return op.add(a, b), op.sub(a, b)  # each update reads what the other replaces

    program = trace(crossed, Spec((2,), "float64"), Spec((2,), "float64"))
    run = program.compile(Device(device), updates={0: 0, 1: 1})
    assert len(run._over) < 2
    a, b = np.array([5.0, 7.0]), np.array([1.0, 2.0])
    run(a, b)
    assert a.tolist() == [6, 9]
    assert b.tolist() == [4, 5]


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_of_an_argument_that_is_read_later_is_safe(device: str) -> None:
    def turned(a: Any) -> Any:
        return op.add(a, op.transpose(a))

    run = trace(turned, Spec((3, 3), "float64")).compile(Device(device), updates={0: 0})
    a = np.arange(9.0).reshape(3, 3)
    expected = a + a.T
    run(a)
    assert np.array_equal(a, expected)


def test_an_updated_argument_must_be_contiguous_and_writable() -> None:
    run = trace(lambda a: op.exp(a), Spec((2, 2), "float64")).compile(updates={0: 0})
    frozen = np.ones((2, 2))
    frozen.flags.writeable = False
    for wrong in (frozen, np.ones((4, 2))[::2]):
        with pytest.raises(DtypeError, match="argument 0 is updated"):
            run(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_a_result_that_is_only_a_view_is_written_over_its_argument(device: str) -> None:
    program = trace(lambda a, b: op.reshape(op.exp(a), (4,)), Spec((2, 2)), Spec((4,)))
    target = np.zeros(4, np.float32)
    program.compile(Device(device), updates={0: 1})(np.zeros((2, 2), np.float32), target)
    np.testing.assert_array_equal(target, 1)
