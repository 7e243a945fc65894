"""Calls on several streams: one that would see a difference waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import Device, Spec, op, trace
from pareo.program.plan import fitting_plan, plan
from pareo.program.streams import Access, assign_streams, dependencies, heights

SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=3
)
CALLS = st.lists(st.builds(Access, SPANS, SPANS), max_size=12)


def meet(some, others):
    return any(max(low, first) < min(high, last) for low, high in some for first, last in others)


def conflict(one, other):
    return (
        meet(one.writes, other.writes)
        or meet(one.writes, other.reads)
        or meet(one.reads, other.writes)
    )


def closure(before):
    """For each call all that are surely done before it."""
    every = []
    for first in before:
        every.append(set(first).union(*(every[one] for one in first)))
    return every


def waited_for(placements):
    """For each call those that it waits for: on other streams, and the one before on its own."""
    last, order = {}, []
    for number, placed in enumerate(placements):
        own = {last[placed.stream]} if placed.stream in last else set()
        order.append({*placed.after} | own)
        last[placed.stream] = number
    return order


@given(CALLS)
def test_a_call_waits_for_all_that_it_conflicts_with_and_for_no_others(calls):
    before = dependencies(calls)
    done = closure(before)
    for later, call in enumerate(calls):
        for earlier in range(later):
            if conflict(calls[earlier], call):
                assert earlier in done[later]
            else:
                assert earlier not in before[later]


@given(CALLS, st.integers(1, 4), st.data())
def test_streams_keep_every_dependency(calls, most, data):
    before = dependencies(calls)
    kinds = [data.draw(st.integers(0, 1)) for _ in calls]
    placements = assign_streams(before, kinds, [most, most + 1])
    last, order = {}, []
    for number, placement in enumerate(placements):
        order.append(
            {*placement.after} | ({last[placement.stream]} if placement.stream in last else set())
        )
        last[placement.stream] = number
    for wanted, kept in zip(closure(before), closure(order), strict=True):
        assert wanted <= kept
    for kind in (0, 1):
        used = {
            placement.stream
            for placement, one in zip(placements, kinds, strict=True)
            if one == kind
        }
        assert len(used) <= most + kind
        others = {
            placement.stream
            for placement, one in zip(placements, kinds, strict=True)
            if one != kind
        }
        assert not used & others


@given(CALLS)
def test_with_enough_streams_no_call_waits_in_vain(calls):
    before = dependencies(calls)
    placements = assign_streams(before, [0] * len(calls), [len(calls)])
    last, order = {}, []
    for number, placement in enumerate(placements):
        order.append(
            {*placement.after} | ({last[placement.stream]} if placement.stream in last else set())
        )
        last[placement.stream] = number
    assert closure(order) == closure(before)


def test_heights_are_the_longest_chains():
    assert heights([set(), {0}, {0}, {1, 2}, {3}, set()]) == [3, 2, 2, 1, 0, 0]


@pytest.mark.parametrize("distance", [0, 1, 2, 9])
def test_memory_is_reused_only_after_the_reuse_distance(distance, monkeypatch):
    def chain(x):
        for _ in range(8):
            x = op.transpose(op.exp(x), (1, 0))  # a copy, never in place
        return x

    backend = Device("sequential").backend
    monkeypatch.setattr(type(backend), "reuse_distance", lambda self, nbytes: distance)
    program = trace(chain, Spec((3, 5)))
    tight = plan(program, backend, tight=True)
    found = plan(program, backend)
    assert tight.bytes <= found.bytes
    if distance == 9:
        assert tight.bytes < found.bytes
    place, given = Device("sequential"), program.specs[program.inputs[0]].nbytes
    assert program.memory(on=place) == given + found.bytes
    assert program.memory(on=place, tight=True) == given + tight.bytes
    monkeypatch.setattr(
        type(backend), "has_spare_memory", lambda self, nbytes: nbytes < found.bytes
    )
    assert fitting_plan(program, backend).bytes == tight.bytes
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
                assert places[second][0] - places[first][1] > distance
    assert reused or distance == 9
