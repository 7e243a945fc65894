"""The gate at the end: right in two steps is not enough, and rounding alone refuses nobody."""

from typing import Any

import numpy as np
import pytest
from benchmarks import wrong_later
from devices import needs_gpu

from pareo import nn
from pareo.lab.arena.draw import drawn
from pareo.lab.contestants import CONTESTANTS, Contestant, Task, pareo_step
from pareo.lab.contestants.registry import BUILT_IN
from pareo.lab.contestants.task import INVENTED
from pareo.lab.experiment import closing
from pareo.lab.experiment.gate import blocks, course, field
from pareo.lab.experiment.gate.judge import judging
from pareo.lab.experiment.gate.parity import reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.running import Running
from pareo.lab.experiment.turns import Turn
from pareo.lab.race.engine import Race, Rules
from pareo.lab.race.result import Row

SMOOTH = nn.Sequential([nn.Dense(5), nn.Sigmoid(), nn.Dense(3)], (7,), "smooth")
KINKED = nn.Sequential([nn.Dense(5), nn.ReLU(), nn.Dense(3)], (7,), "kinked")
CHAOTIC = nn.Sequential(
    [nn.Dense(8), nn.BatchNorm(), nn.ReLU(), nn.Dense(8), nn.BatchNorm(), nn.ReLU(), nn.Dense(5)],
    (9,),
    "chaotic",
)
# After a hundred steps it has almost come back from a step that was left out.
RETURNING = drawn(2711, 7, ("cnn",))
TASKS = {
    "smooth": Task(SMOOTH, batch=4),
    "kinked": Task(KINKED, batch=4),
    "chaotic": Task(CHAOTIC, batch=8, rate=0.1),
    "returning": Task(RETURNING.network, RETURNING.batch, rate=RETURNING.rate, source=INVENTED),
}


class Wrong(pareo_step.PareoTrainer):
    """pareo in float32, right in its first ten steps; then `change(before, after)` spoils some."""

    def __init__(self, task: Task, change: Any) -> None:
        super().__init__(task, "vectorized", "float32")
        self._change, self._taken = change, 0

    def run(self, order: Any) -> Any:
        losses = []
        for chosen in order:
            before = self.parameters()
            losses.append(super().run(chosen[None])[0])
            after = self.parameters()
            self._change(self._taken, before, after)
            self.load(after)
            self._taken += 1
        return losses


def left_out(number: int, before: Any, after: Any) -> None:
    if number % 100 == 99:
        after.update(before)


def frozen(number: int, before: Any, after: Any) -> None:
    if number >= 10:
        after.update(before)


class Momentum:
    """From the tenth step on, nine tenths of the step before it are added to each."""

    def __init__(self) -> None:
        self._steps: dict[str, Any] = {}

    def __call__(self, number: int, before: Any, after: Any) -> None:
        for path, a in after.items() if number >= 10 else ():
            self._steps[path] = a - before[path] + 0.9 * self._steps.get(path, 0.0)
            a[...] = before[path] + self._steps[path]


SLOW = pytest.mark.slow
CHANGES = {"left_out": lambda: left_out, "frozen": lambda: frozen, "momentum": Momentum}


class Here:
    """A contestant or a judge in this process, which answers as a `Worker` does."""

    def __init__(self, answer: Any) -> None:
        self.ask = lambda *question, **_: answer(*question)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def judges() -> dict[str, Any]:
    return {name: Here(judging(reference, task, "float32")) for name, task in TASKS.items()}


def running(task: Task, trainer: Any, steps: int = 50) -> Running[Row]:
    """A contestant whose race is over: it has timed turns of so many steps."""

    class Built(Contestant):
        def build(self, task: Task) -> Any:
            return trainer

    runner = Runner(Built(), task)
    runner._turn = Turn.of(steps)
    row = Row("one", samples=[1e-3], rounds=[1], slice=1.0, parity={"parameter": 1e-6})
    found: Any = Running(row, task, Here(runner), scale=16.0)
    found.steps = 10**6  # more than float64 can repeat
    return found


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=SLOW if task == "returning" else ()) for task in TASKS]
)
@pytest.mark.parametrize(
    "name",
    ["pareo-vectorized", *(pytest.param(n, marks=SLOW) for n in ("pareo-compiled", "torch"))],
)
def test_a_right_training_is_admitted(task: str, name: str, judges: dict[str, Any]) -> None:
    one = running(TASKS[task], CONTESTANTS[name].build(TASKS[task]))
    closing.close(one, judges[task], "float32")
    assert one.entry.status == "ok", one.entry.note
    assert one.entry.parity["end_steps"] == closing.STEPS


@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        pytest.param(task, wrong, marks=() if task == "smooth" or wrong == "left_out" else SLOW)
        for task in TASKS
        for wrong in CHANGES
    ],
)
def test_a_wrong_training_is_refused(task: str, wrong: str, judges: dict[str, Any]) -> None:
    one = running(TASKS[task], Wrong(TASKS[task], CHANGES[wrong]()))
    closing.close(one, judges[task], "float32")
    assert one.entry.status == "refused"
    assert one.entry.samples == []
    assert "allowed" in one.entry.note or "its loss is" in one.entry.note


def test_what_a_step_left_out_changes_is_measured() -> None:
    task, steps = TASKS["kinked"], 128
    found = course.reference(task)(3, steps, 1e-6)
    order = task.order(task.count(), 3, steps)
    ends = []
    for taken in (order, np.delete(order, steps - course.EVERY, axis=0)):
        trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
        trainer.run(taken)
        ends.append(trainer.parameters())
    for path, right in ends[0].items():
        np.testing.assert_allclose(found.parameters[path], right, rtol=1e-12)
        changed = np.linalg.norm(ends[1][path] - right)
        assert found.left_out[path] == pytest.approx(changed, rel=1e-9)


def test_the_end_of_the_race_itself_is_compared_where_it_is_short(judges: dict[str, Any]) -> None:
    task = TASKS["smooth"]
    trainer = CONTESTANTS["pareo-vectorized"].build(task)
    one = running(task, trainer)
    one.steps = 300
    trainer.run(task.order(task.count(), 0, 300))
    closing.keep(one)
    closing.close(one, judges["smooth"], "float32")
    assert one.entry.status == "ok", one.entry.note
    one = running(task, trainer)
    one.steps = 300
    trainer.load(task.parameters())
    trainer.run(task.order(task.count(), 0, 299))
    closing.keep(one)
    closing.close(one, judges["smooth"], "float32")
    assert one.entry.note.startswith("after 300 steps from the first weights, ")


def test_of_contestants_that_float64_cannot_follow_the_odd_one_is_refused() -> None:
    task = TASKS["smooth"]
    start, order = task.parameters(), task.order(task.count(), 0, 128)
    errors = {path: 1e-6 * float(np.linalg.norm(a)) for path, a in start.items()}

    def ended(trainer: Any, weights: Any) -> Any:
        trainer.load(weights)
        return [float(loss) for loss in trainer.run(order)], trainer.parameters()

    trainers = {
        "a": CONTESTANTS["pareo-vectorized"].build(task),
        "b": Wrong(task, lambda *_: None),
        "wrong": Wrong(task, left_out),
    }
    first = {name: ended(one, start) for name, one in trainers.items()}
    second = {name: ended(one, field.apart(start, errors)) for name, one in trainers.items()}
    found = field.refusals(start, first, second)
    assert list(found) == ["wrong"]
    assert found["wrong"].startswith("after 128 steps from the first weights, ")
    two = ({name: one[name] for name in ("a", "wrong")} for one in (first, second))
    assert field.refusals(start, *two) == {}  # which of two is wrong cannot be said


def test_bfloat16_is_judged_by_what_it_learns() -> None:
    task = Task(KINKED, batch=16, rate=0.1)

    class Coarse(Wrong):
        """Parameters that bfloat16 stores, which is coarser than any contestant's."""

        def __init__(self) -> None:
            super().__init__(task, self.stored)

        @staticmethod
        def stored(number: int, before: Any, after: Any) -> None:
            for a in after.values():
                a.view("uint32")[...] &= 0xFFFF0000

    judge: Any = Here(judging(reference, task, "bfloat16"))
    one = running(task, Coarse())
    closing.close(one, judge, "bfloat16")
    assert one.entry.status == "ok", one.entry.note
    one = running(task, Wrong(task, frozen))
    closing.close(one, judge, "bfloat16")
    assert one.entry.status == "refused"
    assert "its loss is" in one.entry.note


def test_a_loss_that_is_made_up_does_not_replace_training_in_bfloat16() -> None:
    task = Task(KINKED, batch=16, rate=0.1)

    class Honest(Wrong):
        """It reports the losses of another, which trains, and leaves its own weights alone."""

        def run(self, order: Any) -> Any:
            before = self.parameters()
            losses = super().run(order)
            self.load(before)
            return losses

    one = running(task, Honest(task, lambda *_: None))
    closing.close(one, Here(judging(reference, task, "bfloat16")), "bfloat16")  # type: ignore[arg-type]
    assert one.entry.status == "refused"
    assert "its loss afterwards is" in one.entry.note


def test_blocks_say_which_steps_are_wrong(judges: dict[str, Any]) -> None:
    task = TASKS["chaotic"]
    one = running(task, Wrong(task, left_out))
    parts = one.worker.ask("blocks", 0, 32, blocks.SIZE)
    assert "off in steps 97 to 100 of a training" in judges["chaotic"].ask("blocks", 0, parts)


def raced(device: str, task: Task) -> dict[str, Row]:
    wrong = {
        change: Contestant("benchmarks.wrong_later", {"base": device, "change": change})
        for change in wrong_later.CHANGES
    }
    rules = Rules(share=0.5, turn=1.0, epochs=2)
    result = Race(task, wrong | {device: BUILT_IN[device]}, rules).run()
    return {row.contestant: row for row in result.rows}


@pytest.mark.slow
def test_wrong_later_is_refused_in_a_race() -> None:
    rows = raced("pareo-compiled", TASKS["kinked"])
    assert {name: row.status for name, row in rows.items()} == {
        **dict.fromkeys(CHANGES, "refused"), "pareo-compiled": "ok",
    }  # fmt: skip


@pytest.mark.gpu
@needs_gpu
def test_wrong_later_is_refused_on_a_gpu() -> None:
    rows = raced("pareo-cuda", TASKS["kinked"])
    assert {name: row.status for name, row in rows.items()} == {
        **dict.fromkeys(CHANGES, "refused"), "pareo-cuda": "ok",
    }  # fmt: skip
