"""The names of modules and operators, and the places in the user's files, of exported nodes."""

import os
import re
from importlib import import_module
from typing import Any

SHOWN = 3  # places of one operator that an error lists


def prefix_of(name: str) -> str:
    """The name of the module that has a weight; that of the weight if it is not a usual one.

    >>> prefix_of("layer1.0.conv1.weight"), prefix_of("gamma"), prefix_of("self.in_proj_bias")
    ('layer1.0.conv1', 'gamma', 'self.in_proj')
    """
    module, _, last = name.rpartition(".")
    for word in ("_weight", "_bias"):
        if last.endswith(word) and last != word:
            return name.removesuffix(word)
    usual = last in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return module if usual and module else name


def operator_of(node: Any) -> str:
    """The name of the operator that a node calls, without that of its overload."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.removeprefix("aten::") if schema else node.target.__name__


def module_of(node: Any) -> tuple[str, str]:
    """The path and the class of the module in whose `forward` a node was made."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    return re.sub(r"@\d+", "", path), kind if isinstance(kind, str) else kind.__module__


def place_of(node: Any) -> str:
    """Where in the user's files a node was made, as file and line, else the module's path."""
    own = os.path.dirname(str(import_module("torch").__file__)) + os.sep
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    outside = [frame for frame in frames if not frame[0].startswith(own)]
    path = module_of(node)[0]
    inside = f" (module {path})" if path else ""
    if not outside:
        return f"{node.name}{inside}"
    file, line = outside[-1]
    return f"{os.path.basename(file)}, line {line}{inside}"


def some(places: list[str]) -> str:
    distinct = list(dict.fromkeys(places))
    more = f" and {len(distinct) - SHOWN} more places" if len(distinct) > SHOWN else ""
    return ", ".join(distinct[:SHOWN]) + more
