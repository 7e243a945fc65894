"""Whatever a contestant's process answers: used if it is right, else said in a sentence."""

import math
from typing import Any

import numpy as np
import pytest

from pareo import nn
from pareo.lab.contestants import Task
from pareo.lab.experiment import answers
from pareo.lab.experiment.turns import Turn
from pareo.lab.experiment.worker import Failed
from pareo.lab.kernels.events import Profile

pytestmark = pytest.mark.smoke

TASK = Task(nn.Sequential([nn.Dense(5)], (7,), "small"), batch=4)
RIGHT = TASK.parameters()
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
        ((math.nan, None, 1.0), "the time of a step is nan"),
        ((math.inf, None, 1.0), "the time of a step is inf"),
        ((-1.0, None, 1.0), "the time of a step is -1.0"),
        ((0.0, None, 1.0), "the time of a step is 0.0 s"),
        (("1", None, 1.0), "the time of a step is '1', not a number"),
        ((1.0, -1.0, 1.0), "the time of the opening step is -1.0"),
        ((1.0, None, [1.0]), "the mean loss is a list, not a number"),
        ((1.0, 1.0), "a turn is a tuple, not 3 values"),
        (None, "a turn is a NoneType, not 3 values"),
    ],
)
def test_times_are_finite_and_above_zero(turn: Any, reason: str) -> None:
    with pytest.raises(Failed) as failed:
        answers.ran(turn)
    assert str(failed.value) == reason


def test_a_loss_may_be_anything_for_the_race_to_judge() -> None:
    assert answers.ran((1.0, None, math.inf)) == (1.0, None, math.inf)
    assert answers.ran((np.float32(1), 0.5, 2)) == (1.0, 0.5, 2.0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ("fast", "facts() is 'fast', not a dict"),
        ({1: 2}, "a name is 1, not a str"),
        ({"mode": 5}, "mode in facts() is 5, not a str"),
        ({"threads": "two"}, "threads in facts() is 'two', not a number"),
        ({"peak_memory_bytes": math.nan}, "peak_memory_bytes in facts() is nan"),
        ({"first_layer_data_gradient": "no"}, "first_layer_data_gradient in facts() is 'no', not"),
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
    ("question", "answer"),
    [
        ("ready", {"steps": "many"}),
        ("ready", [1]),
        ("first_call", None),
        ("memory", "much"),
        ("footprint", {"used": -1}),
        ("gate_judgement", ("", {"loss": "none"})),
        ("audit", {"moved": True, "losses": "none"}),
        ("profile", []),
        ("profile", [Profile("a clock", 1, math.nan, [])]),
    ],
)
def test_every_other_answer_is_checked_as_well(question: str, answer: Any) -> None:
    with pytest.raises(Failed):
        answers.CHECKS[question](answer)


def test_what_is_right_passes() -> None:
    turn = Turn(5, 1, 0.1, 0.02)
    assert answers.turn(turn.as_dict()) == turn.as_dict()
    assert answers.sizes({"used": np.int64(3), "data": None}) == {"used": 3, "data": None}
