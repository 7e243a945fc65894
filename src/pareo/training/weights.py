"""Weights from files of others, by name: safetensors, `state_dict`s of PyTorch, checkpoints."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pareo.errors import DataError, PareoError, ShapeError
from pareo.nn.network import Sequential
from pareo.nn.other_names import renamed
from pareo.nn.torch_import import Imported
from pareo.nn.torch_names import COUNTER, TorchName, torch_names
from pareo.regular_file import regular
from pareo.training import checkpoint

# Under which training scripts keep the weights beside other things, and what wrappers put first.
INSIDE = ("state_dict", "model_state_dict", "model", "state_dict_ema", "model_ema")
WRAPPERS = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True)
class Weights:
    """The weights of a file that fit a network, and all that do not, by the names in the file.

    parameters: those that fit, by the network's paths.
    """

    source: str
    network: str
    parameters: dict[str, Any] = field(repr=False)
    missing: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every weight of the network was found, and nothing else."""
        return not (self.missing or self.left_over or self.misshapen)

    def __str__(self) -> str:
        """What does not fit, in one sentence with all names."""
        kinds = {
            "missing": self.missing,
            "left over": self.left_over,
            "of another shape": self.misshapen,
        }
        said = [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
        fit = f"{self.source}: its weights are those of {self.network}"
        return fit if not said else f"{fit}, except for those that are {'; '.join(said)}"


def load_weights(
    network: Sequential | Imported,
    file: str | os.PathLike[str],
    names: Mapping[str, TorchName] | None = None,
    strict: bool = True,
) -> dict[str, Any]:
    """The weights in a file by the network's paths, for `fit(weights=...)` and the network itself.

    Args:
        file: a safetensors file or a `state_dict` that `torch.save` wrote, with the names of
            torchvision or timm, or of the module that was imported; or a checkpoint of pareo.
        names: PyTorch's names of the weights by path, if they are not those of `torch_names`.
        strict: whether all weights must fit. If not, those that do are returned.

    Nothing in the file is executed. What is missing, left over or of another shape is listed in
    the error, all at once.
    """
    found = matched(network, file, names)
    if not found.parameters or (strict and not found.complete):
        raise ShapeError(str(found) if found.parameters else _unlike(found))
    return found.parameters


def matched(
    network: Sequential | Imported,
    file: str | os.PathLike[str],
    names: Mapping[str, TorchName] | None = None,
) -> Weights:
    """The weights in a file that fit a network, and what does not."""
    if isinstance(network, Imported):
        names, network = names or network.names, network.network
    path = Path(file)
    shapes = {path: tuple(p.shape) for path, p in network.parameters(network.inputs).items()}
    arrays, ours = read_arrays(path)
    if ours:
        same = {path: TorchName(path, "same", shape) for path, shape in shapes.items()}
        return _matched(str(path), network.name, shapes, same, arrays)
    known = names or torch_names(network)
    return _matched(str(path), network.name, shapes, known, renamed(arrays, known))


def _matched(
    source: str,
    network: str,
    shapes: Mapping[str, tuple[int, ...]],
    names: Mapping[str, TorchName],
    arrays: Mapping[str, Any],
) -> Weights:
    wanted = {path: names[path] for path in shapes}
    parameters, missing, misshapen = {}, [], []
    for path, name in wanted.items():
        array = arrays.get(name.name)
        if array is None:
            missing.append(name.name)
        elif array.shape != tuple(name.shape):
            misshapen.append(f"{name.name} {array.shape} instead of {tuple(name.shape)}")
        else:
            a = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
            found = np.ascontiguousarray(name.from_torch(a, shapes[path]))
            parameters[path] = found.reshape(shapes[path])  # a number has become an array of one
    expected = {name.name for name in wanted.values()}
    left_over = [name for name in arrays if name not in expected and not name.endswith(COUNTER)]
    infinite = [names[path].name for path, a in parameters.items() if not np.isfinite(a).all()]
    if infinite:
        raise DataError(f"{source}: has values that are not finite in {', '.join(infinite)}")
    return Weights(source, network, parameters, tuple(missing), tuple(left_over), tuple(misshapen))


def _unlike(found: Weights) -> str:
    names = ", ".join(found.left_over[:3]) or ", ".join(found.misshapen[:3]) or "nothing"
    return f"{found.source}: has no weights that fit {found.network}; it has {names}, for example"


def read_arrays(path: Path) -> tuple[dict[str, Any], bool]:
    """The arrays of a file by name, and whether it is a checkpoint of pareo."""
    if path.is_dir():
        return checkpoint.load(path).weights, True
    try:
        with regular(path).open("rb") as file:
            begin = file.read(16)
    except OSError as error:
        raise DataError(f"{path}: expected a file of weights; got: {error.strerror}") from error
    if begin[8:9] == b"{":  # the length of a safetensors file's header, and the header
        arrays, metadata = _safetensors(path)
        if "pareo" in metadata:
            return checkpoint.load(path).weights, True
        return arrays, False
    return _state_dict(path), False


def _safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            kinds = {file.get_slice(name).get_dtype() for name in names}
            if "BF16" not in kinds:
                return {name: file.get_tensor(name) for name in names}, metadata
        with safe_open(path, framework="pt") as file:  # NumPy has no bfloat16
            return {name: file.get_tensor(name).float().numpy() for name in names}, metadata
    except ImportError as error:
        raise PareoError(f"{path}: bfloat16 needs PyTorch: pip install 'pareo[torch]'") from error
    except MemoryError as error:
        raise DataError(f"{path}: does not fit in memory") from error
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise DataError(f"{path}: expected a complete safetensors file; got: {error}") from error


def _state_dict(path: Path) -> dict[str, Any]:
    """The tensors in a file of `torch.save`, read by PyTorch's restricted unpickler."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise PareoError(f"{path}: needs PyTorch: pip install 'pareo[torch]'") from error
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch raises many kinds for what it does not read
        raise DataError(
            f"{path}: expected a safetensors file, or a state_dict of tensors that torch.save wrote"
        ) from error
    found = _innermost(found, torch)
    if not found:
        raise DataError(f"{path}: has no tensors by name, as a state_dict does")
    for wrapper in WRAPPERS:
        if all(name.startswith(wrapper) for name in found):
            found = {name.removeprefix(wrapper): a for name, a in found.items()}
    return {name: _array(torch, path, name, a) for name, a in found.items()}


def _innermost(found: Any, torch: Any) -> dict[str, Any]:
    """The dict of tensors, which may be in one with other things."""
    if not isinstance(found, Mapping):
        return {}
    for key in INSIDE:
        if isinstance(found.get(key), Mapping):
            return _innermost(found[key], torch)
    return {str(name): a for name, a in found.items() if isinstance(a, torch.Tensor)}


def _array(torch: Any, path: Path, name: str, tensor: Any) -> Any:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    try:
        return (tensor.float() if half else tensor).detach().numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantized, or of 8 bits
        kind = f"{tensor.layout} tensor of {tensor.dtype}".replace("torch.", "")
        raise DataError(f"{path}: '{name}' is a {kind}, which is no array of NumPy") from error
