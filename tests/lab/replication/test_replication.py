"""Papers repeated: all published figures are shown, and what was measured stands beside them."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import kernels_result
import numpy as np
import ops_result
import pytest
import race_result
import sweep_result
from replication_result import Pretended, Run, made, measured, parallel, raising

from pareo.errors import DataError, PareoError
from pareo.lab import report
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment import results
from pareo.lab.ops.summary import timed
from pareo.lab.papers.published import NAMES, paper
from pareo.lab.replication import costa_banevicius, finardi_david, lima_zola, melo, trindade_lima
from pareo.lab.replication.engine import Facts, Found, Partly, Phase, Plan, Replication, ran, today
from pareo.lab.replication.plans import FULL, QUICK, plan_of
from pareo.lab.replication.result import Line, PaperResult
from pareo.lab.replication.transfers import moved_by, one_by_one
from pareo.lab.sweep.engine import Sweep
from pareo.nn import networks
from pareo.program import tree
from pareo.training.step import step_program

SETTINGS = {("costa-banevicius", "epochs"), ("costa-banevicius", "batch"), ("lima-zola", "epochs")}
PLANS = [plan for plans in (FULL, QUICK) for plan in plans.values()]


def lines_of(plan: Plan, **found: Any) -> dict[tuple[str, str], Line]:
    """The lines that follow from results, by what they are about and who was measured."""
    return {(line.what, line.by): line for line in plan.lines(Found(found))}


@pytest.mark.smoke
def test_there_is_a_plan_for_every_paper() -> None:
    assert [*FULL] == [*QUICK] == [*NAMES]
    assert plan_of("melo", quick=False) is FULL["melo"]
    with pytest.raises(PareoError, match="a paper is one of"):
        plan_of("knuth", quick=True)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_published_figure_is_shown_even_if_nothing_was_measured(plan: Plan) -> None:
    shown = plan.lines(Found())
    values = {line.published for line in shown if line.published is not None}
    for figure in paper(plan.name).figures:
        if (plan.name, figure.id) not in SETTINGS:
            assert figure.value in values, figure
    for line in shown:
        assert line.here is None
        assert line.status in ("missing", "waiting")
        assert line.note
        assert line.place
    assert all(len(paragraph) > 80 for paragraph in plan.why(Found()))
    assert plan.phases()


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_machine_with_a_gpu_has_the_same_figures(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {(line.section, line.what, line.on, line.published) for line in plan.lines(Found())}
    for module in (finardi_david, lima_zola, melo, trindade_lima):
        monkeypatch.setattr(module, "no_gpu", lambda: "")
    after = plan.lines(Found())
    assert before <= {(line.section, line.what, line.on, line.published) for line in after}
    commands = " ".join(phase.command for phase in plan.phases())
    for names in re.findall(r"--contestants (\S+)", commands):
        assert chosen(names.split(","))
        assert "pareo-cuda" in names


@pytest.mark.parametrize("table", ["add", "mul", "dot", "scalar", "sigmoid", "tanh"])
def test_every_cell_of_melo_is_shown(table: str) -> None:
    found = FULL["melo"].lines(Found())
    published = [line.published for line in found if f", {table.upper()}:" in line.section]
    cells = [cell for row in paper("melo").table(table).rows for cell in row[1:]]
    assert sorted(published) == sorted(cells)


def test_every_cell_of_the_sgemm_table_is_shown() -> None:
    found = FULL["trindade-lima"].lines(Found())
    published = {line.published for line in found if line.section.startswith("Table 1")}
    cells = {cell for row in paper("trindade-lima").table("sgemm").rows for cell in row[1:]}
    assert cells - {0} <= published


def test_table_2_of_the_fourth_paper() -> None:
    every = costa_banevicius.CostaBanevicius().lines(Found({"strategies": parallel()}))
    trained, tested, against = (
        {(line.what, line.by): line for line in every if line.section == section}
        for section in dict.fromkeys(line.section for line in every)
    )
    line = tested["separate threads", "pareo: a thread for each network"]
    assert (line.here, line.published) == (0.5, 98.41)
    # Three networks in 4 s for 6,000 images: 256 epochs of 60,000 take 2,560 times as long.
    line = trained["separate threads", "pareo: a thread for each network"]
    assert line.here == pytest.approx(4 * 2560)
    assert line.ratio == pytest.approx(4 * 2560 / 4697.81)
    assert line.of_limit == 0.5
    failed = trained["separate threads", "torch: a process for each network"]
    assert (failed.status, failed.note, failed.here) == ("failed", "it fell", None)
    keras = trained["separate threads", "tensorflow: a thread for each network"]
    assert keras.here == pytest.approx(8 * 2560)
    by = "tensorflow: a thread for each network, against one after another, all cores each"
    assert against["training", by].status == "missing"
    assert against["training", by].note == "not installed: pip install 'pareo[tensorflow]'"
    by = "pareo: a thread for each network, against one after another, 1 thread each"
    speedup = against["training", by]
    assert speedup.here == pytest.approx(6 / 4)
    assert speedup.published == pytest.approx(5672.29 / 4697.81)


def test_operators_of_the_fifth_paper() -> None:
    result = ops_result.made()
    for cell in result.rows:
        if cell.operator == "add" and cell.nbytes == 2 << 20:
            cell.nbytes = 6 << 20
    lines = melo.Melo().lines(Found({"operators": result}))
    rate, share = (line for line in lines if line.here is not None and line.on == "K40")
    one = next(o for o in timed(result) if o.cell.nbytes == 6 << 20 and o.cell.ours)
    assert rate.section == "Table 2, ADD: MFLOP/s"
    assert rate.here == pytest.approx(one.cell.flops / 1e-2 / 1e6)
    assert (rate.published, share.published) == (10_502.79, 0.22)
    assert share.here == pytest.approx(100 * one.hot.of_peak)
    assert rate.of_limit == pytest.approx(one.hot.of_roofline)


def test_the_successor_of_theano_has_lines_where_it_was_timed() -> None:
    result = ops_result.made()
    for cell in result.rows:
        cell.nbytes = 6 << 20
        cell.contestant = cell.contestant.replace("torch", "pytensor")
    lines = melo.Melo().lines(Found({"operators": result}))
    timed_by = {(line.by, line.what) for line in lines if line.here is not None}
    assert timed_by == {("pareo-compiled", "6 MB"), ("pytensor", "6 MB")}
    (theano,) = (one for one in paper("melo").software if one.name == "Theano")
    assert "; its successor is pytensor" in today(theano)


@pytest.mark.parametrize(("idle", "busy"), [(2.0, False), (0.0, True)])
def test_busy_ceilings_are_told(idle: float, busy: bool) -> None:
    result = ops_result.made()
    result.ceilings["cpu"] = ops_result.machine(idle)
    said = " ".join(melo.Melo().why(Found({"operators": result})))
    assert "reaches 45 GB/s here" in said  # of the triad, which reads two
    assert ("`pareo ceilings --again`" in said) == busy


def test_an_operator_that_was_refused_says_so() -> None:
    result = ops_result.made()
    for cell in result.rows:
        cell.nbytes = 6 << 20
        cell.end("refused", "it is wrong")
    lines = melo.Melo().lines(Found({"operators": result}))
    found = {line.note for line in lines if line.section.startswith("Table 2, ADD")}
    assert "it is wrong" in found


@pytest.mark.parametrize(("images", "times"), [(60_000, 1), (6_000, 10)])
def test_forty_epochs_of_the_first_paper(images: int, times: int) -> None:
    data = race_result.made()
    data["images"] = images
    for row in data["rows"]:
        if row["contestant"] == "torch":
            row["curve"] = race_result.curve(2.0, 2)
    race = race_result.race(data)
    found = lines_of(lima_zola.LimaZola(), race=race)
    rows = {row.contestant: row for row in race.rows}
    line = found["40 epochs on the CPU", "torch"]
    last = rows["torch"].curve[-1]
    assert line.here == pytest.approx(40 * times * last.seconds / last.epoch)
    assert line.note == f"from {last.epoch} epochs of {images:,} images"
    assert found["40 epochs on the CPU", "tensorflow"].status == "missing"
    assert "tensorflow" in found["40 epochs on the CPU", "tensorflow"].note
    ratio = found["framework / hand-written, both on the CPU", "torch / pareo-compiled"]
    compiled = rows["pareo-compiled"]
    each = compiled.curve[-1].seconds / compiled.curve[-1].epoch if compiled.curve else 0.0
    assert ratio.here == pytest.approx(last.seconds / last.epoch / (each or compiled.median))


def test_ratios_of_the_second_paper() -> None:
    race = race_result.race()
    found = lines_of(finardi_david.FinardiDavid(), dense=race, profile=Facts({"fit": 96.0}),
                     transfers=Facts({"calls": 25.0}))  # fmt: skip
    rows = {row.contestant: row for row in race.rows}
    line = found["dense training, sequential / vectorized", "pareo-sequential / pareo-vectorized"]
    expected = rows["pareo-sequential"].median / rows["pareo-vectorized"].median
    assert line.here == pytest.approx(expected)
    assert line.ratio == pytest.approx(expected / 77)
    assert found["share of `fit` in the profile", "pareo-vectorized, one epoch"].here == 96.0
    assert found["operator calls of a step", ""].here == 25.0


def test_batches_and_memory_of_the_third_paper() -> None:
    plan = replace(trindade_lima.TrindadeLima(), networks=("alexnet",), kernels=8)
    kernels = results.checked(kernels_result.made(), "made-up kernels")
    sweep = sweep_result.sweep()
    memory = Facts({"alexnet": 2000.0})
    lines = plan.lines(Found({"alexnet": sweep, "kernels": kernels, "memory": memory}))
    found = {(line.what, line.by): line for line in lines}
    assert found["alexnet, batch 4", "torch"].here == pytest.approx(110.0)
    assert found["alexnet", "Caffe 1.0.0"].note == "Caffe cannot be installed any more"
    best = found["alexnet: pareo / the fastest peer", "pareo-compiled / torch, batch 4"]
    assert best.here == pytest.approx(0.0615 / 0.11)
    assert best.published == 0.3
    large = found["largest batch that fits on the GPU, TensorFlow", "pareo, alexnet, 224 x 224"]
    assert large.ratio == pytest.approx(2000 / 256)
    searched = found["largest batch, searched", "torch, alexnet"]
    assert (searched.here, searched.note) == (28, "in 2 GB of this machine: 28")
    calls = [line for line in lines if line.section.startswith(trindade_lima.CALLS) and line.here]
    assert {line.published for line in calls} == {239_799, 183, 219}


def test_a_part_that_fails_is_a_part_and_the_others_go_on() -> None:
    plan = Pretended(a=raising(PareoError("it fell")), b=measured(310.5))
    result = Replication(plan, quick=True).run()
    assert [part.status for part in result.parts] == ["failed", "ok"]
    assert result.parts[0].note == "it fell"
    first, second = result.lines
    assert (first.status, first.note, first.ratio) == ("failed", "it fell", None)
    assert second.ratio == 0.5
    assert not result.interrupted


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Partly(race_result.race())])
def test_an_interrupted_run_keeps_what_it_has(error: BaseException) -> None:
    said: list[str] = []
    plan = Pretended(a=measured(1.0), b=raising(error), c=measured(2.0))
    result = Replication(plan, True, lambda now: said.append(now.phase)).run()
    assert result.interrupted
    assert said == ["1 of 3: part a", "2 of 3: part b"]
    assert [line.here for line in result.lines] == [1.0, None, None]
    assert (result.parts[1].result is not None) == isinstance(error, Partly)
    assert result.parts[2].note == "not measured: it was interrupted"


@pytest.mark.parametrize("last", [measured(2.0), raising(KeyboardInterrupt())])
def test_a_phase_can_be_continued_until_all_are_done(last: Run) -> None:
    """A sweep of hours is not lost because the one after it was interrupted."""
    finished: list[str] = []

    class Continued(Pretended):
        def phases(self) -> list[Phase]:
            return [
                replace(phase, finish=partial(finished.append, phase.name))
                for phase in super().phases()
            ]

    result = Replication(Continued(a=measured(1.0), b=last), True).run()
    assert finished == ([] if result.interrupted else ["a", "b"])


def test_a_timed_sweep_leaves_its_journal_until_it_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    class Swept:
        def __init__(self, settings: object) -> None:
            self.close = partial(calls.append, "close")
            self.finish = partial(calls.append, "finish")

        def run(self, watch: object) -> str:
            return "its result"

    monkeypatch.setattr(trindade_lima, "Sweep", Swept)
    first, *_ = QUICK["trindade-lima"].phases()
    assert first.run(lambda doing: None) == "its result"
    assert calls == ["close"]
    first.finish()
    assert calls == ["close", "finish"]


def resumed(before: PaperResult, **runs: Run) -> PaperResult:
    """What a run finds that goes on from an earlier result."""
    earlier = results.checked(results.plain(before), "a file")
    assert isinstance(earlier, PaperResult)
    return Replication(Pretended(**runs), True, earlier=earlier).run()


NEVER = raising(AssertionError("it was measured again"))


def test_only_what_is_missing_is_measured() -> None:
    fell = raising(PareoError("it fell"))
    ended = raising(Partly(race_result.race()))
    first = Replication(Pretended(a=measured(1.0), b=fell, c=ended, d=NEVER), True).run()
    after = resumed(first, a=NEVER, b=measured(2.0), c=measured(3.0), d=measured(4.0))
    assert [line.here for line in after.lines] == [1.0, 2.0, 3.0, 4.0]
    assert after.parts[0] == first.parts[0]
    assert [part.note for part in after.parts] == [""] * 4
    assert not after.interrupted


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Partly(race_result.race())])
def test_a_second_interruption_loses_nothing(error: BaseException) -> None:
    part = raising(Partly(race_result.race()))
    first = Replication(Pretended(a=measured(1.0), b=part), True).run()
    first.parts += Replication(Pretended(c=measured(3.0)), True).run().parts
    after = resumed(first, a=NEVER, b=raising(error), c=NEVER, d=NEVER)
    assert after.parts[:3] == first.parts
    assert [line.here for line in after.lines] == [1.0, None, 3.0, None]
    assert after.parts[3].status == "waiting"
    assert after.interrupted


def test_a_part_of_another_command_is_measured_again() -> None:
    first = Replication(Pretended(a=measured(1.0)), True).run()
    first.parts[0].command = "pareo race --batch 7"
    assert [line.here for line in resumed(first, a=measured(2.0)).lines] == [2.0]


def test_a_sweep_of_other_settings_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []

    class Swept:
        def __init__(self, settings: object) -> None:
            self.close = self.finish = lambda: None
            self.take_over = taken.append
            self.run = lambda watch: "its result"

    monkeypatch.setattr(trindade_lima, "Sweep", Swept)
    earlier = sweep_result.sweep()
    for settings in (earlier.settings, replace(earlier.settings, turn=7.0)):
        timed = trindade_lima.Timed(settings)
        timed.resume(earlier)
        timed(lambda doing: None)
    assert taken == [earlier]


def test_a_sweep_that_went_on_has_the_time_of_both() -> None:
    """Its phase is given the earlier result before it runs."""
    given: list[object] = []

    class Continued(Pretended):
        def phases(self) -> list[Phase]:
            return [replace(phase, resume=given.append) for phase in super().phases()]

    first = Replication(Continued(a=raising(Partly(race_result.race()))), True).run()
    first.parts[0].seconds = 100.0
    after = Replication(Continued(a=measured(1.0)), True, earlier=first).run()
    assert given == [first.parts[0].whole()]
    assert 100 < after.parts[0].seconds < 110
    again = Replication(Continued(a=raising(Partly(race_result.race()))), True, earlier=first)
    assert again.run().parts[0].note == "interrupted"


def test_the_journal_of_a_sweep_taken_from_a_file_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "r.sqlite"))
    plan = replace(QUICK["trindade-lima"], networks=("alexnet",), on_cpu=("pareo-compiled",))
    (first, *_) = plan.phases()
    Sweep(first.run.settings).close()
    assert len(list((tmp_path / "sweeps").iterdir())) == 1
    first.finish()
    assert list((tmp_path / "sweeps").iterdir()) == []


def test_a_result_is_read_again_as_it_was() -> None:
    data = made()
    result = results.checked(data, "a file")
    assert isinstance(result, PaperResult)
    assert results.plain(result) == data
    assert [part.whole() is not None for part in result.parts] == [True, True, True, True, False]


@pytest.mark.parametrize("kind", ["paper", "tune", None])
def test_a_part_of_another_kind_is_refused(kind: str | None) -> None:
    data = made()
    data["parts"][0]["result"]["kind"] = kind
    with pytest.raises(DataError, match="race, ops, sweep, kernels, parallel-papers"):
        results.checked(data, "a file")


def test_the_report_has_every_figure_and_its_place() -> None:
    data = made()
    data["lines"][0]["what"] = "<script>alert(1)</script>"
    page = report.html(results.checked(data, "a file"))
    assert "<script>alert" not in page
    for words in ("621 s", "Section 2", "Why they differ", "Table 2", "K40", "GTX980", "0.5, 0.25"):
        assert words in page
    for name in ("race-epochs", "race-speedup", "sweep-times", "strategies-times", "size-1"):
        assert f'<div id="{name}">' in page


def test_a_step_operator_by_operator_is_the_step() -> None:
    network = networks.mlp([784, 4, 10], activation="sigmoid")
    program = step_program(network, 2)
    random = np.random.default_rng(0)
    arguments = [*network.initialise(0).values(), random.random((2, 1, 28, 28), dtype=np.float32),
                 np.array([1, 2]), np.asarray(0.01, np.float32)]  # fmt: skip
    expected = tree.leaves(program.compile()(*(array.copy() for array in arguments)))
    for one, other in zip(one_by_one(program, arguments, moving=True), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    calls, moved = moved_by(program)
    weights = sum(spec.nbytes for spec in (program.specs[n] for n in program.inputs[:4]))
    assert calls == len(program.instructions)
    assert moved > weights  # each is read by the forward pass, and written by the update


@pytest.mark.slow
def test_the_first_paper_in_small() -> None:
    """A real race: one contestant, one epoch of a few images."""
    plan = lima_zola.LimaZola(
        epochs=1, batch=32, data="synthetic:1x28x28:10:240", on_cpu=("pareo-vectorized",)
    )
    result = Replication(plan, quick=True).run()
    line = result.lines[0]
    assert (line.by, line.status) == ("pareo-vectorized", "ok")
    assert line.here is not None
    assert line.here > 0
    assert line.ratio == line.here / 621
    assert "from 1 epoch of 200 images" in line.note
    assert results.checked(results.plain(result), "a file") == result


class Interrupted:
    """An engine that Ctrl-C ends: by an exception, or by a flag as some engines have it."""

    def __init__(self, raises: bool) -> None:
        self.raises, self.interrupted = raises, not raises

    def run(self) -> Any:
        if self.raises:
            raise KeyboardInterrupt
        return self.result()

    def result(self) -> Any:
        return race_result.race()


@pytest.mark.parametrize("raises", [True, False])
def test_an_engine_that_is_interrupted_gives_what_it_has(raises: bool) -> None:
    with pytest.raises(Partly) as ended:
        ran(Interrupted(raises))
    assert ended.value.found == race_result.race()


def test_times_are_known_before_an_epoch_ends() -> None:
    """A race that its time ended has no curve: parts of an epoch say how long one takes."""
    data = race_result.made()
    for row in data["rows"]:
        row["curve"] = []
    race = race_result.race(data)
    line = lines_of(lima_zola.LimaZola(), race=race)["40 epochs on the CPU", "torch"]
    torch = next(row for row in race.rows if row.contestant == "torch")
    assert line.here == pytest.approx(40 * torch.median)
    assert line.note == "from parts of an epoch of 60,000 images"
