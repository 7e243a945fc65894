"""The table of rules, which the modules beside this one fill."""

from collections.abc import Callable

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.program.ir import Instruction

Rule = Callable[[Lowering, Instruction], bool]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Enter the rule for the operator that the function is named after.

    It writes what stands for the instruction in the new program, or gives False where it cannot.
    """
    RULES[function.__name__.rstrip("_")] = function
    return function
