"""Programs with large convolutions, rewritten ("lowered") to channels-last layout and cuDNN.

`lower` is the pass: it merges layers (`merge`), then applies a rule to each instruction (`rules/`),
which writes the new program (`lowering`). The new instructions, all listed in `instructions`, are
kernels of `kernels/` and convolutions of `conv/`.
"""

import sys
from functools import cache

from pareo.backends.cuda.nhwc.conv import cudnn
from pareo.device import current
from pareo.program.ir import Program


def lowered(program: Program) -> Program:
    """A program with large convolutions, lowered; any other program unchanged."""
    from pareo.backends.cuda.nhwc import attention, lower
    from pareo.backends.cuda.nhwc.conv import plans, summed_plans

    if not lower.worth_lowering(program):
        return program
    why = cudnn.missing()
    if why is not None:
        _say(f"pareo: convolutions are computed as matrix products, which is slower: {why}")
        return program
    tests = plans.has_plan, plans.best_as_forward, attention.supported
    from_hopper_on = int(_capability()) >= 90
    return lower.lowered(
        program, current().precision, *tests, clusters=from_hopper_on, choice=summed_plans.best
    )


def _capability() -> str:
    import cupy

    return str(cupy.cuda.Device().compute_capability)


@cache  # each sentence is printed once
def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
