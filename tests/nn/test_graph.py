"""Graphs of layers: against PyTorch, numerical gradients and the containers that they contain."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_network import forward, loss_and_gradients
from torch_steps import starting_weights

from pareo import Device, Spec, nn, to_host, trace, value_and_grad
from pareo.data import load as load_data
from pareo.errors import DataError, ShapeError
from pareo.lab.contestants import without_dropout
from pareo.nn.network import Sequential
from pareo.training import fit, load
from pareo.training.definition import describe, rebuild
from pareo.training.step import dropout_seeds

CROSSED = {
    "stem": (nn.Conv(4, 3, padding=1, bias=False), "input"),
    "norm": nn.BatchNorm(),
    "left.conv": (nn.Conv(4, 3, padding=1), "norm"),
    "right.conv": (nn.Conv(4, 1), "norm"),
    "sum": ("add", "left.conv", "right.conv", "norm"),
    "pool": (nn.GlobalAveragePool(), "left.conv"),
    "gate": nn.Sigmoid(),
    "gated": ("multiply", "sum", "gate"),
    "both": ("concat", "gated", "stem", "right.conv"),
    "drop": (nn.Dropout(0.25), "both"),
    "flat": nn.Flatten(),
    "fc": nn.Dense(3),
}


def network_of(nodes: Any, shape: tuple[int, ...] = (2, 5, 5)) -> Sequential:
    return Sequential([("", nn.Graph(nodes))], shape, "graph")


def check_against_torch(network: Sequential, device: str = "vectorized") -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((3, *network.inputs))
    labels = np.arange(3) % network.classes
    parameters = starting_weights(network, "float64")
    seeds = dropout_seeds(3, 0, network.seeds())
    numbers = tuple(np.asarray(seed, np.int64) for seed in seeds)
    program = trace(value_and_grad(network.loss), parameters, x, labels, numbers)
    with Device(device):
        loss, gradients = to_host(program.compile()(parameters, x, labels, numbers))
    expected_loss, expected = loss_and_gradients(network, parameters, x, labels, seeds)
    assert float(loss) == pytest.approx(expected_loss, rel=1e-11)
    for path, gradient in expected.items():
        np.testing.assert_allclose(gradients[path], gradient, rtol=1e-9, atol=1e-11, err_msg=path)


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
def test_loss_and_gradients_equal_those_of_torch(device: str) -> None:
    check_against_torch(network_of(CROSSED), device)


MOVED = {
    "split": nn.Reshape((1, 2, 5, 5)),
    "turned": nn.Permute((0, 2, 1, 4, 3)),
    "back": nn.Reshape((2, 5, 5)),
    "part": nn.Part(3, 1, 4),
    "mean": nn.AveragePool(3, 2, 1, ceil=True, counts_padding=True),
    "conv": nn.Conv(2, 1),
    "flat": nn.Flatten(),
    "fc": nn.Dense(3),
}


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
def test_moved_elements_equal_those_of_torch(device: str) -> None:
    check_against_torch(network_of(MOVED), device)


def test_gradients_equal_differences_of_the_loss() -> None:
    network = without_dropout(network_of(CROSSED))
    parameters = starting_weights(network, "float64")
    random = np.random.default_rng(1)
    x, labels = random.standard_normal((2, 2, 5, 5)), np.array([0, 2])
    with Device("vectorized"):
        gradients = value_and_grad(network.loss)(parameters, x, labels)[1]
        for path in ("stem.w", "norm.scale", "left.conv.w", "right.conv.b", "fc.w"):
            direction = random.standard_normal(parameters[path].shape)
            ends = [
                float(network.loss({**parameters, path: parameters[path] + step * direction}, x,
                                   labels))
                for step in (1e-6, -1e-6)
            ]  # fmt: skip
            expected = (ends[0] - ends[1]) / 2e-6
            assert np.vdot(gradients[path], direction) == pytest.approx(expected, rel=1e-6), path


@st.composite
def drawn_nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes on images of one size; whatever is not read by others is concatenated at the end."""
    kinds = [nn.Conv(2, 3, padding=1), nn.ReLU(), nn.Tanh(), nn.BatchNorm(), nn.Conv(2, 1)]
    nodes: dict[str, Any] = {}
    names = ["input"]
    for number in range(draw(st.integers(1, 7))):
        sources = st.sampled_from(names)
        if draw(st.booleans()):
            nodes[f"n{number}"] = (draw(st.sampled_from(kinds)), draw(sources))
        else:
            several = draw(st.lists(sources, min_size=2, max_size=3))
            nodes[f"n{number}"] = (draw(st.sampled_from(["add", "multiply"])), *several)
        names.append(f"n{number}")
    read = {name for _, *reads in nodes.values() for name in reads}
    ends = [name for name in nodes if name not in read]
    nodes["all"] = ("concat", "input", *ends)
    return {**nodes, "flat": nn.Flatten(), "fc": nn.Dense(3)}


@given(drawn_nodes())
@settings(max_examples=25, deadline=None)
def test_random_graphs_equal_torch(nodes: dict[str, Any]) -> None:
    check_against_torch(network_of(nodes, (2, 3, 3)))


@given(drawn_nodes(), st.randoms())
@settings(max_examples=25, deadline=None)
def test_nodes_may_be_listed_in_any_order(nodes: dict[str, Any], random: Any) -> None:
    in_order = nn.Graph(nodes)
    pairs = [(node.name, (node.what, *node.reads)) for node in in_order.nodes]
    *others, last = pairs
    random.shuffle(others)
    mixed = nn.Graph([*others, last])
    position = {node.name: number for number, node in enumerate(mixed.order)}
    for node in mixed.order:
        assert all(position.get(name, -1) < position[node.name] for name in node.reads)
    one, other = (Sequential([("", graph)], (2, 3, 3)) for graph in (in_order, mixed))
    assert one.parameters(one.inputs) == other.parameters(other.inputs)
    parameters, x = one.initialise(dtype="float64"), np.random.default_rng(2).random((2, 2, 3, 3))
    with Device("vectorized"):
        np.testing.assert_array_equal(one(parameters, x), other(parameters, x))


def test_the_order_of_a_plain_list_is_kept() -> None:
    graph = nn.Graph(CROSSED)
    assert graph.order == graph.nodes


def test_shapes_parameters_state_and_seeds() -> None:
    network = network_of(CROSSED)
    assert network.classes == 3
    assert network.state == ("norm.mean", "norm.variance")
    assert network.seeds() == 1
    assert list(network.parameters(network.inputs)) == [
        "stem.w", "norm.scale", "norm.shift", "norm.mean", "norm.variance", "left.conv.w",
        "left.conv.b", "right.conv.w", "right.conv.b", "fc.w", "fc.b",
    ]  # fmt: skip
    assert network.count() == 72 + 8 + 148 + 20 + 903


def test_summary_has_a_row_for_every_layer() -> None:
    rows = network_of(CROSSED).summary().splitlines()
    assert [row.split()[0] for row in rows[1:-1]] == [
        name for name, node in CROSSED.items() if not isinstance(node, tuple)
        or isinstance(node[0], nn.Layer)
    ]  # fmt: skip
    assert rows[1].split()[1:5] == ["Conv", "4", "@", "3x3"]


def test_without_dropout_keeps_all_other_nodes() -> None:
    bare = without_dropout(network_of(CROSSED))
    assert bare.seeds() == 0
    assert bare.parameters(bare.inputs) == network_of(CROSSED).parameters((2, 5, 5))


def test_a_graph_travels_to_another_process() -> None:
    network = network_of(CROSSED)
    assert pickle.loads(pickle.dumps(network)) == network


def test_a_graph_is_rebuilt_from_json() -> None:
    network = network_of({**CROSSED, "part": nn.Sequential([nn.Dense(3)]), "end": nn.Identity()})
    found = rebuild(json.loads(json.dumps(describe(network))))
    assert found == network
    assert network != network_of(CROSSED)


def test_a_checkpoint_of_a_graph_is_read_again(tmp_path: Any) -> None:
    data = load_data("synthetic:2x5x5:3:40")
    network = network_of(CROSSED)
    result = fit(network, data, epochs=1, batch_size=16, device="vectorized", progress=False,
                 checkpoint=tmp_path)  # fmt: skip
    known = load(tmp_path)
    assert known.network == network
    for path, array in result.parameters.items():
        np.testing.assert_array_equal(known.weights[path], array)


@pytest.mark.parametrize(
    "damage",
    [
        {"nodes": 3},
        {"nodes": [3]},
        {"nodes": []},
        {"nodes": [{"name": "a", "what": "add"}]},
        {"nodes": [{"name": "a", "what": "power", "reads": ["input", "input"]}]},
        {"nodes": [{"name": "a", "what": {"layer": "ReLU"}, "reads": ["a"]}]},
        {"nodes": [{"name": "a", "what": {"layer": "os.system"}, "reads": ["input"]}]},
    ],
)
def test_a_damaged_description_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        rebuild({"layer": "Graph", **damage})


RELU = nn.ReLU()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({}, "at least one node"),
        ({"a": (RELU, "b"), "b": (RELU, "a")}, r"'[ab]', '[ab]' read each other in a cycle"),
        ({"a": (RELU, "a")}, "'a' read"),
        ({"a": (RELU, "c")}, "the node 'a' reads 'c', which is no node"),
        ({"a": RELU, "b": (RELU, "input")}, "nothing reads the node 'a'"),
        ({"a": ("add", "input")}, "joins at least two"),
        ({"a": ("matmul", "input", "input", "input")}, "multiplies two nodes"),
        ({"a": (RELU, "input", "input")}, "reads one node"),
        ({"a": ("power", "input", "input")}, "one of add, multiply, concat, matmul; got 'power'"),
        ({"a": 3}, "got 3"),
        ({"a": (RELU, 3)}, "names of nodes to read"),
        ({"input": RELU}, "the graph's own input"),
        ({"a..b": RELU}, "names such as 'conv1'"),
        ([("a", RELU), ("a", RELU)], "names two nodes"),
        (["a"], "pairs of a name and a node"),
    ],
)
def test_wrong_graphs_are_refused(nodes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        nn.Graph(nodes)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"a": nn.Conv(2, 9)}, "the node 'a' does not fit: Conv"),
        ({"a": nn.Dense(2)}, "the node 'a' does not fit: Dense expects flat inputs"),
        ({"a": nn.Conv(3, 1), "b": ("add", "a", "input")}, "'b' does not fit: add expects"),
        ({"a": nn.MaxPool(2), "b": ("concat", "a", "input")}, "'b' does not fit: concat expects"),
        ({"a": nn.Reshape((5, 5))}, "Reshape expects as many elements as"),
        ({"a": nn.Permute((1, 0, 2, 3))}, "Permute expects 0 and then the axes"),
        ({"a": nn.Permute((0, 1, 2))}, "Permute expects 0 and then the axes"),
        ({"a": nn.Part(0, 0, 1)}, "Part expects an axis of"),
        ({"a": nn.Part(1, 1, 3)}, "a stop of at most 2; got 1 and 3"),
        ({"a": nn.Flatten(), "b": ("multiply", "a", "input")}, "same number of axes"),
    ],
)
def test_shapes_that_do_not_fit_name_the_node(nodes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        network_of(nodes)


def test_outside_of_training_it_computes_what_torch_does() -> None:
    import torch

    network = network_of(CROSSED)
    parameters = starting_weights(network, "float64")
    x = np.random.default_rng(3).standard_normal((2, 2, 5, 5))
    tensors = {path: torch.tensor(a) for path, a in parameters.items()}
    with Device("vectorized"):
        found = trace(network, parameters, Spec(x.shape, "float64")).compile()(parameters, x)
    expected = forward(network, tensors, torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-11)
