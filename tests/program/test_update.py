"""Updates that replace an argument: moved early, but never before the argument's last reader."""

import pareo.operators as op
from pareo import Device, Spec, trace
from pareo.program.passes import prepared
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
