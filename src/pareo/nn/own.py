"""Networks of one's own: FILE.py:OBJECT and PACKAGE.MODULE:OBJECT, as on the command line."""

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pareo.errors import PareoError
from pareo.nn.layers import Layer, Shape
from pareo.nn.network import Sequential
from pareo.nn.torch_import import Imported, from_torch

KINDS = "a pareo network, a torch.nn.Module or a function that returns one"


@dataclass(frozen=True)
class Own:
    """A network, and the weights that it was given with; None where they are to be drawn."""

    network: Sequential
    parameters: Mapping[str, Any] | None = None


def is_own(name: str) -> bool:
    """Whether a name is that of a network in a file or in a module.

    >>> is_own("nets/mine.py:net"), is_own("mine.py"), is_own("resnet18")
    (True, True, False)
    """
    return ":" in name or "/" in name or name.endswith(".py")


def shown(name: str) -> str:
    """The name of the object alone; that of a network by name as it is.

    >>> shown("nets/mine.py:net"), shown("resnet18")
    ('net', 'resnet18')
    """
    return name.rpartition(":")[2]


def own_network(name: str, given: Shape | None = None, usual: Shape | None = None) -> Own:
    """The network of this name; running a Python file runs its code.

    Args:
        given: the shape of one input, which has precedence over the object's own.
        usual: that of the data, for an object that has none.
    """
    found, label = load(name), shown(name)
    if isinstance(found, Imported):
        return Own(_sequential(found.network, given, usual, name), found.parameters)
    if isinstance(found, Layer):
        return Own(_sequential(found, given, usual, name))
    shape = given or _shape_of(found, name) or usual
    if shape is None:
        raise _shapeless(name)
    return _imported(name, label, shape)


@cache
def load(name: str) -> Any:
    """The object of this name, which is a layer of pareo, a module of PyTorch, or imported."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise PareoError(f"expected FILE.py:OBJECT, such as my_network.py:net; got '{name}'")
    found = _module(place)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PareoError(f"{place} has no object '{attribute}'{_others(found)}")
        found = getattr(found, part)
    if not _is_network(found) and callable(found):
        found = _called(found, name)
    if not _is_network(found):
        raise PareoError(f"{name} is of the type {type(found).__name__}; expected {KINDS}")
    return found


@cache
def _imported(name: str, label: str, shape: Shape) -> Own:
    found = from_torch(load(name), shape, label)
    return Own(found.network, found.parameters)


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
            raise _failed(place, error) from error
        except (Exception, SystemExit) as error:  # whatever its code raises
            raise _failed(place, error) from error
    path = Path(place)
    if not path.is_file():
        raise PareoError(f"{place}: there is no such file")
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for what the file imports, here and in processes that are started
    label = path.stem if _is_importable(path) else f"own_{path.stem}"
    spec = importlib.util.spec_from_file_location(label, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever its code raises
        del sys.modules[label]
        raise _failed(place, error) from error
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
        raise _failed(f"{name}()", error) from error


def _failed(what: str, error: BaseException) -> PareoError:
    """The error of code that is not pareo's, in one sentence with its line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
    line = f", line {own[-1].lineno} of {Path(own[-1].filename).name}" if own else ""
    said = " ".join(str(error).split())
    return PareoError(f"{what} failed: {type(error).__name__}: {said}{line}")


def _others(module: Any) -> str:
    """What a module has that could have been meant."""
    inside = getattr(module, "__dict__", {})
    known = [key for key, one in inside.items() if _is_network(one)]
    return f"; it has {', '.join(known)}" if known else ""


def _sequential(found: Layer, given: Shape | None, usual: Shape | None, name: str) -> Sequential:
    """A network with an input shape, from one or from a layer."""
    layers: list[tuple[str, Layer]] = [("", found)]
    if isinstance(found, Sequential):
        layers = list(zip(found.names, found.layers, strict=True))
    shape = given or getattr(found, "input_shape", None) or usual
    if shape is None:
        raise _shapeless(name)
    return Sequential(layers, shape, shown(name))


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
