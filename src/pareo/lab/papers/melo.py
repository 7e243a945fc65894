"""The fifth paper: six operators of Theano on three GPUs, 2 MB to 1 GB, under NVIDIA's profiler.

F. Melo, R. S. Ferreira, F. Duarte and M. Zamith, Análise de desempenho da biblioteca Theano com GPU
sob a ótica do CUDA Profiler. Single precision throughout. The figures are in melo.toml.
"""

from typing import Any, NamedTuple

from pareo.lab.papers.published import paper

PAPER = paper("melo")
OPERATORS = ("add", "mul", "dot", "scalar", "sigmoid", "tanh")


class Gpu(NamedTuple):
    """A column of the paper's table 1: clocks in MHz, bytes, bytes a second."""

    name: str
    architecture: str
    cores: int
    clock: float
    memory_clock: float
    memory: float
    l2: float
    bandwidth: float


def _gpus() -> tuple[Gpu, ...]:
    rows: Any = PAPER.table("gpus").rows
    return tuple(Gpu(*row) for row in rows)


def _stalls() -> dict[str, dict[str, float]]:
    names = PAPER.table("stalls").columns[1:]
    rows: Any = PAPER.table("stalls").rows
    return {gpu: dict(zip(names, shares, strict=True)) for gpu, *shares in rows}


def _operator(name: str) -> dict[int, tuple[tuple[float, float], ...]]:
    rows: Any = PAPER.table(name).rows
    return {size: tuple(zip(rest[::2], rest[1::2], strict=True)) for size, *rest in rows}


GPUS = _gpus()

# For `dot` of 6 MB: the share of instructions that failed to be fetched in time, and of those that
# waited for another's result.
STALLS = _stalls()

# Tables 2 and 3: by operator and MB of data, MFLOP/s and per cent of the arithmetic peak, on each
# of the GPUs in turn.
PUBLISHED = {name: _operator(name) for name in OPERATORS}


def nearest(operator: str, nbytes: int) -> int | None:
    """The paper's size (MB) that is nearest to `nbytes`, by ratio; None for other operators.

    >>> nearest("add", 16 << 20), nearest("exp", 16 << 20)
    (12, None)
    """
    sizes = PUBLISHED.get(operator, {})
    wanted = nbytes / 2**20
    return min(sizes, key=lambda size: max(size / wanted, wanted / size), default=None)
