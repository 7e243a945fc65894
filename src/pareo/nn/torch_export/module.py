"""The module that `to_torch` returns; PyTorch is imported here."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from pareo.errors import ShapeError
from pareo.nn.calls import Calls
from pareo.nn.network import Sequential
from pareo.nn.torch_export import layers
from pareo.nn.torch_names import TorchName, check_arrays


class Network(torch.nn.Module):
    """A network of pareo whose layers are computed by PyTorch's functions."""

    def __init__(
        self, network: Sequential, parameters: Mapping[str, Any], names: Mapping[str, TorchName]
    ) -> None:
        super().__init__()
        layers.load()
        wanted = network.parameters(network.inputs)
        check_arrays(network.name, {path: p.shape for path, p in wanted.items()}, parameters)
        self._pareo_network = network
        self._pareo_names = {path: (names[path], p.shape) for path, p in wanted.items()}
        state = set(network.state)
        for path, (name, _) in self._pareo_names.items():
            tensor = torch.from_numpy(np.array(name.to_torch(parameters[path]), order="C"))
            self._register(name.name, tensor, path in state)

    def _register(self, name: str, tensor: Any, is_state: bool) -> None:
        """A weight inside modules that are called as the parts of its name."""
        *inside, last = name.split(".")
        module: torch.nn.Module = self
        try:
            for part in inside:
                if part not in module._modules:
                    module.add_module(part, torch.nn.Module())
                module = module.get_submodule(part)
            if is_state:
                module.register_buffer(last, tensor)
            else:
                module.register_parameter(last, torch.nn.Parameter(tensor))
        except KeyError as error:
            said = f"a module of PyTorch cannot have a weight called {name}: {error.args[0]}"
            raise ShapeError(said) from None

    def forward(self, x: torch.Tensor) -> Any:
        """The output; in training with auxiliary heads, a tuple of it and theirs."""
        weights = {}
        for path, (name, shape) in self._pareo_names.items():
            inside, _, last = name.name.rpartition(".")
            tensor = getattr(self.get_submodule(inside), last)
            weights[path] = tensor.t() if name.how == "transposed" else tensor.reshape(shape)
        heads: list[tuple[float, Any]] | None = [] if self.training else None
        apply = partial(layers.layer, training=self.training)
        out = self._pareo_network.run(weights, x, Calls(apply, layers.joins(), heads))
        return (out, *(head for _, head in heads)) if heads else out

    def extra_repr(self) -> str:
        """The name of the network."""
        return self._pareo_network.name
