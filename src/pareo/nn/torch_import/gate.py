"""The gate of imports: the network computes what the module does, or it is refused.

Both compute in float64, from weights that are drawn around the module's own, so that a scale of 1
or a shift of 0 hides nothing. Dropout and stochastic depth do nothing in either.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.device import Device
from pareo.errors import PareoError
from pareo.nn.containers import OwnOperators
from pareo.nn.layers import Context
from pareo.nn.network import Sequential
from pareo.nn.torch_import.chance import in_float64, settle, without_chance
from pareo.nn.torch_import.places import place_of
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_names import TorchName
from pareo.program import trace, value_and_grad

BATCH = 3  # not that of the exported graph, so that a shape with a fixed batch is found
# In float64, sums in another order through a hundred layers, some of them normalised, differ by up
# to 1e-10 of their norm; PyTorch's gradient of hardsigmoid, which has 1/6 in float32, by 3e-8. An
# epsilon of 1e-6 in place of 1e-5 makes 4e-6, anything else that is wrong more.
TOLERANCE = 1e-6
# Of the norm of all gradients: what a gradient of 0, as of a bias before a normalisation, may be.
NOTHING = 1e-10
SMALL = 10_000  # elements of a weight that is drawn


def check(
    module: Any, reader: Reader, names: Mapping[str, TorchName], name: str, seed: int = 0
) -> None:
    """Refuse a network that computes something else than its module.

    module: a copy in float64, whose weights are changed here.
    """
    network = reader.network(name, chance=False)
    torch = import_module("torch")
    random = np.random.default_rng(seed)
    _draw(torch, module, random, {name.name for name in names.values()})
    parameters = _parameters(network, names, module)
    images = random.standard_normal((BATCH, *network.inputs))
    labels = random.integers(0, network.classes, BATCH)
    try:
        expected = _of_module(torch, module, images, labels, names, network)
    except Exception as error:  # whatever the user's module raises
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PareoError(f"{name} does not compute {BATCH} images: {first}") from error
    found = _of_network(network, parameters, images, labels)
    length = float(np.sqrt(sum(np.vdot(a, a) for a in expected["gradient"].values())))
    for kind, theirs in expected.items():
        for path, right in theirs.items():
            least = NOTHING * length if kind == "gradient" else 0.0
            off = float(np.linalg.norm(found[kind][path] - right))
            norm = float(np.linalg.norm(right))
            if not off <= TOLERANCE * norm + least:
                shown = off / norm if norm else off
                where = _first_difference(torch, reader, network, parameters, names)
                of = f" of {path}" if path else ""
                raise PareoError(
                    f"{name} is not imported, because its {kind}{of} would differ from PyTorch's "
                    f"by {shown:.1g} of its norm{where}"
                )


def _draw(torch: Any, module: Any, random: np.random.Generator, names: set[str]) -> None:
    """Change small weights of these names, as those of normalisations; variances stay above 0.

    Large ones are random or trained, unless all are the same.
    """
    with torch.no_grad():
        for path, tensor in module.state_dict().items():
            if path not in names or not tensor.numel():
                continue
            if tensor.numel() > SMALL and tensor.min() != tensor.max():
                continue
            factor = np.exp(0.2 * random.standard_normal(tuple(tensor.shape)))
            tensor.mul_(torch.as_tensor(factor))
            if tensor.ndim < 2 and not path.endswith("running_var"):
                shift = 0.2 * random.standard_normal(tuple(tensor.shape))
                tensor.add_(torch.as_tensor(shift))


def _parameters(network: Sequential, names: Mapping[str, TorchName], module: Any) -> dict[str, Any]:
    found = {name: a.detach().numpy().copy() for name, a in module.state_dict().items()}
    return {
        path: np.ascontiguousarray(names[path].from_torch(found[names[path].name], p.shape))
        for path, p in network.parameters(network.inputs).items()
    }


Found = dict[str, dict[str, Any]]  # by kind, and by path; outputs and losses have none


def _of_module(
    torch: Any, module: Any, images: Any, labels: Any, names: Mapping[str, TorchName],
    network: Sequential,
) -> Found:  # fmt: skip
    """What PyTorch computes; the running statistics of the module move."""
    settle(module)
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    x = torch.as_tensor(images)
    module.eval()  # where chance has no part, or the module is refused
    with torch.no_grad(), in_float64(torch):
        tested = module(x.clone()).numpy()
    module.train()
    with without_chance(torch), in_float64(torch):
        out = module(x.clone())
        loss = torch.nn.functional.cross_entropy(out, torch.as_tensor(labels))
        loss.backward()
    tensors = dict(module.named_parameters())
    state = dict(module.named_buffers())
    shapes = {path: p.shape for path, p in network.parameters(network.inputs).items()}

    def ours(path: str, tensor: Any) -> Any:
        array = tensor.detach().numpy() if tensor is not None else 0.0
        return names[path].from_torch(np.broadcast_to(array, names[path].shape), shapes[path])

    kept = network.state
    trained = [path for path in shapes if path not in set(kept)]
    return {
        "output": {"": out.detach().numpy()},
        "output after training": {"": tested},
        "loss": {"": loss.item()},
        "gradient": {path: ours(path, tensors[names[path].name].grad) for path in trained},
        "running statistic": {path: ours(path, state[names[path].name]) for path in kept},
    }


def _of_network(network: Sequential, parameters: dict[str, Any], images: Any, labels: Any) -> Found:
    """What pareo computes, as programs."""
    state = {path: parameters[path] for path in network.state}
    trained = {path: a for path, a in parameters.items() if path not in state}

    def step(trained: Any, state: Any, images: Any, labels: Any) -> Any:
        seen: list[Any] = []

        def loss(out: Any, labels: Any) -> Any:
            seen.append(out)
            return op.cross_entropy(out, labels)

        def total(trained: Any) -> Any:
            value, new = network.loss_and_state({**trained, **state}, images, labels, loss=loss)
            return value, new

        value, gradients, new = value_and_grad(total, aux=True)(trained)
        return value, gradients, new, seen[0]

    with Device("vectorized"):
        value, gradients, new, out = trace(step, trained, state, images, labels).compile()(
            trained, state, images, labels
        )
        tested = network(parameters, images)
    return {
        "output": {"": np.asarray(out)},
        "output after training": {"": np.asarray(tested)},
        "loss": {"": float(value)},
        "gradient": {path: np.asarray(a) for path, a in gradients.items()},
        "running statistic": {path: np.asarray(a) for path, a in new.items()},
    }


def _first_difference(
    torch: Any, reader: Reader, network: Sequential, parameters: Mapping[str, Any],
    names: Mapping[str, TorchName],
) -> str:  # fmt: skip
    """The first node whose output in training differs, as the end of a sentence."""
    random = np.random.default_rng(1)
    images = random.standard_normal((reader.batch, *network.inputs))
    shapes = {name.name: (path, name) for path, name in names.items()}
    theirs = _values_of_graph(torch, reader, images, lambda key: _array(shapes, parameters, key))
    ours = _values_of_network(network, parameters, images)
    for node, made in reader.needed().items():
        right, found = theirs.get(made.source), ours.get(node)
        if right is None or found is None or right.size != found.size:
            continue
        if found.ndim == 4 and right.shape != found.shape:
            found = found.transpose(0, 2, 3, 1)
        error = float(np.linalg.norm(found.reshape(right.shape) - right))
        if not error <= TOLERANCE * float(np.linalg.norm(right)):
            return f"; the first node that differs is '{node}', of {place_of(made.source)}"
    return "; the outputs of all nodes agree"


def _array(
    shapes: Mapping[str, tuple[str, TorchName]], parameters: Mapping[str, Any], key: str
) -> Any:
    if key not in shapes:
        return None
    path, name = shapes[key]
    return np.ascontiguousarray(name.to_torch(parameters[path]))


def _values_of_network(
    network: Sequential, parameters: Mapping[str, Any], images: Any
) -> dict[str, Any]:
    with Device("vectorized"):
        if network.names == ("",):
            graph: Any = network.layers[0]
            run = OwnOperators(Context(True))
            return {n: np.asarray(a) for n, a in graph.values(parameters, images, run).items()}
        found, x = {}, images
        for name, layer in zip(network.names, network.layers, strict=True):
            own = {path.rpartition(".")[2]: a for path, a in parameters.items()
                   if path.rpartition(".")[0] == name}  # fmt: skip
            x = found[name] = np.asarray(layer.apply(own, x, Context(True)))
        return found


def _values_of_graph(
    torch: Any, reader: Reader, images: Any, array: Callable[[str], Any]
) -> dict[Any, Any]:
    """The output of each node of the exported graph, computed by PyTorch."""
    found: dict[Any, Any] = {}

    class Recording(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            if "dropout" in str(node.target):
                result = self.env[node.args[0]]
            elif "bernoulli_" in str(node.target):
                result = self.env[node.args[0]].fill_(node.args[1])
            else:
                result = super().run_node(node)
            if isinstance(result, torch.Tensor):
                found[node] = result.detach().numpy().copy()
            return result

    program = reader.program
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    inputs = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            key = weights.get(node.name)
            given = images if key is None else array(key)
            inputs.append(program.state_dict[key].clone() if given is None
                          else torch.as_tensor(given.copy()))  # fmt: skip
    with torch.no_grad(), in_float64(torch):
        Recording(program.graph_module).run(*inputs, enable_io_processing=False)
    return found
