"""Large convolutional networks on the card: cuDNN's timed plans, and everything channels last."""

import sys
from functools import cache
from typing import Any

from pareo.backends.cuda.nhwc.conv import cudnn
from pareo.device import current


def lowered(program: Any) -> Any:
    """A program with large convolutions as cuDNN runs it; any other one as it is."""
    from pareo.backends.cuda.nhwc import lower
    from pareo.backends.cuda.nhwc.conv import plans

    if not lower.worth_lowering(program):
        return program
    why = cudnn.missing()
    if why is not None:
        _say(f"pareo: convolutions go through matrix products, which is slower: {why}")
        return program
    return lower.lowered(program, current().precision, plans.has_plan, plans.turns)


@cache  # each sentence once
def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
