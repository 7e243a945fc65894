"""`from_torch`: a PyTorch module as a network of pareo, with its weights."""

import copy
import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from pareo.errors import PareoError, ShapeError
from pareo.nn.network import Sequential
from pareo.nn.torch_import import gate
from pareo.nn.torch_import.chance import in_float64
from pareo.nn.torch_import.operators import MOVED, OPERATORS
from pareo.nn.torch_import.quiet import quiet
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_names import TorchName

SHOWN = 3  # names that a note lists
BATCH = 2  # images of the graph that is exported; the gate has another number


@dataclass(frozen=True)
class Imported:
    """A network that was a PyTorch module.

    parameters: the module's weights by path, for `fit(weights=...)` and the network itself.
    names: PyTorch's name of each parameter, by path.
    unused: the names of weights that the result does not depend on, which the network lacks.
    notes: what is different in training from how it was given, each in one sentence.
    """

    network: Sequential
    parameters: Mapping[str, Any] = field(repr=False)
    names: Mapping[str, TorchName] = field(repr=False)
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def from_torch(module: Any, example: Any, name: str | None = None) -> Imported:
    """A PyTorch module as a network, after a check that it computes the same.

    Args:
        module: it stays as it is, but that lazy layers get their sizes. The network is what it
            computes in training, also if it is in evaluation mode.
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
    _check_inputs(module, name)
    _settle_sizes(torch, module, shape)
    exact, program = _exported(torch, module, shape, name)
    reader = Reader(program, BATCH, shape)
    with in_float64(torch):
        reader.read(OPERATORS, MOVED)
    reader.check(name)
    result = reader.result
    if result is None or len(result.shape) != 1:
        got = "none" if result is None else ("N", *result.seen)
        raise PareoError(f"from_torch expects a module whose result is (N, classes); got {got}")
    network = reader.network(name)
    wanted = network.parameters(network.inputs)
    names = {path: reader.names[path] for path in wanted}
    if not any(parameter.trained for parameter in wanted.values()):
        raise PareoError(f"{name} has no weights to train")
    state = exact.state_dict()
    whole = [one.name for one in names.values() if not state[one.name].is_floating_point()]
    if whole:
        raise PareoError(f"{name} has weights of other numbers than floats: {', '.join(whole[:3])}")
    gate.check(exact, reader, names, name)
    found = _arrays(torch, module)
    parameters = {
        path: np.ascontiguousarray(names[path].from_torch(found[names[path].name], p.shape))
        for path, p in wanted.items()
    }
    used = {name.name for name in names.values()}
    unused = tuple(n for n in found if n not in used and not n.endswith("num_batches_tracked"))
    return Imported(network, parameters, names, unused, _notes(torch, module))


def _notes(torch: Any, module: Any) -> tuple[str, ...]:
    """What is different in training from how the module was given."""
    modules = torch.nn.modules
    kinds = (modules.batchnorm._BatchNorm, modules.dropout._DropoutNd)
    found = []
    tested = [one for one in module.modules() if isinstance(one, kinds) and not one.training]
    if tested:
        names = " and ".join(sorted({type(one).__name__ for one in tested}))
        found.append(f"it was in evaluation mode, and trains in training mode, with {names}")
    frozen = [name for name, one in module.named_parameters() if not one.requires_grad]
    if frozen:
        more = f" and {len(frozen) - SHOWN} more" if len(frozen) > SHOWN else ""
        found.append(f"weights that were frozen are trained: {', '.join(frozen[:SHOWN])}{more}")
    return tuple(found)


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


def _exported(torch: Any, module: Any, shape: tuple[int, ...], name: str) -> tuple[Any, Any]:
    """A copy of the module in float64, and its graph of ATen's operators in training."""
    inputs = torch.zeros((BATCH, *shape), dtype=torch.float64)
    try:
        with quiet(), in_float64(torch):
            exact = copy.deepcopy(module).to("cpu").double().train()
            program = torch.export.export(exact, (inputs,))
    except Exception as error:  # whatever the user's module raises
        raise PareoError(
            f"torch.export cannot export {name} for inputs of shape {shape}: "
            f"{_reason(torch, module, error)}"
        ) from error
    _check_result(program, name)
    return exact, program


def _reason(torch: Any, module: Any, error: Exception) -> str:
    """Why a module cannot be exported, in one line."""
    text = str(error).strip()
    if "data-dependent" in text:
        own = os.path.dirname(str(torch.__file__)) + os.sep
        frames = re.findall(r'File "([^"]+)", line (\d+)', text)
        outside = [frame for frame in frames if not frame[0].startswith(own)]
        place = f", in {os.path.basename(outside[-1][0])}, line {outside[-1][1]}" if outside else ""
        return f"what its forward computes depends on the numbers of a tensor{place}"
    first = text.partition("\n")[0] or type(error).__name__
    if any(isinstance(layer, torch.nn.Embedding) for layer in module.modules()):
        return f"it takes inputs of whole numbers, and pareo has none ({first})"
    return first


def _check_inputs(module: Any, name: str) -> None:
    """Refuse a module whose `forward` needs more than one input."""
    try:
        given = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return  # torch.export finds out
    needed = [
        one.name for one in given
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]  # fmt: skip
    if len(needed) > 1 and not hasattr(module, "graph"):
        raise PareoError(
            f"from_torch expects a module of one input; the forward of {name} takes "
            f"{', '.join(needed)}"
        )


def _settle_sizes(torch: Any, module: Any, shape: tuple[int, ...]) -> None:
    """Give lazy layers, whose sizes follow from their first input, these sizes."""
    lazy = torch.nn.parameter.is_lazy
    if not any(lazy(one) for one in (*module.parameters(), *module.buffers())):
        return
    training = module.training
    try:
        with torch.no_grad():
            module.eval()(torch.zeros(BATCH, *shape))
    except Exception as error:  # whatever the user's module raises
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PareoError(f"the lazy layers cannot take inputs of shape {shape}: {first}") from error
    finally:
        module.train(training)


def _check_result(program: Any, name: str) -> None:
    """Refuse a module that returns a dict, or another container of one tensor."""
    result = program.call_spec.out_spec
    if result.is_leaf() or result.num_leaves != 1:
        return  # several results are refused where they are read
    if result.type is dict:
        keys = ", ".join(map(str, result.context))
        got = f"a dict with the keys {keys}"
    else:
        got = f"a {result.type.__name__}"
    raise PareoError(f"{name} returns {got}; from_torch expects one tensor (N, classes)")
