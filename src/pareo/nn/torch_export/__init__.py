"""Networks to PyTorch: a network of pareo becomes a module with the same weights."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pareo.errors import PareoError
from pareo.nn.network import Sequential
from pareo.nn.torch_import import Imported
from pareo.nn.torch_names import TorchName, torch_names

__all__ = ["to_torch"]


def to_torch(
    network: Sequential | Imported,
    parameters: Mapping[str, Any] | None = None,
    names: Mapping[str, TorchName] | None = None,
) -> Any:
    """The network as a `torch.nn.Module`, with the same outputs and the same gradients.

    Args:
        parameters: its weights by path; without them those of an imported network, else new ones.
        names: PyTorch's names of the weights by path, such as those of `from_torch`; otherwise
            those of torchvision or timm for the networks that these have, too.

    The names and shapes of the weights in its `state_dict` are PyTorch's. In training, a network
    with auxiliary heads returns its output and that of each head, as a tuple.

    >>> from pareo.nn import networks
    >>> sorted(to_torch(networks.lenet5()).state_dict())[:2]
    ['c1.bias', 'c1.weight']
    """
    if isinstance(network, Imported):
        names = names or network.names
        parameters = parameters or network.parameters
        network = network.network
    if not isinstance(network, Sequential):
        raise PareoError(f"to_torch expects a network of pareo; got {network!r}")
    found = network.initialise() if parameters is None else parameters
    module = import_module("pareo.nn.torch_export.module")
    return module.Network(network, found, names or torch_names(network))
