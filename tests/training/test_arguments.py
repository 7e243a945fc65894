"""What `Step.run` is given: right results or one sentence, before anything moves."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from recipes import sgd

from pareo import Device
from pareo.errors import DtypeError, PareoError, ShapeError
from pareo.nn import networks
from pareo.parallel.trials.population.step import PopulationStep, stacked
from pareo.training.recipe import Recipe
from pareo.training.step import Step

NETWORK = networks.mlp([6, 5, 3])
TABLE, PROGRAM = "a table of the backend's own", "a program"
ORDER = np.arange(12).reshape(3, 4)


def given(momentum: float = 0.0) -> dict[str, Any]:
    random = np.random.default_rng(0)
    parameters = NETWORK.initialise(0)
    return {
        "parameters": parameters,
        "slots": {f"velocity.{p}": np.zeros_like(a) for p, a in parameters.items()}
        if momentum
        else {},
        "images": random.random((12, 6), dtype=np.float32),
        "labels": random.integers(0, 3, 12),
        "order": ORDER,
        "rate": 0.1,
    }


@cache
def step_on(device: str, momentum: float = 0.0) -> Step:
    return Step(NETWORK, 4, Device(device, threads=1), sgd(momentum))


@pytest.fixture(params=[TABLE, PROGRAM])
def device(request: pytest.FixtureRequest) -> str:
    return "compiled" if request.param == TABLE else "vectorized"


def weights(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(arguments: dict[str, Any]) -> None:
        arguments["parameters"]["1.w"] = change(arguments["parameters"]["1.w"])

    return apply


def other(**values: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(arguments: dict[str, Any]) -> None:
        for name, change in values.items():
            arguments[name] = change(arguments[name])

    return apply


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def shared(arguments: dict[str, Any]) -> None:
    arguments["parameters"]["1.w"] = arguments["images"].reshape(-1)[:30].reshape(6, 5)


def one_for_two(arguments: dict[str, Any]) -> None:
    whole = np.zeros(12, np.float32)
    arguments["parameters"].update({"1.b": whole[:5], "3.b": whole[4:7]})


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], None], type[PareoError], str]] = {
    "images of float64": (
        other(images=lambda a: a.astype("f8")),
        DtypeError, "steps expect images of float32; got float64",
    ),
    "images of bytes": (
        other(images=lambda a: a.astype("u1")),
        DtypeError, "steps expect images of float32; got uint8",
    ),
    "images in Fortran's order": (other(images=np.asfortranarray), ShapeError, "C-contiguous"),
    "images that are no array": (other(images=lambda a: a.tolist()), PareoError, "NumPy arrays"),
    "images without an axis": (
        other(images=lambda a: a[0, 0, ...]), ShapeError, r"images of shape \(6,\); got \(\)",
    ),
    "images of another shape": (
        other(images=lambda a: a[:, :5].copy()),
        ShapeError, r"steps expect images of shape \(12, 6\); got \(12, 5\)",
    ),
    "labels of int32": (other(labels=lambda a: a.astype("i4")), DtypeError, "labels of int64"),
    "too few labels": (other(labels=lambda a: a[:7]), ShapeError, r"labels of shape \(12,\)"),
    "a label too large": (other(labels=lambda a: a + 1), ShapeError, "labels from 0 to 2; got 3"),
    "a label below 0": (other(labels=lambda a: a - 1), ShapeError, "labels from 0 to 2; got -1"),
    "an order beyond the data": (
        other(order=lambda a: a + 1),
        ShapeError, "an order of 12 images expects numbers from 0 to 11; got 1 to 12",
    ),
    "an order far beyond the data": (
        other(order=lambda a: a.astype("u8") * 2**60), ShapeError, "numbers from 0 to 11; got 0 to",
    ),
    "an order below 0": (other(order=lambda a: a - 1), ShapeError, "from 0 to 11; got -1 to 10"),
    "an order of another batch": (
        other(order=lambda a: a.reshape(2, 6)),
        ShapeError, r"an order expects the shape \(steps, 4\); got \(2, 6\)",
    ),
    "an order of one step": (other(order=lambda a: a[0]), ShapeError, r"\(steps, 4\)"),
    "an order of floats": (other(order=lambda a: a * 1.0), DtypeError, "whole numbers"),
    "parameters of float64": (
        weights(lambda a: a.astype("f8")),
        DtypeError, r"steps expect the parameter 1\.w of float32; got float64",
    ),
    "parameters of another shape": (
        weights(lambda a: a.T.copy()),
        ShapeError, r"the parameter 1\.w of shape \(6, 5\); got \(5, 6\)",
    ),
    "parameters that lie apart": (
        weights(lambda a: np.repeat(a, 2, axis=1)[:, ::2]), DtypeError, "must be C-contiguous",
    ),
    "parameters to read": (weights(read_only), DtypeError, "and writable"),
    "parameters that are no arrays": (weights(lambda a: a.tolist()), PareoError, "NumPy arrays"),
    "a parameter that is missing": (
        lambda arguments: arguments["parameters"].pop("3.b"),
        ShapeError, r"one parameter for each of 4 names; missing or unknown: 3\.b",
    ),
    "a parameter too many": (
        lambda arguments: arguments["parameters"].update(more=np.zeros(1, "f4")),
        ShapeError, "missing or unknown: more",
    ),
    "a list of parameters": (
        other(parameters=lambda a: list(a.values())), ShapeError, "one parameter for each",
    ),
    "slots without momentum": (
        other(slots=lambda a: {"1.w": np.zeros((6, 5), "f4")}),
        ShapeError, r"missing or unknown: 1\.w",
    ),
    "a parameter among the images": (shared, ShapeError, "none may share memory"),
    "parameters that overlap": (one_for_two, ShapeError, "none may share memory"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_rightly_is_refused_before_anything_moves(
    case: str, device: str
) -> None:
    arguments = given()
    change, error, message = REFUSED[case]
    change(arguments)
    before = repr(arguments)
    step = step_on(device)
    assert step.in_table == (device == "compiled")
    with pytest.raises(error, match=message):
        step.run(**arguments)
    assert repr(arguments) == before


def test_parameters_are_known_by_their_names(device: str) -> None:
    step = step_on(device, 0.9)
    one, two = given(0.9), given(0.9)
    for name in ("parameters", "slots"):
        two[name] = dict(reversed(two[name].items()))
    assert np.array_equal(step.run(**one), step.run(**two))
    batch = one["images"][:4], one["labels"][:4], 0.1
    found = [step(a["parameters"], a["slots"], *batch) for a in (one, two)]
    assert found[0] == found[1]
    for name in ("parameters", "slots"):
        for path, array in one[name].items():
            assert np.array_equal(array, two[name][path]), path


@pytest.mark.parametrize("kind", ["int32", "uint8", "uint64"])
def test_an_order_of_other_integers_counts_as_its_numbers(kind: str, device: str) -> None:
    step = step_on(device)
    expected = step.run(**given())
    assert np.array_equal(step.run(**{**given(), "order": ORDER.astype(kind)}), expected)
    apart = np.repeat(ORDER, 2, axis=1)[:, ::2]
    assert np.array_equal(step.run(**{**given(), "order": apart}), expected)


def test_no_steps_give_no_losses(device: str) -> None:
    assert len(step_on(device).run(**{**given(), "order": ORDER[:0]})) == 0


def test_a_population_is_checked_likewise(device: str) -> None:
    arguments = given()
    arguments["parameters"] = stacked(NETWORK, [0, 1])
    order = np.stack([ORDER, ORDER], axis=1)
    arguments["rates"] = [arguments.pop("rate")] * 2
    step = PopulationStep(NETWORK, 4, Device(device, threads=1), [Recipe()] * 2)
    for wrong, message in ((order + 1, "numbers from 0 to 11"), (ORDER, r"\(steps, 2, 4\)")):
        with pytest.raises(ShapeError, match=message):
            step.run(**{**arguments, "order": wrong})
    with pytest.raises(DtypeError, match="images of float32"):
        step.run(**{**arguments, "order": order, "images": arguments["images"].astype("f8")})
    losses = step.run(**{**arguments, "order": order})
    alone = step_on(device).run(**given())
    # Sums of a stack may come in another order.
    np.testing.assert_allclose(losses[:, 0], alone, rtol=1e-6)
