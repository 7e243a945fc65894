"""Programs cut where images depend on each other."""

import pytest

from pareo.backends.compiled.loops.groups.segments import STATISTICS, SUMS, Segments, segments
from pareo.backends.compiled.loops.source import Unsupported
from pareo.nn import Add, BatchNorm, Conv, Dense, Flatten, ReLU, Sequential
from pareo.program import remove_common, remove_dead
from pareo.program.ir import Program
from pareo.training.step import one_image_program

NORM = [Conv(2, 3, padding=1), BatchNorm(), ReLU()]


def program_of(*layers: object) -> tuple[Program, list[int]]:
    network = Sequential([*layers, Flatten(), Dense(3)], (1, 6, 6))
    program, state = one_image_program(network, "float32")
    return remove_dead(remove_common(program)), state


def parts_of(*layers: object) -> Segments:
    return segments(*program_of(*layers))


@pytest.mark.parametrize(
    ("layers", "count"),
    [
        ([Conv(2, 3), ReLU()], 1),
        (NORM, 3),  # before the statistics, until the sums of gradients, after them
        ([*NORM, *NORM], 5),
        ([Add(NORM, NORM)], 3),  # side by side
    ],
)
def test_each_batch_norm_cuts_twice(layers: list[object], count: int) -> None:
    assert parts_of(*layers).count == count


def test_a_node_runs_after_all_that_it_reads() -> None:
    """In the order of nodes; what needs a whole batch is known in the next segment."""
    known: dict[int, int] = {}
    last = 0
    for node in parts_of(*NORM, Add(NORM, [Conv(2, 1)])).nodes:
        assert node.segment >= last
        assert all(known.get(n, 0) <= node.segment for n in node.inputs)
        known |= dict.fromkeys(node.outputs, node.segment + (node.name in (STATISTICS, SUMS)))
        last = node.segment


def test_state_is_a_moving_average() -> None:
    program, state = program_of(*NORM)
    mean, variance = segments(program, state).averages
    assert [program.inputs[n] for n in state] == [mean.parameter, variance.parameter]
    assert (mean.kept, mean.share) == pytest.approx((0.9, 0.1))
    assert variance.share == pytest.approx(0.1 * 36 / 35)  # of one image


def test_other_state_is_refused() -> None:
    program, _ = program_of(*NORM)
    with pytest.raises(Unsupported, match="state that is no moving average"):
        segments(program, [0])
