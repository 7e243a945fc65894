"""Networks from PyTorch: a module, exported as a graph, becomes an ordinary network of pareo."""

from pareo.nn.torch_import.imported import Imported, from_torch

__all__ = ["Imported", "from_torch"]
