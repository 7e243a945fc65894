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
from pareo.nn.containers import Branches
from pareo.nn.network import Auxiliary
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


X, V = (2, 3, 4), (3,)
STACKED: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "gelu": (lambda x: op.gelu(x, approximate=True), [X]),
    "clip": (lambda x: op.clip(x, -0.5, 0.5), [X]),
    "leaky_relu": (lambda x: op.leaky_relu(x, 0.2), [X]),
    "batch_norm": (op.batch_norm, [X, V, V]),
    "batch_norm_inference": (
        lambda x, s, t, m: op.batch_norm_inference(x, s, t, m, np.ones(3)), [X, V, V, V]
    ),
    "layer_norm": (lambda x, s, t: op.layer_norm(x, s, t, axis=1), [X, V, V]),
    "attention": (
        lambda q, k, v, mask: op.attention_with_sums(q, k, v, mask, causal=True),
        [X, (2, 5, 4), (2, 5, 2), (3, 5)],
    ),
    "pad": (lambda x: op.pad(x, [(0, 1), (2, 0), (0, 0)], 0.5), [X]),
    "split": (lambda x: op.split(x, (1, 3)), [X]),
    "one by one": (lambda g, x, s: op.layer_norm_gradient(g, x, s, axis=1), [X, X, V]),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKED)
def test_each_set_has_the_results_of_one_alone(name: str) -> None:
    """Whichever operands the sets share."""
    function, shapes = STACKED[name]
    random = np.random.default_rng(1)
    one = trace(function, *[Spec(shape, "float64") for shape in shapes])
    for shared in [(), *[(place,) for place in range(len(shapes)) if len(shapes) > 1]]:
        arrays = [
            random.standard_normal(shape if place in shared else (MEMBERS, *shape))
            for place, shape in enumerate(shapes)
        ]
        many = vmap(one, MEMBERS)

        def run(*given: Any, many: Any = many, shared: Any = shared) -> Any:
            values = [Value(a, place not in shared) for place, a in enumerate(given)]
            return tuple(value.array for value in many(values))

        found = trace(run, *arrays).compile()(*arrays)
        for member in range(MEMBERS):
            own = [a if place in shared else a[member] for place, a in enumerate(arrays)]
            alone = function(*own)
            alone = alone if isinstance(alone, tuple) else (alone,)
            for result, expected in zip(found, alone, strict=True):
                np.testing.assert_allclose(result[member], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shared", [(), (0,), (1,)])
def test_rows_are_taken_for_each_set(shared: tuple[int, ...]) -> None:
    one = trace(op.take, Spec((4, 2), "float64"), Spec((3, 2), "int64"))
    random = np.random.default_rng(2)
    a = random.standard_normal((4, 2) if 0 in shared else (MEMBERS, 4, 2))
    index = random.integers(0, 4, (3, 2) if 1 in shared else (MEMBERS, 3, 2))
    many = vmap(one, MEMBERS)

    def run(a: Any, index: Any) -> Any:
        return many([Value(a, 0 not in shared), Value(index, 1 not in shared)])[0].array

    found = trace(run, a, index).compile()(a, index)
    for member in range(MEMBERS):
        rows = a if 0 in shared else a[member]
        places = index if 1 in shared else index[member]
        np.testing.assert_array_equal(found[member], rows[places])
