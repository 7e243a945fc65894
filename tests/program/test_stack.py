"""A stacked program does for each member what the program does for one, gradients included."""

from typing import Any

import numpy as np
import pytest

import pareo.operators as op
from pareo import Device, Spec
from pareo.nn import (
    AveragePool,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Lrn,
    MaxPool,
    ReLU,
    Sequential,
    Sigmoid,
    Softmax,
    Subsample,
    Tanh,
)  # fmt: skip
from pareo.nn.network import Auxiliary, Branches
from pareo.program import trace, value_and_grad
from pareo.program.stack import Value, vmap

MEMBERS, BATCH = 3, 4
NETWORKS = {
    "dense": Sequential([Dense(5), ReLU(), Dense(4), Tanh(), Dense(3)], (6,)),
    "papers": Sequential(
        [Conv(2, 3), Sigmoid(), Subsample(2, 2), Sigmoid(), Flatten(), Dense(3)], (1, 8, 8)
    ),
    "large": Sequential(
        [Conv(4, 3, padding=1, groups=2), ReLU(), Lrn(), MaxPool(2), AveragePool(2),
         Flatten(), Dropout(0.5), Dense(3), Softmax()],
        (2, 8, 8),
    ),
    "branches": Sequential(
        [Branches([Conv(2, 1)], [MaxPool(3, 1, 1)]),
         Auxiliary(Sequential([Flatten(), Dense(3)])), Flatten(), Dense(3)],
        (2, 4, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "device"),
    [*((name, "vectorized") for name in NETWORKS), ("dense", "compiled"), ("papers", "compiled")],
)
def test_each_member_has_the_loss_and_the_gradients_of_one_alone(name: str, device: str) -> None:
    network = NETWORKS[name]
    random = np.random.default_rng(0)
    images = random.standard_normal((MEMBERS, BATCH, *network.inputs))
    labels = random.integers(0, 3, (MEMBERS, BATCH))
    seeds = [[np.asarray(10 * member + s) for s in range(network.seeds())] for member in range(3)]
    each = [network.initialise(member, "float64") for member in range(MEMBERS)]
    stacked = {path: np.stack([one[path] for one in each]) for path in each[0]}
    with Device(device):
        losses, gradients = _together(network, stacked, images, labels, seeds)
        for member in range(MEMBERS):
            loss, alone = value_and_grad(network.loss)(
                each[member], images[member], labels[member], seeds[member]
            )
            np.testing.assert_allclose(losses[member], loss, rtol=1e-12)
            for path, gradient in alone.items():
                np.testing.assert_allclose(gradients[path][member], gradient, rtol=1e-9, atol=1e-12)


def _together(network: Sequential, stacked: Any, images: Any, labels: Any, seeds: Any) -> Any:
    one = trace(
        network.loss,
        {path: Spec(p.shape, "float64") for path, p in network.parameters(network.inputs).items()},
        Spec(images.shape[1:], "float64"),
        Spec(labels.shape[1:], "int64"),
        (Spec((), "int64"),) * network.seeds(),
    )
    many = vmap(one, MEMBERS)

    def losses(parameters: Any, x: Any, y: Any, seeds: Any) -> Any:
        numbers = [Value(tuple(row[i] for row in seeds)) for i in range(network.seeds())]
        return many([*map(Value, parameters.values()), Value(x), Value(y), *numbers])[0].array

    def total(*arguments: Any) -> Any:
        return op.sum(losses(*arguments))

    def both(*arguments: Any) -> Any:
        return losses(*arguments), value_and_grad(total)(*arguments)[1]

    arguments = (stacked, images, labels, [tuple(row) for row in seeds])
    return trace(both, *arguments).compile()(*arguments)


def test_what_is_shared_by_all_is_no_stack() -> None:
    one = trace(lambda x, w: op.relu(op.dot(x, w)), Spec((4, 3)), Spec((3, 2)))
    many = vmap(one, 2)
    run = trace(
        lambda x, w: many([Value(x, stacked=False), Value(w)])[0].array,
        Spec((4, 3), "float64"),
        Spec((2, 3, 2), "float64"),
    )
    assert [i.name for i in run.instructions] == ["dot", "relu"]
    x, w = np.ones((4, 3)), np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_allclose(run.compile()(x, w), np.maximum(x @ w, 0))
