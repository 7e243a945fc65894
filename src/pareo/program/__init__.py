"""Programs: traced functions that can be differentiated, fused, planned and run."""

from pareo.program.differentiate import differentiate, grad, value_and_grad
from pareo.program.executable import Executable
from pareo.program.fuse import fuse
from pareo.program.ir import Instruction, Program
from pareo.program.kernel import Fusion, Kernel
from pareo.program.passes import remove_common, remove_dead
from pareo.program.plan import Plan, plan
from pareo.program.target import Target
from pareo.program.trace import trace

__all__ = [
    "Executable",
    "Fusion",
    "Instruction",
    "Kernel",
    "Plan",
    "Program",
    "Target",
    "differentiate",
    "fuse",
    "grad",
    "plan",
    "remove_common",
    "remove_dead",
    "trace",
    "value_and_grad",
]
