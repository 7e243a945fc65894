"""Windows as runs of columns and tables of rows, against plain loops."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pareo.backends.compiled.loops.groups.kernels.window_runs import (
    Taps,
    backward_taps,
    forward_taps,
    row_table,
    runs,
)


@pytest.mark.smoke
@given(
    st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 4), st.integers(0, 4),
    st.integers(1, 3),
)  # fmt: skip
def test_runs_and_rows_cover_all_taps(
    pixels: int, window: int, stride: int, before: int, after: int, dilation: int
) -> None:
    room = pixels + before + after - (dilation * (window - 1) + 1)
    assume(room >= 0)
    places = room // stride + 1
    sizes = places, pixels, window, stride, before, dilation
    expected = np.zeros((places, window, pixels), int)
    for place in range(places):
        for tap in range(window):
            pixel = place * stride - before + tap * dilation
            if 0 <= pixel < pixels:
                expected[place, tap, pixel] += 1
    for taps, wanted in (
        (forward_taps(*sizes), expected),
        (backward_taps(*sizes), expected.transpose(2, 1, 0)),
    ):
        assert (_from_runs(taps, wanted.shape) == wanted).all()
        assert (_from_rows(taps, wanted.shape) == wanted).all()


def _from_runs(columns: list[Taps], shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape, int)
    seen = []
    for run in runs(columns):
        for n in range(run.count):
            place = run.start + n * run.step
            seen.append(place)
            for tap, offset in zip(run.taps, run.offsets, strict=True):
                found[place, tap, run.first + n * run.move + offset] += 1
    assert sorted(seen) == list(range(shape[0]))  # every column has its result written once
    return found


def _from_rows(rows: list[Taps], shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape, int)
    entries, tap_step, row_step = row_table(rows)
    for place, (count, tap, source) in enumerate(entries):
        for n in range(count):
            found[place, tap + n * tap_step, source + n * row_step] += 1
    return found
