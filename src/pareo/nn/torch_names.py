"""The names and shapes that parameters have in PyTorch, and arrays carried over by name.

The networks of `pareo.nn.networks` that torchvision or timm have, too, are laid out as there, so
that each parameter and each running statistic has one counterpart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.errors import ShapeError
from pareo.nn.containers import Container
from pareo.nn.layers import Conv, Dense, Layer, Scale, Shape, size_pair
from pareo.nn.network import Sequential
from pareo.nn.normalisation import LayerNorm
from pareo.nn.tokens import ClassToken, Learned, PositionEmbedding

WORDS = {
    "w": "weight",
    "b": "bias",
    "scale": "weight",
    "shift": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}
# PyTorch has this parameter itself where pareo has a layer with one.
BARE = (ClassToken, Learned, PositionEmbedding, Scale)
COUNTER = "num_batches_tracked"  # how many batches PyTorch's normalisation saw; nothing uses it
SHOWN = 5  # names that an error lists of each kind


@dataclass(frozen=True)
class TorchName:
    """The counterpart of a parameter: its name and its shape in PyTorch.

    how: 'same', 'transposed' (of dense layers) or 'reshaped'
    """

    name: str
    how: str
    shape: Shape

    def to_torch(self, array: Any) -> Any:
        """A parameter's array in PyTorch's shape."""
        a = np.asarray(array)
        return a.T if self.how == "transposed" else a.reshape(self.shape)

    def from_torch(self, array: Any, shape: Shape) -> Any:
        """PyTorch's array in the parameter's shape."""
        a = np.asarray(array)
        return a.T if self.how == "transposed" else a.reshape(shape)


def torch_names(network: Sequential) -> dict[str, TorchName]:
    """The counterpart in PyTorch of each parameter and each running statistic, by path.

    >>> from pareo.nn import networks
    >>> torch_names(networks.resnet(18))["layer2.0.downsample.1.mean"].name
    'layer2.0.downsample.1.running_mean'
    >>> torch_names(networks.vit_b_16())["heads.head.w"]
    TorchName(name='heads.head.weight', how='transposed', shape=(1000, 768))
    """
    found: dict[str, TorchName] = {}
    for path, layer, incoming, linear in _leaves(network, network.inputs):
        for name, parameter in layer.parameters(incoming).items():
            full = f"{path}.{name}" if path else name
            found[full] = _torch_name(path, layer, name, parameter.shape, incoming, linear)
    return found


def _torch_name(
    path: str, layer: Layer, name: str, shape: Shape, incoming: Shape, linear: bool
) -> TorchName:
    if isinstance(layer, BARE):
        wide = (*shape, 1, 1) if isinstance(layer, Scale) and len(incoming) == 3 else shape
        return TorchName(path, "same" if wide == shape else "reshaped", wide)
    word = WORDS.get(name, name)
    # nn.MultiheadAttention has in_proj_weight, but out_proj.weight.
    joint = "_" if path.split(".")[-1] == "in_proj" else "."
    full = f"{path}{joint}{word}" if path else word
    if isinstance(layer, Dense) and name == "w":
        return TorchName(full, "transposed", shape[::-1])
    if linear and name == "w":
        return TorchName(full, "reshaped", shape[:2])
    return TorchName(full, "same", shape)


def _leaves(network: Container, shape: Shape) -> Iterator[tuple[str, Layer, Shape, bool]]:
    """Each layer that is no container, and whether it stands for a linear layer of PyTorch.

    That is a 1x1 convolution after a LayerNorm of channels in the same Sequential, as in ConvNeXt.
    """
    after: set[str] = set()  # paths of Sequentials in which a LayerNorm of channels came
    for path, layer, incoming in network.walk(shape):
        if isinstance(layer, Container):
            continue
        inside = path.rpartition(".")[0]
        if isinstance(layer, LayerNorm) and layer.axis == 1:
            after.add(inside)
        pointwise = isinstance(layer, Conv) and size_pair("Conv", layer.size) == (1, 1)
        yield path, layer, incoming, pointwise and inside in after


def to_torch_arrays(network: Sequential, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """NumPy arrays by PyTorch's names, for `load_state_dict` (as tensors).

    >>> from pareo.nn import networks
    >>> network = networks.lenet5()
    >>> to_torch_arrays(network, network.initialise())["f6.weight"].shape
    (84, 120)
    """
    names = torch_names(network)
    shapes = {path: p.shape for path, p in network.parameters(network.inputs).items()}
    check_arrays(network.name, shapes, parameters)
    return {
        name.name: np.ascontiguousarray(name.to_torch(parameters[path]))
        for path, name in names.items()
    }


def from_torch_arrays(network: Sequential, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters from NumPy arrays by PyTorch's names, such as those of a `state_dict`.

    >>> from pareo.nn import networks
    >>> network = networks.lenet5()
    >>> arrays = to_torch_arrays(network, network.initialise())
    >>> from_torch_arrays(network, arrays)["f6.w"].shape
    (120, 84)
    """
    names = torch_names(network)
    given = {name: a for name, a in arrays.items() if name.split(".")[-1] != COUNTER}
    check_arrays(network.name, {name.name: name.shape for name in names.values()}, given)
    shapes = {path: p.shape for path, p in network.parameters(network.inputs).items()}
    return {
        path: np.ascontiguousarray(name.from_torch(given[name.name], shapes[path]))
        for path, name in names.items()
    }


def check_arrays(network: str, expected: Mapping[str, Shape], given: Mapping[str, Any]) -> None:
    """Refuse arrays that are missing, left over, or of another shape."""
    missing = [name for name in expected if name not in given]
    extra = [name for name in given if name not in expected]
    wrong = [
        f"{name} {tuple(np.shape(given[name]))} instead of {shape}"
        for name, shape in expected.items()
        if name in given and tuple(np.shape(given[name])) != shape
    ]
    kinds = (("missing", missing), ("left over", extra), ("misshapen", wrong))
    said = [f"{kind}: {_some(names)}" for kind, names in kinds if names]
    if said:
        raise ShapeError(f"the arrays are not those of {network}; {'; '.join(said)}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
