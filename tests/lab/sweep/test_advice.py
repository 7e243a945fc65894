"""The answer of a sweep: which batch size, and why, from what was measured."""

import pytest
from sweep_result import BANDWIDTH, FLOPS, PARAMETERS, PEAK, made, sweep

from pareo.lab.sweep.advice import ahead, answer, known_limits

pytestmark = pytest.mark.smoke


def test_the_smallest_batch_that_is_as_fast_as_any_is_best():
    best = answer(sweep())
    assert (best.contestant, best.batch, best.why) == ("pareo-compiled", 4, "arithmetic")
    share = FLOPS * 4 / PEAK / (0.0615 * 4)
    assert best.shares["arithmetic"] == pytest.approx(share)
    assert f"arithmetic limits it: its FLOPs alone take {share:.0%}" in best.sentence
    assert "61.5 ms per image" in best.sentence
    assert "2 times as fast as at batch 1" in best.sentence
    assert best.sentence.endswith("larger batches gain less than 2%.")


def test_more_flops_than_time_says_why():
    best = answer(sweep(made({"pareo-compiled": {1: FLOPS / PEAK / 1.25}})))
    assert "its FLOPs alone take 125% of a step" in best.sentence
    assert "Winograd's algorithm needs fewer" in best.sentence


def test_traffic_of_the_parameters_is_bandwidth_not_overhead():
    moving = 4 * PARAMETERS / BANDWIDTH
    best = answer(sweep(made({"torch": {1: moving + 0.002, 2: moving / 2 + 0.002}}, flops=1e8)))
    assert best.why == "bandwidth"
    assert best.shares["overhead"] < 0.05


def test_a_cost_that_never_grows_is_overhead():
    fixed = 2.0
    best = answer(sweep(made({"torch": {n: fixed / n + 0.07 for n in (1, 2, 4)}})))
    assert (best.batch, best.why) == (4, "overhead")
    assert "larger ones were not tried, and the last step up still gained" in best.sentence


def test_memory_ends_what_was_still_getting_faster():
    times = {"torch": {1: 0.15, 2: 0.10, 4: 0.08}}
    best = answer(sweep(made(times, short=(("torch", 8),))))
    assert (best.batch, best.why) == (4, "memory")
    assert "batch 8 does not fit, though the last step up still gained 20%" in best.sentence


def test_a_limit_that_no_longer_matters_is_not_the_reason():
    times = {"torch": {1: 0.15, 2: 0.0801, 4: 0.08}}
    assert answer(sweep(made(times, short=(("torch", 8),)))).why == "arithmetic"


@pytest.mark.parametrize(
    ("status", "said"),
    [("failed", "larger ones failed"), ("waiting", "larger ones were not tried"),
     ("memory", "larger ones do not fit")],
)  # fmt: skip
def test_nothing_is_said_of_batches_that_nobody_timed(status, said):
    result = sweep(made({"torch": {1: 0.0801, 2: 0.08, 4: 0.08}}, short=(("torch", 8),)))
    for cell in result.cells:
        if cell.batch > 1:
            cell.end(status, "")
    sentence = answer(result).sentence
    assert said in sentence
    assert "gain less" not in sentence


def test_cells_that_did_not_stand_together_are_not_paired():
    result = sweep(made({"pareo-compiled": {1: 0.10}, "torch": {1: 0.101}}))
    for cell in result.cells:
        cell.rounds = list(range(1, 21))
        samples = [0.2 if n % 2 else 0.1 for n in range(20)]
        cell.seconds_per_batch = samples if cell.ours else [1.05 * s for s in samples]
        cell.began = "now"
    assert "faster at batch 1" in ahead(result)
    result.cells[0].began = "later"
    assert "cannot tell at batch 1" in ahead(result)


def test_without_any_ceiling_the_reason_is_unknown():
    result = sweep()
    result.ceilings = []
    assert answer(result).why == "unknown"


def test_without_ceilings_the_reason_is_unknown():
    result = sweep()
    result.ceilings[0].peak_flops = None
    best = answer(result)
    assert best.why == "unknown"
    assert best.batch == 4


def test_nobody_timed_is_no_answer():
    result = sweep(made(short=(("torch", 1),)))
    result.cells = result.cells[-1:]
    assert answer(result) is None


def test_where_pareo_is_ahead_and_where_not_is_said():
    times = {
        "pareo-compiled": {1: 0.1, 2: 0.1, 4: 0.1, 8: 0.1},
        "torch": {1: 0.2, 2: 0.05, 4: 0.2},
        "jax": {1: 0.3, 2: 0.3, 4: 0.3},
    }
    result = sweep(made(times))
    assert ahead(result) == (
        "pareo against its fastest peer: faster at batch 1, 4; slower at batch 2."
    )
    for cell in result.cells:
        cell.seconds_per_batch, cell.rounds = cell.seconds_per_batch[:3], [1, 2, 3]
    assert ahead(result).endswith("peer: cannot tell at batch 1, 2, 4.")
    assert ahead(sweep(made({"torch": {1: 0.2}}))) == ""


def test_limits_that_read_the_same_are_one():
    result = made()
    (limit,) = result["limits"]
    sizes = (3_998_351_360, 3_996_254_208, 2 * 10**9)
    result["limits"] = [{**limit, "limit": size} for size in sizes]
    assert known_limits(sweep(result)) == {"2": 2 * 10**9, "4": 3_998_351_360}
    assert known_limits(sweep({**result, "limits": []})) == {"2": 2 * 10**9}  # as it is asked for
