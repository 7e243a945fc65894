"""Páreo: one network, written once; every device runs it; every number beside its limit."""

from pareo import operators as op
from pareo.device import Device
from pareo.program import Program, grad, trace, value_and_grad
from pareo.spec import Spec

__version__ = "0.1.0"
__all__ = ["Device", "Program", "Spec", "grad", "op", "trace", "value_and_grad"]
