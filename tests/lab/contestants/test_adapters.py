"""Contestants: every adapter trains the same network, and a wrong step is named."""

from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from pareo import nn
from pareo.lab.contestants import CONTESTANTS, Task, without_dropout
from pareo.lab.contestants.registry import ON_GPU
from pareo.lab.experiment.gate.parity import parity, reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.worker import Worker
from pareo.nn import networks
from pareo.nn.tables import packed

# Every kind of layer, with padding, `ceil`, groups and overlapping windows where they may be.
TINY = nn.Sequential(
    [
        nn.Conv(4, 3, 2, 1), nn.Tanh(), nn.MaxPool(3, 2, ceil=True), nn.Lrn(3, alpha=0.5),
        nn.Branches(
            [nn.Conv(2, 1), nn.ReLU()],
            [nn.Sequential([nn.Conv(4, 1), nn.Sigmoid()]), nn.Conv(4, (3, 1), 1, (1, 0), groups=2)],
            [nn.MaxPool(3, 1, 1), nn.Conv(3, 1), nn.Dropout(0.3)],
        ),
        nn.Auxiliary(nn.Sequential([nn.Conv(2, 1), nn.Flatten(), nn.Dense(6)]), 0.3),
        nn.AveragePool(2, 2, 1, ceil=True), nn.Subsample(2, stride=1), nn.Subsample(2, stride=2),
        nn.Flatten(), nn.Dropout(0.5), nn.Dense(6), nn.Softmax(),
    ],
    (3, 24, 21),
    "tiny",
)  # fmt: skip
# The layers of today's networks: batch normalisation of images and of features, a depthwise and a
# dilated convolution, a gate, tokens.
TODAY = nn.Sequential(
    [
        nn.Normalise((0.1, 0.2, 0.3), (0.9, 1.0, 1.1)), nn.Conv(8, 3, padding=1, bias=False),
        nn.BatchNorm(), nn.SiLU(),
        nn.Residual(
            [
                nn.Conv(8, 3, padding=1, groups=8, bias=False), nn.BatchNorm(momentum=0.3),
                nn.Clip(), nn.Gate([nn.GlobalAveragePool(), nn.Conv(8, 1), nn.HardSigmoid()]),
                nn.StochasticDepth(0.1),
            ],
            [("0", nn.Conv(8, 1)), ("norm", nn.BatchNorm(epsilon=1e-3))], nn.LeakyReLU(0.2),
            shortcut_name="beside",
        ),
        nn.LayerNorm(axis=1), nn.Scale(), nn.Append([nn.Conv(4, 3, padding=2, dilation=2)]),
        nn.Add([nn.Identity()], [nn.Conv(12, 1), nn.HardSwish()]), nn.AdaptiveAveragePool(3),
        nn.Tokens(), nn.ClassToken(), nn.PositionEmbedding(),
        nn.Residual([nn.LayerNorm(), nn.Dense(36), nn.Attention(2), nn.Dense(12)]),
        nn.Residual([nn.LayerNorm(epsilon=1e-6), nn.Dense(24), nn.GELU(), nn.Dense(12)]),
        nn.Scale(), nn.Attention(2, causal=True), nn.GELU(approximate=True),
        nn.Add([nn.FirstToken(), nn.Dense(8)], [nn.Flatten(), nn.Dense(8, bias=False)]),
        nn.Multiply([nn.Identity()], [nn.Dense(8), nn.Sigmoid()]),
        nn.Dense(5),
    ],
    (3, 8, 8),
    "today",
)  # fmt: skip
# A graph, layers that only move elements, and means in which padding counts.
GRAPH = nn.Sequential(
    [("", nn.Graph({
        "conv": nn.Conv(6, 3, padding=1), "norm": nn.BatchNorm(),
        "split": nn.Reshape((2, 3, 6, 7)), "turned": nn.Permute((0, 2, 1, 3, 4)),
        "shuffled": nn.Reshape((6, 6, 7)), "left": nn.Part(1, 0, 2),
        "right": (nn.Part(1, 2, 6), "shuffled"), "rows": nn.Part(2, 1, 4),
        "side": (nn.Permute((0, 1, 3, 2)), "rows"), "wide": nn.Conv(2, 1),
        "mean": (nn.AveragePool(3, 1, 1, counts_padding=True), "left"),
        "ceil": (nn.AveragePool(3, 2, 1, ceil=True, counts_padding=True), "mean"),
        "pool": (nn.GlobalAveragePool(), "ceil"), "flat": nn.Flatten(), "fc": nn.Dense(2),
        "gate": nn.Sigmoid(), "column": nn.Reshape((2, 1, 1)),
        "gated": ("multiply", "ceil", "column"), "one": (nn.Flatten(), "gated"),
        "other": (nn.Flatten(), "wide"), "both": ("concat", "one", "other"), "end": nn.Dense(5),
    }))],
    (3, 6, 7),
    "graph",
)  # fmt: skip
# Products of values as matrices, and normalisation of groups, of images and of tokens.
PRODUCTS = nn.Sequential(
    [("", nn.Graph({
        "instance": nn.GroupNorm(3, trained=False), "conv": nn.Conv(6, 3, padding=1),
        "group": nn.GroupNorm(3, 1e-3), "act": nn.SiLU(), "turned": nn.Permute((0, 1, 3, 2)),
        "scores": ("matmul", "act", "turned"), "scaled": nn.Affine(-0.25, 0.5),
        "shares": nn.Softmax(3), "mixed": ("matmul", "shares", "act"),
        "columns": nn.Softmax(2), "rows": nn.Reshape((6, 42)), "norm": nn.GroupNorm(2),
        "keys": nn.Permute((0, 2, 1)), "gram": ("matmul", "norm", "keys"),
        "small": nn.Affine(0.02), "log": nn.LogSoftmax(2), "flat": nn.Flatten(),
        "end": nn.Dense(5),
    }))],
    (3, 6, 7),
    "products",
)  # fmt: skip
# Numbers that are added by place, to images and to tokens, and zeros around them.
PLACES = nn.Sequential(
    [
        nn.Pad((0, 1, 0), (0, 0, 2)), nn.Conv(6, 3),
        nn.TableSum((1, 5, 7), (3, 2), packed(np.arange(35) % 6, "<i4")),
        nn.FixedSum((6, 1, 7), packed(np.arange(42) % 5 / 4, "<f8")), nn.SiLU(),
        nn.Index(2, (4, 0, 0, 3, 1)), nn.TableProduct((1, 1, 1), (1,), packed(np.zeros(1), "<i4")),
        nn.Mix(3, 7, packed(np.arange(49) % 5 / 9, "<f8")), nn.ELU(0.7),
        nn.FixedProduct((6, 1, 7), packed(np.arange(42) % 3 / 2, "<f8")), nn.Softplus(),
        nn.Power(-0.5), nn.Affine(1.0, 0.5), nn.Log(), nn.Affine(0.5), nn.Exp(), nn.Power(-1.0),
        nn.Tokens(),
        nn.TableSum((35, 1), (35,), packed(np.arange(35)[::-1], "<i4")), nn.Flatten(), nn.Dense(5),
    ],
    (3, 6, 7),
    "places",
)  # fmt: skip
# A trained array beside values of the input, as tokens and as an image.
LEARNED = nn.Sequential(
    [("", nn.Graph({
        "conv": nn.Conv(4, 3, padding=1), "image": (nn.Learned((4, 5, 6)), "conv"),
        "product": ("multiply", "conv", "image"), "tokens": nn.Tokens(),
        "queries": (nn.Learned((3, 4)), "tokens"), "keys": (nn.Permute((0, 2, 1)), "tokens"),
        "scores": ("matmul", "queries", "keys"), "flat": nn.Flatten(), "end": nn.Dense(5),
    }))],
    (2, 5, 6),
    "learned",
)  # fmt: skip
FEATURES = nn.Sequential(
    [nn.Dense(8, bias=False), nn.BatchNorm(), nn.ReLU(), nn.Dense(5)], (7,), "features"
)
TASKS = {
    "features": Task(FEATURES, batch=6, rate=0.1),
    "tiny": Task(without_dropout(TINY), batch=4, rate=0.5),
    "graph": Task(GRAPH, batch=6, rate=0.1),
    "today": Task(without_dropout(TODAY), batch=6, rate=0.1),
    "places": Task(PLACES, batch=6, rate=0.1),
    "products": Task(PRODUCTS, batch=6, rate=0.1),
    "learned": Task(LEARNED, batch=6, rate=0.1),
}
TASK = TASKS["tiny"]
SMALL = Task(nn.Sequential([nn.Dense(5), nn.Sigmoid(), nn.Dense(3)], (7,), "small"), batch=4)


@pytest.fixture(scope="module")
def exact() -> Any:
    return reference(TASK)


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn


VARIANTS = ("jax-channels-last", "jax-scan")  # of one adapter, which take long to compile


@pytest.fixture(scope="module")
def references(exact: Any) -> dict[str, Any]:
    return {name: exact if task is TASK else reference(task) for name, task in TASKS.items()}


@pytest.mark.parametrize(
    "network", [pytest.param(n, marks=pytest.mark.slow) if n == "today" else n for n in TASKS]
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in VARIANTS else n for n in CONTESTANTS],
)
@pytest.mark.usefixtures("torch_as_it_was")
def test_every_adapter_trains_the_same_network(
    name: str, network: str, references: dict[str, Any]
) -> None:
    contestant, task, exact = CONTESTANTS[name], TASKS[network], references[network]
    if contestant.missing():
        pytest.skip(f"{contestant.needs} is {contestant.missing()}")
    if name == "torch-compile":
        pytest.skip("compiling takes longer than all other tests here; the race itself checks it")
    if contestant.needs in (None, "torch"):  # which other tests have imported already
        answer = Runner(contestant, task)("agree")
    else:
        with Worker(Runner, contestant, task) as worker:
            answer = worker.ask("agree")
    error: dict[str, float] = {}
    assert parity(task, answer, exact, error) == ""
    assert error["loss"] < 1e-6
    assert error["share"] < 0.5
    if network == "tiny":  # in float32, a shift of 6 moves by steps of 5e-7, of small gradients 2 %
        assert error["parameter"] < 1e-4


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_tensorflow_is_keras_and_the_ledger_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # a user's choice, which is not the contestant's
    with Worker(Runner, CONTESTANTS["tensorflow"], SMALL) as worker:
        told = worker.ask("ledger")["version"]
        assert parity(SMALL, worker.ask("agree"), reference(SMALL), {}) == ""
    assert told == f"{version('tensorflow')}, Keras {version('keras')}"


@pytest.mark.smoke
def test_dropout_is_taken_out_however_deep() -> None:
    assert TINY.seeds() == 2
    assert TASK.network.seeds() == 0
    assert TASK.network.count() == TINY.count()


def steps_of(exact: Any) -> list[Any]:
    first = exact(0, TASK.parameters())
    second = exact(1, first.parameters)
    return [(first.loss, first.parameters), (second.loss, second.parameters)]


@pytest.mark.smoke
def test_what_differs_is_named(exact: Any) -> None:
    (loss, one), (second, two) = steps_of(exact)
    assert parity(TASK, [(loss, one), (second, two)], exact, {}) == ""
    wrong = [(loss, one), (second * 1.001, two)]
    assert parity(TASK, wrong, exact, {}).startswith("the loss in step 2 is 1.0e-03 off, ")
    broken = {**two, "4.0.0.w": np.full_like(two["4.0.0.w"], np.nan)}
    wrong = [(loss, one), (second, broken)]
    assert parity(TASK, wrong, exact, {}).startswith("4.0.0.w moved nan off in step 2")
    missing = [(loss, {**one, "0.b": one["0.b"][:1]}), (second, two)]
    assert parity(TASK, missing, exact, {}) == "0.b has the shape (1,), not (4,)"


def test_gradients_that_are_kept_for_the_second_step_are_refused(exact: Any) -> None:
    (loss, one), (second, two) = steps_of(exact)
    start = TASK.parameters()
    stale = {path: two[path] + (one[path] - start[path]) for path in two}
    assert "in step 2" in parity(TASK, [(loss, one), (second, stale)], exact, {})


def test_installed_frameworks_are_found() -> None:
    assert CONTESTANTS["torch"].missing() is None
    assert (CONTESTANTS["jax"].missing() is None) == (find_spec("jax") is not None)


def test_every_contestant_on_a_gpu_takes_a_precision() -> None:
    chosen = [contestant.in_precision("tf32") for contestant in ON_GPU.values()]
    assert {contestant.options["precision"] for contestant in chosen if not contestant.tries} == {
        "tf32"
    }


def test_a_step_moves_at_least_its_images_and_its_parameters_twice() -> None:
    assert Task(networks.papers_cnn(), 2).least_bytes() == 4 * (2 * 2343 + 2 * 784)
