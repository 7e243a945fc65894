"""PyTensor and tinygrad: the same steps as pareo's, and a clear reason where they are missing."""

from importlib import import_module

import numpy as np
import pytest
from command_line import pareo

from pareo import nn
from pareo.lab.contestants import Contestant, Task, contestant, pareo_step
from pareo.lab.contestants.registry import known
from pareo.lab.ops import peers
from pareo.lab.ops.work import Work
from pareo.nn import networks

# PyTensor says so where pip has installed it.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

SMALL = nn.Sequential([nn.Flatten(), nn.Dense(6), nn.Tanh(), nn.Dense(3)], (1, 8, 8), "small")
MIXED = nn.Sequential(
    [
        nn.Conv(4, 3, padding=1), nn.Sigmoid(), nn.Subsample(2, stride=2),
        nn.Branches([nn.Conv(2, 1), nn.ReLU()], [nn.MaxPool(1), nn.Conv(2, 1)]),
        nn.AveragePool(2), nn.GlobalAveragePool(), nn.Flatten(), nn.Dense(3),
    ],
    (1, 8, 8),
    "mixed",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pytensor", "pytensor-numba", "tinygrad"])
@pytest.mark.parametrize("network", [SMALL, MIXED], ids=["small", "mixed"])
def test_their_steps_are_those_of_pareo(name: str, network: nn.Sequential) -> None:
    one = known()[name]
    if reason := one.missing():
        pytest.skip(reason)
    task = Task(network, batch=4, rate=0.1, source=f"synthetic:1x8x8:{network.classes}:24")
    trainer, ours = one.build(task), pareo_step.build(task, device="vectorized")
    order = task.order(20, first=0, steps=3)
    np.testing.assert_allclose(trainer.run(order), ours.run(order), rtol=1e-5)
    trainer.load(ours.parameters())
    np.testing.assert_allclose(trainer.run(order), ours.run(order), rtol=1e-5)
    found, expected = trainer.parameters(), ours.parameters()
    for path, a in expected.items():
        assert found[path].shape == a.shape
        np.testing.assert_allclose(found[path], a, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["pytensor", "tinygrad"])
def test_a_layer_that_they_lack_is_named(name: str) -> None:
    module = import_module(f"pareo.lab.contestants.{name}_step")
    with pytest.raises(TypeError, match=r"this adapter has no Lrn\("):
        module.layer(nn.Lrn(), {}, None)
    kind = getattr(module, f"{name.title()}Trainer")
    more = [None] if name == "pytensor" else []
    with pytest.raises(TypeError, match="no running statistics"):
        kind(Task(networks.by_name("resnet8"), batch=1), *more)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestant, "find_spec", lambda name: None)
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    for name in ("pytensor", "tinygrad"):
        assert known()[name].missing() == f"not installed: pip install 'pareo[{name}]'"
        assert peers.why_missing(name) == f"{name} is not installed: pip install 'pareo[{name}]'"
    monkeypatch.setattr(contestant, "find_spec", lambda name: True)
    monkeypatch.setattr(contestant, "which", lambda name: None)
    said = "tinygrad needs the program clang, which is not installed"
    assert known()["tinygrad"].missing() == said
    assert Contestant("a.module").missing() is None
    listed = pareo("contestants").out
    assert "pytensor" in listed
    assert "tinygrad" in listed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pytensor", "tinygrad"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("operator", ["add", "scale", "dot", "sigmoid", "softmax"])
def test_their_operators_are_those_of_numpy(name: str, direction: str, operator: str) -> None:
    if reason := peers.why_missing(name):
        pytest.skip(reason)
    work = Work(operator, direction, 48 << 10)  # type: ignore[arg-type]
    arrays = work.inputs()
    theirs, ours = (peers.made(one, 1) for one in (name, "pareo-vectorized"))
    results = [peer.call(work, [a.copy() for a in arrays])() for peer in (theirs, ours)]
    pairs = [one if isinstance(one, tuple | list) else [one] for one in results]
    for found, expected in zip(*pairs, strict=True):
        np.testing.assert_allclose(theirs.host(found), ours.host(expected), rtol=2e-5, atol=1e-5)
