"""The simulation of histories: it counts what is found, and what is not there."""

from benchmarks.history import REAL, judged, normal, real


def test_large_steps_are_found_and_noise_is_none() -> None:
    assert judged(normal(0.01), 0.1, years=3) == (3, 0)
    assert judged(normal(0.01), 0.0, years=3) == (0, 0)
    assert judged(normal(0.2), 0.02, years=3)[0] == 0


def test_real_samples_are_mixed_in() -> None:
    assert judged(real(REAL, ratio=True), 0.1, years=1)[0] == 1
