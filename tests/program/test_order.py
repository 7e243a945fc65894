"""Steps side by side: whoever would see a difference waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import Device, Spec, op, trace
from pareo.program.order import Touches, heights, lines, waits
from pareo.program.plan import fitting, plan

SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=3
)
STEPS = st.lists(st.builds(Touches, SPANS, SPANS), max_size=12)


def meet(some, others):
    return any(max(low, first) < min(high, last) for low, high in some for first, last in others)


def conflict(one, other):
    return (
        meet(one.writes, other.writes)
        or meet(one.writes, other.reads)
        or meet(one.reads, other.writes)
    )


def closure(before):
    """For each step all that are surely done before it."""
    every = []
    for first in before:
        every.append(set(first).union(*(every[one] for one in first)))
    return every


@given(STEPS)
def test_a_step_waits_for_all_whom_it_would_disturb_and_for_nobody_else(steps):
    before = waits(steps)
    done = closure(before)
    for later, step in enumerate(steps):
        for earlier in range(later):
            if conflict(steps[earlier], step):
                assert earlier in done[later]
            else:
                assert earlier not in before[later]


@given(STEPS, st.integers(1, 4), st.data())
def test_lines_keep_every_wait(steps, most, data):
    before = waits(steps)
    kinds = [data.draw(st.integers(0, 1)) for _ in steps]
    turns = lines(before, kinds, [most, most + 1])
    last, order = {}, []
    for number, turn in enumerate(turns):
        order.append({*turn.after} | ({last[turn.line]} if turn.line in last else set()))
        last[turn.line] = number
    for wanted, kept in zip(closure(before), closure(order), strict=True):
        assert wanted <= kept
    for kind in (0, 1):
        used = {turn.line for turn, one in zip(turns, kinds, strict=True) if one == kind}
        assert len(used) <= most + kind
        others = {turn.line for turn, one in zip(turns, kinds, strict=True) if one != kind}
        assert not used & others


@given(STEPS)
def test_with_lines_enough_nobody_waits_in_vain(steps):
    before = waits(steps)
    turns = lines(before, [0] * len(steps), [len(steps)])
    last, order = {}, []
    for number, turn in enumerate(turns):
        order.append({*turn.after} | ({last[turn.line]} if turn.line in last else set()))
        last[turn.line] = number
    assert closure(order) == closure(before)


def test_heights_are_the_longest_way_to_the_end():
    assert heights([set(), {0}, {0}, {1, 2}, {3}, set()]) == [3, 2, 2, 1, 0, 0]


@pytest.mark.parametrize("apart", [0, 1, 2, 9])
def test_memory_serves_again_only_after_so_many_instructions(apart, monkeypatch):
    def chain(x):
        for _ in range(8):
            x = op.transpose(op.exp(x), (1, 0))  # a copy, never in place
        return x

    backend = Device("sequential").backend
    monkeypatch.setattr(type(backend), "apart", lambda self, nbytes: apart)
    program = trace(chain, Spec((3, 5)))
    tight = plan(program, backend, tight=True)
    found = plan(program, backend)
    assert tight.bytes <= found.bytes
    if apart == 9:
        assert tight.bytes < found.bytes
    place, given = Device("sequential"), program.specs[program.inputs[0]].nbytes
    assert program.memory(on=place) == given + found.bytes
    assert program.memory(on=place, tight=True) == given + tight.bytes
    monkeypatch.setattr(type(backend), "spares", lambda self, nbytes: nbytes < found.bytes)
    assert fitting(program, backend).bytes == tight.bytes
    users = {}
    for position, instruction in enumerate(program.instructions):
        for number in (*instruction.inputs, *instruction.outputs):
            while number in found.views:
                number = found.views[number]
            if number in found.offsets:
                users.setdefault(number, []).append(position)
    places = sorted((min(p), max(p), found.offsets[n]) for n, p in users.items())
    reused = 0
    for first in range(len(places)):
        for second in range(first + 1, len(places)):
            if places[first][2] == places[second][2]:
                reused += 1
                assert places[second][0] - places[first][1] > apart
    assert reused or apart == 9
