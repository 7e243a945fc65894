"""`from_torch`: a PyTorch module as a network of pareo, with its weights."""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from pareo.errors import PareoError, ShapeError
from pareo.nn.network import Sequential
from pareo.nn.torch_import import gate
from pareo.nn.torch_import.operators import MOVED, OPERATORS
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_names import TorchName

BATCH = 2  # images of the graph that is exported; the gate has another number


@dataclass(frozen=True)
class Imported:
    """A network that was a PyTorch module.

    parameters: the module's weights by path, for `fit(weights=...)` and the network itself.
    names: PyTorch's name of each parameter, by path.
    unused: the names of weights that the result does not depend on, which the network lacks.
    notes: what is different in training, each in one sentence; of networks from ONNX files.
    """

    network: Sequential
    parameters: Mapping[str, Any] = field(repr=False)
    names: Mapping[str, TorchName] = field(repr=False)
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def from_torch(module: Any, example: Any, name: str | None = None) -> Imported:
    """A PyTorch module as a network, after a check that it computes the same.

    Args:
        module: it stays as it is. The network is what it computes in training.
        example: a batch of inputs, or the shape of one input, such as (3, 224, 224).
        name: the network's; by default that of the module's class.

    Outputs, loss, every gradient and the running statistics are compared in float64. A module with
    operators that pareo does not have is refused, with a list of all of them.
    """
    torch = import_module("torch")
    if not isinstance(module, torch.nn.Module):
        raise PareoError(f"from_torch expects a torch.nn.Module; got {module!r}")
    shape = _shape(example)
    name = name or type(module).__name__
    exact, program = _exported(torch, module, shape, name)
    reader = Reader(program, BATCH, shape)
    reader.read(OPERATORS, MOVED)
    reader.check(name)
    result = reader.result
    if result is None or len(result.shape) != 1:
        got = "none" if result is None else ("N", *result.seen)
        raise PareoError(f"from_torch expects a module whose result is (N, classes); got {got}")
    network = reader.network(name)
    wanted = network.parameters(network.inputs)
    names = {path: reader.names[path] for path in wanted}
    gate.check(exact, reader, names, name)
    found = _arrays(torch, module)
    parameters = {
        path: np.ascontiguousarray(names[path].from_torch(found[names[path].name], p.shape))
        for path, p in wanted.items()
    }
    used = {name.name for name in names.values()}
    unused = tuple(n for n in found if n not in used and not n.endswith("num_batches_tracked"))
    return Imported(network, parameters, names, unused)


def _arrays(torch: Any, module: Any) -> dict[str, Any]:
    """The module's weights by PyTorch's names; those of half precision in float32."""
    found = {}
    for name, tensor in module.state_dict().items():
        a = tensor.detach().cpu()
        half = a.dtype in (torch.float16, torch.bfloat16)
        found[name] = (a.float() if half else a).numpy().copy()
    return found


def _shape(example: Any) -> tuple[int, ...]:
    """The shape of one input."""
    if hasattr(example, "shape"):
        if len(example.shape) < 2:
            raise ShapeError(f"from_torch expects a batch of inputs; got {tuple(example.shape)}")
        return tuple(int(size) for size in example.shape[1:])
    if isinstance(example, list | tuple) and example and all(type(n) is int for n in example):
        return tuple(example)
    raise ShapeError(
        f"from_torch expects a batch of inputs or a shape such as (3, 32, 32); got {example!r}"
    )


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep PyTorch from logging the traceback of an error, which is one sentence here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _exported(torch: Any, module: Any, shape: tuple[int, ...], name: str) -> tuple[Any, Any]:
    """A copy of the module in float64, and its graph of ATen's operators in training."""
    inputs = torch.zeros((BATCH, *shape), dtype=torch.float64)
    try:
        with warnings.catch_warnings(), _unlogged():
            warnings.simplefilter("ignore")
            exact = copy.deepcopy(module).to("cpu").double().train()
            return exact, torch.export.export(exact, (inputs,))
    except Exception as error:  # whatever the user's module raises
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PareoError(
            f"torch.export cannot export {name} for inputs of shape {shape}: {first}"
        ) from error
