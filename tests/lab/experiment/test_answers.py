"""Whatever a contestant's process answers: used if it is right, else said in a sentence."""

import math
from typing import Any, get_type_hints

import numpy as np
import pytest

from pareo import nn
from pareo.lab.contestants import Task
from pareo.lab.experiment import answers
from pareo.lab.experiment.gate.audit import Audited
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.turns import Turn
from pareo.lab.experiment.worker import Failed
from pareo.lab.kernels.events import Event, Profile
from pareo.lab.kernels.instruments import Watched
from pareo.lab.sweep.runner import CellRunner

pytestmark = pytest.mark.smoke

TASK = Task(nn.Sequential([nn.Dense(5)], (7,), "small"), batch=4)
RIGHT = TASK.parameters()
RUN = get_type_hints(Runner.run, include_extras=True)["return"]
FACTS = {"precision": None, "threads": 1, "peak_memory_bytes": None}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (list(RIGHT.values()), "parameters() is a list, not a dict"),
        ({"0.w": RIGHT["0.w"]}, "parameters() lacks 0.b"),
        ({**RIGHT, "0.b": [1.0] * 5}, "has 0.b as a list, not as an array of floats"),
        ({**RIGHT, "0.b": np.array(["a"] * 5)}, "has 0.b as a ndarray, not as an array of floats"),
        ({**RIGHT, "0.b": np.ones((5, 1))}, "0.b has the shape (5, 1), not (5,)"),
    ],
)
def test_parameters_are_all_there_in_their_shapes(found: Any, reason: str) -> None:
    with pytest.raises(Failed) as failed:
        answers.parameters(found, TASK)
    assert reason in str(failed.value)
    assert answers.parameters({**RIGHT, "more": 1}, TASK).keys() == RIGHT.keys()


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ((math.nan, None, 1.0), "expected a number > 0.0 in [0]; got nan"),
        ((math.inf, None, 1.0), "expected a number < 1e+100 in [0]; got inf"),
        ((-1.0, None, 1.0), "expected a number > 0.0 in [0]; got -1.0"),
        ((0.0, None, 1.0), "expected a number > 0.0 in [0]; got 0.0"),
        (("1", None, 1.0), "expected a number in [0]; got '1'"),
        ((1.0, -1.0, 1.0), "expected a number >= 0.0 in [1]; got -1.0"),
        ((1.0, None, [1.0]), "expected a number in [2]"),
        ((1.0, 1.0), "expected a list of length 3"),
        (None, "expected a list; got None"),
    ],
)
def test_times_are_finite_and_above_zero(turn: Any, reason: str) -> None:
    with pytest.raises(Failed) as failed:
        answers.fitting(turn, RUN, "run")
    assert str(failed.value) == f"run(): {reason}"


def test_a_loss_may_be_anything_for_the_race_to_judge() -> None:
    assert answers.fitting((1.0, None, math.inf), RUN, "run") == (1.0, None, math.inf)
    assert answers.fitting((np.float32(1), 0.5, 2), RUN, "run") == (1.0, 0.5, 2.0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ("fast", "facts(): expected a dict; got 'fast'"),
        ({1: 2}, "facts(): expected names as text; got 1"),
        ({"mode": 5}, "mode in facts(): expected text or null; got 5"),
        ({"threads": "two"}, "threads in facts(): expected a whole number or null; got 'two'"),
        ({"threads": -1}, "threads in facts(): expected a whole number >= 0; got -1"),
        ({"first_layer_data_gradient": "no"}, "first_layer_data_gradient in facts(): expected"),
        ({"more": {1, 2}}, "more in facts() is a set, which JSON does not have"),
        ({"more": [{"a": b"1"}]}, "more in facts() is a bytes, which JSON does not have"),
    ],
)
def test_facts_are_what_json_has(facts: Any, reason: str) -> None:
    with pytest.raises(Failed) as failed:
        answers.ledger({**FACTS, **facts} if isinstance(facts, dict) else facts)
    assert str(failed.value).startswith(reason)


def test_facts_of_numpy_and_subclasses_become_plain() -> None:
    class Version(str):
        __slots__ = ()

    told = answers.ledger({**FACTS, "version": Version("2"), "more": (np.int64(3), math.inf)})
    assert type(told["version"]) is str
    assert told["more"] == [3, None]
    assert told["settings_tried"] == []


@pytest.mark.parametrize(
    ("runner", "question", "answer"),
    [
        (Runner, "ready", {"steps": "many"}),
        (Runner, "ready", [1]),
        (Runner, "first_call", None),
        (Runner, "memory", "much"),
        (Runner, "audit", {"moved": True, "losses": "none"}),
        (CellRunner, "footprint", {"used": -1}),
        (CellRunner, "gate_judgement", ("", {"loss": "none"})),
        (Watched, "profile", []),
        (Watched, "profile", [Profile("a clock", 1, math.nan, [])]),
    ],
)
def test_every_answer_must_fit_what_its_method_declares(
    runner: Any, question: str, answer: Any
) -> None:
    declared = get_type_hints(getattr(runner, question), include_extras=True)["return"]
    with pytest.raises(Failed):
        answers.fitting(answer, declared, question)


def test_an_answer_without_end_is_refused() -> None:
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(Failed, match=r"^audit\(\): "):
        answers.fitting({"moved": True, "losses": nested}, Audited, "audit")


def test_what_is_right_passes() -> None:
    turn = Turn.of(5, 1, 0.1, 0.02)
    assert answers.fitting(turn, Turn, "ready") == turn
    sizes = get_type_hints(CellRunner.footprint, include_extras=True)["return"]
    found = answers.fitting({"used": np.int64(3), "data": None}, sizes, "footprint")
    assert found == {"used": 3, "data": None}
    event = Event("dot", "gemm", 0.0, 1.0, flops=8.0)
    profile = Profile("a clock", 1, 0.5, [event])
    assert answers.fitting([profile], list[Profile], "profile") == [profile]
