"""Graphs: layers and joins by name, each of which reads other nodes or the input."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pareo.errors import ShapeError
from pareo.nn.containers import Container, Interpreter, joined_shape, run_layer
from pareo.nn.layers import Layer, Shape

INPUT = "input"
JOINS = ("add", "multiply", "concat", "matmul")


@dataclass(frozen=True)
class Node:
    """A layer of one input, or a join of several, by the names of what it reads."""

    name: str
    what: Layer | str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Graph(Container):
    """Any graph without cycles; its last node is the result.

    A node is a layer and the name of what it reads, or 'add', 'multiply', 'concat' or 'matmul' and
    the names of what it joins; 'input' is the input of the graph. A layer alone reads the node
    before it. The paths of parameters start with the name of their node.

    >>> from pareo.nn import Dense, Graph, ReLU, Sequential
    >>> graph = Graph({
    ...     "first": Dense(3),
    ...     "active": ReLU(),
    ...     "second": (Dense(3), "input"),
    ...     "sum": ("add", "active", "second"),
    ... })
    >>> sorted(Sequential([("", graph)], input_shape=(4,)).initialise())
    ['first.b', 'first.w', 'second.b', 'second.w']
    """

    nodes: tuple[Node, ...]
    order: tuple[Node, ...] = field(default=(), compare=False, repr=False)

    def __init__(self, nodes: Any) -> None:
        """`nodes` is a dict of nodes by name, or a list of pairs (name, node)."""
        pairs = list(nodes.items()) if isinstance(nodes, Mapping) else list(nodes)
        made = tuple(_nodes(pairs))
        object.__setattr__(self, "nodes", made)
        object.__setattr__(self, "order", tuple(_ordered(made)))

    def children(self, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
        for node, incoming, _ in self._shapes(shape):
            if isinstance(node.what, Layer):
                yield node.name, node.what, incoming[0]

    def output(self, shape: Shape) -> Shape:
        return {node.name: found for node, _, found in self._shapes(shape)}[self.nodes[-1].name]

    def _shapes(self, shape: Shape) -> Iterator[tuple[Node, list[Shape], Shape]]:
        """Every node in the order of computation, the shapes that it reads, and its own."""
        known = {INPUT: tuple(shape)}
        for node in self.order:
            incoming = [known[name] for name in node.reads]
            try:
                if isinstance(node.what, str):
                    found = joined_shape(node.what, node.what, incoming)
                else:
                    node.what.parameters(incoming[0])  # raises an error if the layer does not fit
                    found = node.what.output(incoming[0])
            except ShapeError as error:
                raise ShapeError(f"the node '{node.name}' does not fit: {error}") from None
            known[node.name] = found
            yield node, incoming, found

    def seeds(self) -> int:
        return sum(node.what.seeds() for node in self.nodes if isinstance(node.what, Layer))

    def run(self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter) -> Any:
        return self.values(parameters, x, interpreter)[self.nodes[-1].name]

    def values(
        self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter
    ) -> dict[str, Any]:
        """The output of every node for a batch."""
        own: dict[str, dict[str, Any]] = {}  # those of a layer itself, not of one below its name
        for path, array in parameters.items():
            name, _, last = path.rpartition(".")
            own.setdefault(name, {})[last] = array
        known = {INPUT: x}
        for node in self.order:
            parts = [known[name] for name in node.reads]
            if isinstance(node.what, str):
                found = interpreter.join(node.what, parts)
            elif isinstance(node.what, Container):
                found = run_layer(node.what, node.name, parameters, parts[0], interpreter)
            else:
                found = interpreter.layer(node.what, own.get(node.name, {}), parts[0])
            known[node.name] = found
        return known


def _nodes(pairs: Sequence[Any]) -> Iterator[Node]:
    """The nodes, each checked by itself."""
    if not pairs:
        raise ShapeError("Graph expects at least one node")
    before, seen = INPUT, {INPUT}
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ShapeError(f"Graph expects pairs of a name and a node; got {pair!r}")
        name, given = pair
        if not isinstance(name, str) or not name or not all(name.split(".")):
            raise ShapeError(f"Graph expects names such as 'conv1'; got {name!r}")
        if name in seen:
            why = "is the graph's own input" if name == INPUT else "names two nodes"
            raise ShapeError(f"Graph expects names that differ from each other; '{name}' {why}")
        seen.add(name)
        yield _node(name, (given, before) if isinstance(given, Layer) else given)
        before = name


def _node(name: str, given: Any) -> Node:
    what, *reads = given if isinstance(given, tuple | list) and given else (given,)
    if not all(isinstance(one, str) for one in reads):
        raise ShapeError(f"the node '{name}' expects names of nodes to read; got {reads}")
    if isinstance(what, Layer):
        if len(reads) != 1:
            raise ShapeError(f"the node '{name}' is a layer, which reads one node; got {reads}")
    elif what not in JOINS:
        raise ShapeError(
            f"the node '{name}' expects a layer or one of {', '.join(JOINS)}; got {what!r}"
        )
    elif len(reads) < 2:
        raise ShapeError(f"the node '{name}' joins at least two nodes; got {reads}")
    elif what == "matmul" and len(reads) != 2:
        raise ShapeError(f"the node '{name}' multiplies two nodes; got {reads}")
    return Node(name, what, tuple(reads))


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    """The nodes as they are listed if each follows all that it reads, else sorted so."""
    known = {node.name for node in nodes}
    for node in nodes:
        for name in node.reads:
            if name not in known and name != INPUT:
                raise ShapeError(f"the node '{node.name}' reads '{name}', which is no node")
    read = {name for node in nodes for name in node.reads}
    for node in nodes[:-1]:
        if node.name not in read:
            raise ShapeError(f"nothing reads the node '{node.name}', and it is not the last")
    try:
        found = TopologicalSorter({node.name: node.reads for node in nodes}).static_order()
        sorted_names = [name for name in found if name != INPUT]
    except CycleError as error:
        names = ", ".join(f"'{name}'" for name in error.args[1][:-1])
        raise ShapeError(f"the nodes {names} read each other in a cycle") from None
    if _follow(nodes):
        return list(nodes)
    by_name = {node.name: node for node in nodes}
    return [by_name[name] for name in sorted_names]


def _follow(nodes: Sequence[Node]) -> bool:
    """Whether each node is listed after all that it reads."""
    done = {INPUT}
    for node in nodes:
        if not done.issuperset(node.reads):
            return False
        done.add(node.name)
    return True
