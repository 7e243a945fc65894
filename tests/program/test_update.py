"""Updates that replace an argument: moved early, but never before the argument's last reader."""

import numpy as np
import pytest
from devices import CPU, DEVICES, home, placed

import pareo.operators as op
from pareo import Device, Spec, trace
from pareo.errors import DtypeError, PareoError
from pareo.program.compiler import prepared
from pareo.program.update import hasten_updates, in_place


def layer(w, x):
    """A dense layer's forward and backward products, and its new weights."""
    y = op.dot(x, w)
    new = op.sub(w, op.scale(0.1, op.dot(op.transpose(x), y)))
    return op.dot(y, op.transpose(w)), new


def test_an_update_waits_for_the_readers_of_a_view():
    backend = Device("vectorized").backend
    program = prepared(trace(layer, Spec((6, 5)), Spec((4, 6))), backend)
    updates = {1: 0}
    hastened = hasten_updates(program, updates)
    number = hastened.outputs[1]
    last = [i for i in hastened.instructions if number in i.outputs]
    back = [i for i in hastened.instructions if hastened.outputs[0] in i.outputs]
    order = list(hastened.instructions)
    assert order.index(last[0]) > order.index(back[0])
    assert in_place(hastened, updates, backend) == {number: hastened.inputs[0]}


def moved(w, g):
    """New weights, and how far they moved: someone reads the old ones and the new ones at once."""
    new = op.sub(w, op.scale(0.5, g))
    far = op.sub(new, w)
    return new, op.sum(op.hadamard(far, far))


def swapped(a, b):
    return b, a


def rotated(a, b, c):
    return op.reshape(b, (4,)), c, op.add(a, 1)


def shown(a):
    """A new value beside the old one, as it is and in another shape."""
    return op.add(a, 1), a, op.reshape(a, (2, 2))


def both_of_one(a, b):
    new = op.exp(a)
    return new, new


def kept(a, b):
    return a, op.add(a, b)


PROGRAMS = {
    "a reader of old and new": (moved, [(3, 2), (3, 2)], {0: 0}),
    "swapped": (swapped, [(4,), (4,)], {0: 0, 1: 1}),
    "swapped, one stays": (swapped, [(4,), (4,)], {0: 0}),
    "rotated": (rotated, [(4,), (4,), (4,)], {0: 0, 1: 1, 2: 2}),
    "an old value as a result": (shown, [(4,)], {0: 0}),
    "one value for two": (both_of_one, [(4,), (4,)], {0: 0, 1: 1}),
    "an argument that stays": (kept, [(4,), (4,)], {0: 0, 1: 1}),
    "a layer": (layer, [(6, 5), (4, 6)], {1: 0}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_follow_from_the_arguments_as_they_were(name, device):
    function, shapes, updates = PROGRAMS[name]
    program = trace(function, *map(Spec, shapes))
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    run = program.compile(Device(device), updates)
    here = [placed(device, array.copy()) for array in arrays]
    for _ in range(3):  # on a GPU: launched, captured, replayed
        wanted = program.compile(Device("vectorized"))(*[array.copy() for array in arrays])
        found = [home(device, result) for result in run(*here)]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # sums of up to six terms
        for result, argument in updates.items():
            arrays[argument] = np.array(wanted[result])
        for array, values in zip(here, arrays, strict=True):
            np.testing.assert_allclose(home(device, array), values, rtol=1e-5, atol=1e-5)
        arrays = [np.array(home(device, array)) for array in here]


def far(a, b):
    return op.add(a, 1), op.add(op.exp(a), op.scale(2, b))


@pytest.mark.parametrize("device", DEVICES)
def test_one_array_for_two_arguments_is_read_as_it_was(device):
    run = trace(far, Spec((4,)), Spec((4,))).compile(Device(device), {0: 0})
    a = placed(device, np.zeros(4, np.float32))
    _, result = run(a, a)
    assert home(device, result).tolist() == [1, 1, 1, 1]
    assert home(device, a).tolist() == [1, 1, 1, 1]


def test_two_updated_arguments_may_not_share_memory():
    run = trace(swapped, Spec((4,)), Spec((4,))).compile(updates={0: 0, 1: 1})
    a = np.arange(6, dtype=np.float32)
    with pytest.raises(PareoError, match="arguments 0 and 1 are both updated, but share memory"):
        run(a[:4], a[2:])
    assert a.tolist() == [0, 1, 2, 3, 4, 5]
    assert run(a[:4], np.ones(4, np.float32))[0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_result_may_be_the_next_argument_that_is_updated(device):
    """In the program's own memory it could not be: so what is given back is the argument."""
    with Device(device):
        run = trace(lambda a: op.reshape(op.add(a, 1), (4,)), Spec((4,))).compile(updates={0: 0})
        start = w = placed(device, np.zeros(4, np.float32))
        for _ in range(4):
            w = run(w)
        assert home(device, start).tolist() == home(device, w).tolist() == [4, 4, 4, 4]


def test_memory_of_the_executable_is_no_argument_that_is_updated():
    run = trace(far, Spec((4,)), Spec((4,))).compile(updates={0: 0})
    _, result = run(np.zeros(4, np.float32), np.zeros(4, np.float32))
    with pytest.raises(PareoError, match="copy the result first"):
        run(result, np.zeros(4, np.float32))
    assert run(result.copy(), result)[1].tolist() == pytest.approx([np.e + 2] * 4)


@pytest.mark.parametrize(
    ("updates", "sentence"),
    [
        ({0: 1}, r"result 0, float32\[2\], cannot replace argument 1, float32\[3, 2\]"),
        ({1: 0}, r"updates expects positions of 1 results and 2 arguments; got {1: 0}"),
        ({0: -2}, r"updates expects positions of 1 results and 2 arguments; got {0: -2}"),
    ],
)
def test_updates_that_cannot_be_are_refused(updates, sentence):
    program = trace(lambda a, b: op.add(op.sum(b, axis=0), a), Spec((2,)), Spec((3, 2)))
    for call in (program.compile, program.memory):
        with pytest.raises(PareoError, match=sentence):
            call(updates=updates)


def test_an_argument_is_replaced_once():
    with pytest.raises(PareoError, match="argument 1 can be replaced by one result only"):
        trace(swapped, Spec((4,)), Spec((4,))).compile(updates={0: 1, 1: 1})


@pytest.mark.parametrize("device", CPU)
def test_an_argument_that_is_updated_must_be_writable(device):
    run = trace(swapped, Spec((4,)), Spec((4,))).compile(Device(device), {0: 0, 1: 1})
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(DtypeError, match="argument 0 is updated: it must be contiguous and writ"):
        run(fixed, np.ones(4, np.float32))
    assert fixed.tolist() == [0, 0, 0, 0]
