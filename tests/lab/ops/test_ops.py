"""`pareo ops`: what is measured, that it is right, and the limits that it is compared with."""

import numpy as np
import pytest
from ops_result import MB, machine, made, plain
from typer.testing import CliRunner

from pareo import op
from pareo.cli import app
from pareo.errors import DataError, PareoError
from pareo.lab.experiment import records, results
from pareo.lab.experiment.worker import Worker
from pareo.lab.ops import cases, sizes
from pareo.lab.ops.counters import Rung, ncu
from pareo.lab.ops.engine import Benchmark
from pareo.lab.ops.roofline import limits
from pareo.lab.ops.runner import Reference, Runner, difference, shown
from pareo.lab.ops.summary import offenders, raised, timed
from pareo.lab.ops.work import BACKWARD, FORWARD, POINTWISE, Work
from pareo.lab.report import ops as pages

SMALL = 1 << 16


def test_every_operator_of_the_table_can_be_measured():
    assert set(op.registry) - set(cases.names()) == {"reshape"}
    with pytest.raises(PareoError, match="reshape moves nothing"):
        cases.checked(["reshape"])
    with pytest.raises(PareoError, match="no operator is called 'ad'; there are mul, scalar, add"):
        cases.checked(["add", "ad"])


@pytest.mark.parametrize("name", cases.names())
def test_a_size_is_the_bytes_of_all_operands_and_the_result(name):
    case = cases.case_of(name, 8 * MB)
    out = Work(name, FORWARD, 8 * MB).results()
    nbytes = sum(a.nbytes for a in case.arrays()) + sum(spec.nbytes for spec in out)
    assert 0.75 * 8 * MB <= nbytes <= 1.25 * 8 * MB


def test_what_the_papers_six_cost():
    floats = 1024 * 1024
    found = {name: Work(name, FORWARD, 6 * 4 * floats) for name in cases.PAPER}
    for name in ("add", "mul"):
        assert (found[name].flops, found[name].read) == (2 * floats, 2 * 8 * floats)
        assert found[name].written == 8 * floats
    assert (found["scalar"].flops, found["scalar"].written) == (3 * floats, 12 * floats)
    side = int((2 * floats) ** 0.5)
    assert found["dot"].flops == 2 * side**3
    assert found["dot"].read == 2 * found["dot"].written == 8 * side**2


def test_backward_counts_what_it_uses_and_no_more():
    work = Work("sigmoid", BACKWARD, 2 * MB)
    assert work.read == 2 * work.written == 2 * MB, "the gradient and the result, not the operand"
    assert Work("add", BACKWARD, MB).missing.startswith("its gradient is the incoming one")
    assert Work("argmax", BACKWARD, MB).missing == "argmax has no gradient"
    assert (
        Work("tanh_gradient", BACKWARD, MB).missing == "it is the backward pass of another operator"
    )
    assert not Work("dot", BACKWARD, MB).missing


def agreement(runner, reference, names):
    """Everything that a contestant computes, forward and backward, and what differs."""
    wrong, computed = [], []
    for direction in (FORWARD, BACKWARD):
        for name in names:
            work = Work(name, direction, SMALL)
            if work.missing:
                continue
            found = runner("prepare", work, 2)
            if isinstance(found, str):
                continue
            _, reason = difference(found, reference(work))
            computed.append((name, direction))
            wrong += [(name, direction, reason)] if reason else []
    return wrong, computed


@pytest.mark.parametrize("contestant", ["pareo-vectorized", "numpy"])
def test_here_all_agree_with_float64(contestant):
    wrong, computed = agreement(Runner(contestant, 1), Reference(1), cases.names())
    assert not wrong
    assert len(computed) > (20 if contestant == "numpy" else 60)


@pytest.mark.parametrize("peer", ["torch", "jax"])
def test_peers_agree_with_float64(peer):
    pytest.importorskip(peer)
    # In a process of its own, as in a benchmark: it changes settings of the whole process.
    chosen = cases.names() if peer == "torch" else [*cases.PAPER, "conv", "max_pool", "sum"]
    with Worker(Runner, peer, 1, threads=1) as worker:
        wrong, computed = agreement(worker.ask, Reference(1), chosen)
    assert not wrong
    assert len(computed) > (50 if peer == "torch" else 12)


@pytest.mark.parametrize("name", POINTWISE)
def test_the_reference_needs_only_the_elements_that_are_compared(name):
    work, reference = Work(name, FORWARD, 1 << 18), Reference(1)
    assert work.pointwise
    (few,) = reference(work)
    (whole,) = reference._exact.call(work, work.inputs("float64"))()
    np.testing.assert_allclose(few, shown(whole), rtol=1e-14)
    assert not Work("dot", FORWARD, 1 << 18).pointwise


def test_what_differs_is_said():
    assert difference([np.ones(4)], [np.ones(4)]) == (0.0, "")
    assert difference([np.ones(4)], [np.ones(4), np.ones(4)])[1] == "1 results, not 2"
    assert difference([np.ones(4)], [np.ones(3)])[1] == "result 0 has 4 elements, not 3"
    assert difference([np.ones(4) * 1.001], [np.ones(4)])[1] == "result 0 differs by 0.001"
    assert difference([np.full(4, np.nan)], [np.ones(4)])[1] == "result 0 differs by nan"


def test_hot_operands_are_limited_by_the_cache_that_holds_them_and_cold_ones_by_memory():
    found = limits(flops=60, read=2 * MB, written=MB, ceilings=machine())
    assert found.arithmetic == 1e-9
    assert found.hot == pytest.approx(3 * MB / 81e9), "a triad's rate, in the cache"
    assert found.cold == pytest.approx(2 * MB / 40e9), "its reads come from memory"
    assert found.why == "bandwidth"
    assert limits(6 * 10**9, MB, MB, machine()).why == "arithmetic"
    large = limits(60, 20 * MB, 20 * MB, machine())
    assert large.hot == large.floor(cold=False) == pytest.approx(40 * MB / 50e9)


def test_a_winograd_convolution_cannot_pass_its_roofline():
    work = Work("conv", FORWARD, 4 * MB)
    assert work.flops == 4 * work.least_flops
    assert Work("dot", FORWARD, MB).flops == Work("dot", FORWARD, MB).least_flops


@pytest.mark.parametrize(
    ("reached", "shown"), [(0.5, 0.5), (1.08, 1), (1.5, 1.5)], ids=["below", "drift", "an error"]
)
def test_who_passes_a_ceiling_by_a_little_raises_it(reached, shown):
    result = made()
    for cell in result.rows:
        if cell.hot:
            limit = limits(cell.least_flops, cell.read, cell.written, machine())
            cell.hot = [limit.floor(cold=False) / reached / 0.9] * 5
            cell.cold = [limit.floor(cold=True) / reached] * 5
    shares = [f.of_roofline for cell in timed(result) for f in (cell.hot, cell.cold)]
    assert max(shares) == pytest.approx(shown)
    assert len(raised(result)) == (reached == 1.08)
    assert not raised(result) or "by 8% at most" in raised(result)[0]


@pytest.mark.smoke
def test_a_session_is_timed_gated_and_checked():
    seen = []
    works = [Work("add", FORWARD, MB), Work("sigmoid", BACKWARD, MB), Work("add", BACKWARD, MB)]
    result = Benchmark(
        works, ["pareo-vectorized", "numpy", "cupy"], {"cpu": machine()}, 2, 0.01,
        lambda benchmark: seen.append(benchmark.doing),
    ).run()  # fmt: skip
    assert results.parsed(results.to_json(result), "it") == result
    add, ours, *_ = (cell for cell in result.rows if cell.contestant == "pareo-vectorized")
    assert min(len(add.hot), len(add.cold), len(ours.hot)) >= 2
    assert 0 < add.error + ours.error < 1e-5
    notes = {(*cell.kind, cell.contestant): cell.note for cell in result.rows}
    assert notes["sigmoid", BACKWARD, "numpy"] == "numpy does not differentiate"
    assert "nothing is computed" in notes["add", BACKWARD, "pareo-vectorized"]
    assert notes["add", FORWARD, "cupy"]
    assert seen[0] == "add forward, 1 MB: contestants are getting ready"


def test_what_does_not_fit_into_memory_is_a_row():
    benchmark = Benchmark([Work("add", FORWARD, 1 << 46)], ["numpy"], {"cpu": machine()}, 2)
    (cell,) = benchmark.run().rows
    assert cell.status == "missing"
    assert cell.note.startswith("all contestants together need ")


@pytest.mark.slow
def test_a_contestant_that_fails_is_a_row_and_the_next_work_goes_on():
    works = [Work("add", FORWARD, SMALL)] * 2
    names = ["numpy-nonsense", "torch-nonsense"]
    cells = Benchmark(works, names, {"cpu": machine()}, 1, 0.01).run().rows
    assert [cell.status for cell in cells] == ["ok", "failed"] * 2
    assert "nonsense" in cells[1].note


def test_offenders_are_ours_at_their_largest_size_the_worst_first():
    found = offenders(timed(made()))
    assert [one.cell.operator for one in found] == ["transpose", "add", "dot"]
    assert found[1].cell.nbytes == 64 * MB
    assert all(one.cell.contestant == "pareo-compiled" for one in found)


def test_a_result_is_kept_and_comes_back(monkeypatch, tmp_path):
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    result = made()
    assert records.find(str(records.save(result))) == result


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda r: r.update(schema=7), "expected .*schema.*; got 7"),
        (lambda r: r["rows"][0].update(hot=[-1.0]), r"a number > 0.0 in rows\[0\].hot\[0\]"),
        (lambda r: r["rows"][0].update(status="fine"), r"in rows\[0\].status; got 'fine'"),
        (lambda r: r["rows"][0].update(direction="up"), r"in rows\[0\].direction; got 'up'"),
        (lambda r: r["rows"][0].update(place="cuda"), r"ceilings of this place in rows\[0\].place"),
        (lambda r: r["rows"][0].update(error=None), r"expected an error.* in rows\[0\]"),
        (lambda r: r["rows"][0].update(read=0, written=0), r"bytes read or .* in rows\[0\]"),
        (lambda r: r["rungs"].update(cpu={"name": "timing"}), r"expected why in rungs"),
        (lambda r: r["ceilings"]["cpu"].pop("levels"), "expected levels in ceilings"),
        (lambda r: r["ceilings"].update(tpu={}), "one of cpu, cuda in ceilings; got 'tpu'"),
        (
            lambda r: r["ceilings"]["cpu"]["samples"].clear(),
            "expected other ceilings of cpu: cpu: no measurement of a product of float32",
        ),
    ],
)
def test_a_damaged_result_is_one_sentence(damage, said):
    result = plain()
    damage(result)
    with pytest.raises(DataError, match=said):
        results.checked(result, "it")


def test_sizes_double_from_the_first_to_the_last():
    assert sizes.sizes("1KB..3KB") == [1024, 2048, 3072]
    for wrong in ("2", "2MB..1MB", "..", "-1MB", "1e99GB", "nanMB", ""):
        with pytest.raises(PareoError, match="--sizes expects"):
            sizes.sizes(wrong)


def test_history_lists_it_and_report_draws_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    records.save(made())
    done = CliRunner().invoke(app, ["history"], env={"COLUMNS": "160"})
    assert "operators" in done.stdout
    assert "8 cells timed" in done.stdout
    page = tmp_path / "it.html"
    assert CliRunner().invoke(app, ["report", "last", "--html", str(page)]).exit_code == 0
    text = page.read_text()
    for words in ("The paper&#x27;s table 2", "GTX980", "Roofline", "Furthest from the limit"):
        assert words in text or words.replace("&#x27;", "'") in text
    assert "not &lt;here&gt;" in text


def test_counters_have_a_table_and_dot_its_stalls():
    result = made()
    kernel = {"kernel": "gemm", "nanoseconds": 5.0, "multiply-adds": 10.0, "wait": 12.5}
    cell = next(cell for cell in result.rows if cell.operator == "dot")
    cell.counters = ncu.summed([kernel])
    result.rungs = {"cpu": Rung("timing", "no perf_event: not here")}
    text = pages.html(results.parsed(results.to_json(result), "it"))
    assert "Why warps waited" in text
    assert "12.5" in text
    assert "the paper&#x27;s K40, 6 MB" in text
