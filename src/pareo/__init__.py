"""Páreo: one network, written once; every device runs it; every number beside its limit."""

from typing import TYPE_CHECKING, Any

from pareo import operators as op
from pareo.device import Device
from pareo.errors import OutOfMemory
from pareo.moving import to_device, to_host, transfers
from pareo.program import Program, grad, trace, value_and_grad
from pareo.spec import Spec

if TYPE_CHECKING:
    from pareo import nn
    from pareo.lab.race.call import race
    from pareo.lab.sweep.call import sweep
    from pareo.nn.onnx_export import to_onnx
    from pareo.nn.onnx_import import from_onnx
    from pareo.nn.torch_export import to_torch
    from pareo.nn.torch_import import from_torch
    from pareo.training.checkpoint import load, save
    from pareo.training.classifier import Classifier
    from pareo.training.evaluate import evaluate
    from pareo.training.regressor import Regressor
    from pareo.training.weights import load_weights

__version__ = "0.2.0"
__all__ = [
    "Classifier",
    "Device",
    "OutOfMemory",
    "Program",
    "Regressor",
    "Spec",
    "evaluate",
    "from_onnx",
    "from_torch",
    "grad",
    "load",
    "load_weights",
    "nn",
    "op",
    "race",
    "save",
    "sweep",
    "to_device",
    "to_host",
    "to_onnx",
    "to_torch",
    "trace",
    "transfers",
    "value_and_grad",
]

# What needs more than NumPy, or is rarely needed, is imported when it is first used.
_LAZY = {
    "Classifier": "pareo.training.classifier",
    "Regressor": "pareo.training.regressor",
    "evaluate": "pareo.training.evaluate",
    "from_onnx": "pareo.nn.onnx_import",
    "from_torch": "pareo.nn.torch_import",
    "load": "pareo.training.checkpoint",
    "load_weights": "pareo.training.weights",
    "race": "pareo.lab.race.call",
    "save": "pareo.training.checkpoint",
    "sweep": "pareo.lab.sweep.call",
    "to_torch": "pareo.nn.torch_export",
    "nn": "pareo.nn",
    "to_onnx": "pareo.nn.onnx_export",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'pareo' has no attribute '{name}'")
    from importlib import import_module

    module = import_module(_LAZY[name])
    return module if name == "nn" else getattr(module, name)
