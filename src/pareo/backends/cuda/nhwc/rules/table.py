"""The table of rules, which the other modules of this package fill."""

from collections.abc import Callable

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.program.ir import Instruction

Rule = Callable[[Lowering, Instruction], bool]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Enter the rule for the operator that the function is named after.

    A rule writes the replacement of an instruction to the new program and returns True, or returns
    False where it does not apply.
    """
    RULES[function.__name__.rstrip("_")] = function
    return function
