"""Networks of one's own, as the command line names them: Python objects, checkpoints, files.

FILE.py:OBJECT and PACKAGE.MODULE:OBJECT run Python code; nothing in other files is executed.
"""

import copy
import importlib.util
import inspect
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pareo.errors import PareoError, ShapeError
from pareo.nn import networks
from pareo.nn.layers import Layer, Shape
from pareo.nn.network import Sequential
from pareo.nn.torch_import import Imported, from_torch
from pareo.nn.torch_import.exported import exported, notes_of, packed, shape_of, unpacked
from pareo.nn.torch_names import TorchName
from pareo.training import checkpoint

KINDS = "a pareo network, a torch.nn.Module or a function that returns one"
FORMS = "FILE.py:OBJECT, a checkpoint, a .pt2 file or an .onnx file"
FILES = (".py", ".pt2", ".onnx", ".safetensors", ".pt", ".pth", ".bin", ".ckpt")
PYTHON = "python:"  # what the names of objects that a program gave begin with
_given: dict[str, Any] = {}
# Files that Python cannot import by their names, by those of their modules: processes that are
# started execute them before they read an object of theirs.
executed: dict[str, Path] = {}


@dataclass(frozen=True)
class Original:
    """The PyTorch module that a network was imported from, as other processes can load it.

    source: a name as `load` takes it, or the module itself as bytes.
    names: PyTorch's name of each parameter, by path.
    """

    source: str | bytes
    names: Mapping[str, TorchName] = field(repr=False)

    def load(self) -> Any:
        """A copy of the module."""
        if isinstance(self.source, str):
            return copy.deepcopy(load(self.source))
        if self.source.startswith(b"PK"):  # a .pt2 file
            return unpacked(self.source, "the module")
        return pickle.loads(self.source)  # made by this program, of its own object


@dataclass(frozen=True)
class Own:
    """A network, and what came with it.

    parameters: the weights that it was given with; None where they are to be drawn.
    original: the module that it was imported from, if it was one of PyTorch.
    names: the names of its weights in the file or module that it is from, by path.
    notes: what is different in training, each in one sentence.
    """

    network: Sequential
    parameters: Mapping[str, Any] | None = None
    original: Original | None = None
    names: Mapping[str, TorchName] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()


def is_own(name: str) -> bool:
    """Whether a name is that of a network in a file or in a module.

    >>> is_own("nets/mine.py:net"), is_own("mine.py"), is_own("model.onnx"), is_own("resnet18")
    (True, True, True, False)
    """
    if ":" in name or "/" in name or name.endswith(FILES):
        return True
    return bool(name) and name not in networks.NETWORKS and Path(name).exists()


def shown(name: str) -> str:
    """The name of the object or file alone; that of a network by name as it is.

    >>> shown("nets/mine.py:net"), shown("runs/model.pt2"), shown("resnet18")
    ('net', 'model', 'resnet18')
    """
    last = name.rpartition(":")[2]
    return Path(last).stem if last.endswith(FILES) else Path(last).name


def named(network: Any, name: str | None = None) -> str:
    """The name under which `own_network` finds an object of this program."""
    if isinstance(network, str):
        return network
    if not _is_network(network):
        raise PareoError(f"expected the name of a network, or {KINDS}; got {network!r:.60}")
    inside = network.network if isinstance(network, Imported) else network
    label = name or getattr(inside, "name", None) or type(inside).__name__
    found = f"{PYTHON}{label}".replace("/", "_")
    _given[found] = network
    load.cache_clear()
    _imported.cache_clear()
    return found


def find(name: str, shape: Shape | None = None, data: tuple[Shape, int] | None = None) -> Own:
    """The network of any name: the user's own, or one of pareo's.

    Args:
        shape: of one input, for the user's own.
        data: the shape of images, and the number of classes, for networks that take any.

    >>> find("resnet8", data=((3, 64, 64), 5)).network.inputs
    (3, 64, 64)
    """
    if is_own(name):
        return own_network(name, shape, None if data is None else data[0])
    usual = networks.by_name(name)
    if shape is not None:
        raise PareoError(f"--input is for a network of your own; got {name}")
    return Own(usual if data is None else networks.sized(name, *data))


def check_name(name: str) -> None:
    """Refuse a wrong name, before data is read."""
    if name.endswith(".onnx"):
        if not Path(name).is_file():
            raise PareoError(f"{name}: there is no such file")
    elif is_own(name):
        load(name)
    else:
        networks.by_name(name)


def own_network(name: str, given: Shape | None = None, usual: Shape | None = None) -> Own:
    """The network of this name; running a Python file runs its code.

    Args:
        given: the shape of one input, which has precedence over the object's own.
        usual: that of the data, for an object that has none.
    """
    if name.endswith(".onnx"):
        check_name(name)
        return _from_onnx(name, given)
    found, label = load(name), shown(name)
    if isinstance(found, checkpoint.Checkpoint):
        network = _sequential(found.network, given, None, name, found.network.name)
        _check_shapes(network, found.weights, name, given)
        return Own(network, found.weights)
    if isinstance(found, Imported):
        network = _sequential(found.network, given, usual, name, label)
        _check_shapes(network, found.parameters, name, given)
        return Own(network, found.parameters, names=found.names, notes=found.notes)
    if isinstance(found, Layer):
        return Own(_sequential(found, given, usual, name, label))
    shape = given or shape_of(found) or _shape_of(found, name) or usual
    if shape is None:
        raise _shapeless(name)
    return _imported(name, label, shape)


@cache
def load(name: str) -> Any:
    """The object of this name: a layer of pareo, a module of PyTorch, imported, or a checkpoint."""
    if name in _given:
        return _given[name]
    path = Path(name)
    if name.endswith(".pt2"):
        return exported(path)
    if name.endswith((".pt", ".pth", ".bin", ".ckpt")):
        raise PareoError(
            f"{name}: a file of torch.save is not executed; give the network as FILE.py:OBJECT and "
            "its weights by --weights"
        )
    if name.endswith(".safetensors") or (path.exists() and path.suffix != ".py"):
        return checkpoint.load(path)
    if not all(name.rpartition(":")[::2]):
        raise PareoError(f"expected {FORMS}, such as my_network.py:net; got '{name}'")
    found = object_of(name, _is_network)
    if not _is_network(found) and callable(found):
        found = _called(found, name)
    if not _is_network(found):
        raise PareoError(f"{name} is of the type {type(found).__name__}; expected {KINDS}")
    return found


def object_of(name: str, wanted: Callable[[Any], bool]) -> Any:
    """The object of FILE.py:OBJECT or PACKAGE.MODULE:OBJECT.

    Where there is none of this name, the error lists the objects that are `wanted`.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise PareoError(f"expected FILE.py:OBJECT, such as my_network.py:net; got '{name}'")
    found = _module(place)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PareoError(f"{place} has no object '{attribute}'{_others(found, wanted)}")
        found = getattr(found, part)
    return found


@cache
def _imported(name: str, label: str, shape: Shape) -> Own:
    module = load(name)
    found = from_torch(module, shape, label)
    source = _packed(module, shape) if name in _given else name
    original = Original(source, found.names)
    notes = (*notes_of(module), *found.notes)
    return Own(found.network, found.parameters, original, found.names, notes)


def _packed(module: Any, shape: Shape) -> bytes:
    """A module as bytes; as a graph where other processes cannot import its classes."""
    main = sys.modules["__main__"]
    notebook = not hasattr(main, "__file__")
    own = any(type(layer).__module__ == "__main__" for layer in module.modules())
    if not (notebook and own):
        try:
            return pickle.dumps(module)
        except Exception:  # of any kind: a class that is local to a function, for example
            pass
    return packed(copy.deepcopy(module).to("cpu"), shape)


@cache
def _from_onnx(name: str, shape: Shape | None) -> Own:
    found = import_module("pareo.nn.onnx_import").from_onnx(name, shape)
    notes = getattr(found, "notes", ())
    return Own(found.network, found.parameters, names=found.names, notes=notes)


def _check_shapes(
    network: Sequential, parameters: Mapping[str, Any], name: str, given: Shape | None
) -> None:
    """Refuse an input shape for which the weights have other shapes."""
    for path, parameter in network.parameters(network.inputs).items():
        if tuple(parameters[path].shape) != tuple(parameter.shape):
            raise ShapeError(
                f"{name} does not take inputs of shape {given}: its weight {path} has the shape "
                f"{tuple(parameters[path].shape)}, not {tuple(parameter.shape)}"
            )


def _is_network(found: Any) -> bool:
    if isinstance(found, type):
        return False
    torch = sys.modules.get("torch")  # what is a module of it has imported it
    module = torch is not None and isinstance(found, torch.nn.Module)
    return module or isinstance(found, Layer | Imported)


def _module(place: str) -> Any:
    """The Python file, or the module of a package, executed."""
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name and f"{place}.".startswith(f"{error.name}."):
                raise PareoError(f"there is no module '{place}'; a file is FILE.py") from None
            raise failed(place, error) from error
        except (Exception, SystemExit) as error:  # whatever its code raises
            raise failed(place, error) from error
    path = Path(place)
    if not path.is_file():
        raise PareoError(f"{place}: there is no such file")
    return _executed(path.absolute())


@cache
def _executed(path: Path) -> Any:
    """A Python file, executed once: a network and a loss of one file share what it defines."""
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for what the file imports, here and in processes that are started
    if _is_importable(path):
        return execute(path.stem, path)
    label = f"own_{path.stem}"
    module = execute(label, path)
    executed[label] = path
    return module


def execute(label: str, path: Path) -> Any:
    """A Python file as the module of a name."""
    spec = importlib.util.spec_from_file_location(label, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever its code raises
        del sys.modules[label]
        raise failed(str(path), error) from error
    return module


def _is_importable(path: Path) -> bool:
    """Whether a file is what Python imports by its name, as processes that are started do."""
    if not path.stem.isidentifier() or path.stem in sys.modules:
        return False
    found = importlib.util.find_spec(path.stem)
    return found is not None and found.origin == str(path.absolute())


def _called(function: Any, name: str) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:  # whatever its code raises
        raise failed(f"{name}()", error) from error


def failed(what: str, error: BaseException) -> PareoError:
    """The error of code that is not pareo's, in one sentence with its line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
    line = f", line {own[-1].lineno} of {Path(own[-1].filename).name}" if own else ""
    said = " ".join(str(error).split())
    return PareoError(f"{what} failed: {type(error).__name__}: {said}{line}")


def _others(module: Any, wanted: Callable[[Any], bool]) -> str:
    """What a module has that could have been meant."""
    inside = getattr(module, "__dict__", {})
    imported = {
        key
        for key, one in inside.items()
        if inspect.isroutine(one) and one.__module__ != module.__name__
    }
    known = [key for key, one in inside.items() if wanted(one) and key not in imported]
    return f"; it has {', '.join(known)}" if known else ""


def _sequential(
    found: Layer, given: Shape | None, usual: Shape | None, name: str, label: str
) -> Sequential:
    """A network with an input shape, from one or from a layer."""
    layers: list[tuple[str, Layer]] = [("", found)]
    if isinstance(found, Sequential):
        layers = list(zip(found.names, found.layers, strict=True))
    shape = given or getattr(found, "input_shape", None) or usual
    if shape is None:
        raise _shapeless(name)
    return Sequential(layers, shape, label)


def _shape_of(module: Any, name: str) -> Shape | None:
    """The attribute `input_shape` of a module."""
    shape = getattr(module, "input_shape", None)
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or not all(type(n) is int and n > 0 for n in shape):
        raise PareoError(f"{name}: input_shape is a tuple such as (3, 224, 224); got {shape!r}")
    return tuple(shape)


def _shapeless(name: str) -> PareoError:
    return PareoError(
        f"{name}: the shape of its input is not known; give --input, such as --input 3x224x224"
    )
