"""Names of layers, from those that an exporter gave to initialisers and nodes."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pareo.nn.torch_import.places import prefix_of

# As exporters number what has no name of its own: onnx::Conv_193, /Transpose_output_0, val_7, 12.
ANONYMOUS = re.compile(
    r"(onnx::.*|/.*|(val|_v|input|output|tensor)?_?\d+|.*_output(_\d+)?|)", re.IGNORECASE
)
OWN = frozenset({"w", "b", "scale", "shift", "mean", "variance"})  # parameters of pareo's layers


def clean(name: str) -> str:
    """A name of parts of letters, digits, '_' and '-', with dots between them.

    >>> clean("model/dense 1/MatMul:0"), clean("layer1.0.conv1.weight")
    ('model.dense_1.MatMul_0', 'layer1.0.conv1.weight')
    """
    parts = (re.sub(r"[^\w-]+", "_", part).strip("_") for part in re.split(r"[/.]+", name))
    return ".".join(part for part in parts if part)


def of_weight(name: str) -> str:
    """The name of the layer that has a weight; none if the weight has none itself.

    >>> of_weight("layer1.0.conv1.weight"), of_weight("fc.w"), of_weight("onnx::Conv_193")
    ('layer1.0.conv1', 'fc', '')
    """
    if ANONYMOUS.fullmatch(name):
        return ""
    found = clean(name)
    module, _, last = found.rpartition(".")
    return module if module and last in OWN else prefix_of(found)


def scope_of(name: str) -> tuple[str, str]:
    """The module in which a node is, as PyTorch writes it into the node's name, and the rest.

    >>> scope_of("/layer1/layer1.0/conv1/Conv"), scope_of("/Flatten"), scope_of("node_relu_3")
    (('layer1.0.conv1', 'Conv'), ('', 'Flatten'), ('', 'node_relu_3'))
    """
    if not name.startswith("/"):
        return "", name
    *modules, last = [part for part in name.split("/") if part] or [""]
    found: list[str] = []
    for module in modules:
        if found and module.startswith(f"{found[-1]}."):
            found[-1] = module
        else:
            found.append(module)
    return ".".join(found), last


class Scopes:
    """The names that nodes have by themselves, from their modules or operators."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        kinds = ("Constant", "Identity", "Shape", "Gather", "Unsqueeze", "Concat", "Cast")
        self._count = Counter(scope_of(n.name)[0] for n in nodes if n.op_type not in kinds)

    def name(self, node: Any) -> str:
        """The module's name if the node is all of it, else that and the operator's."""
        scope, last = scope_of(node.name)
        plain = re.sub(r"^node_|_?\d+$", "", clean(last)) or node.op_type
        if scope and self._count[scope] == 1:
            return clean(scope)
        return clean(f"{scope}.{plain.lower()}")
