"""Profiles of PyTorch on a CPU: torch.profiler, with FLOPs of products and convolutions."""

import math
import os
import time
from typing import Any

from pareo.lab.contestants import Trainer
from pareo.lab.kernels.classify import TORCH, kind
from pareo.lab.kernels.events import Event, Kind, Profile

Shapes = list[list[int]]

# Whole operators: what they call inside is theirs. Of all others each one's own time is counted.
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
WHOLE = (*PRODUCTS, "aten::convolution", "aten::convolution_backward")
AUTOGRAD = "(autograd)"


def prepare() -> None:
    """Silence the log of PyTorch's profiler; to be called before PyTorch is imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def profiles(trainer: Trainer, order: Any) -> list[Profile]:
    """The steps under torch.profiler."""
    from torch import profiler

    def recorded() -> Any:
        return profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True)

    with recorded():
        trainer.run(order[:1])  # its own start-up takes as long as a small step
    with recorded() as seen:
        start = time.perf_counter()
        trainer.run(order)
        seconds = (time.perf_counter() - start) / len(order)
    events = [made for event in seen.events() if (made := _event(event)) is not None]
    return [Profile("torch.profiler", len(order), seconds, events)]


def _event(event: Any) -> Event | None:
    """An event for the table; None for one that belongs to an operator around it."""
    around = event.cpu_parent
    while around is not None:
        if around.name in WHOLE:
            return None
        around = around.cpu_parent
    start, end = event.time_range.start * 1e-6, event.time_range.end * 1e-6
    lane = str(event.thread)
    if event.name.startswith("autograd::") or event.name.endswith("Backward0"):
        return Event(AUTOGRAD, "other", start, end, lane)
    shapes = event.input_shapes or []
    count = flops(event.name, shapes, event.concrete_inputs or [])
    shape = ", ".join("x".join(map(str, s)) for s in shapes if s and isinstance(s[0], int))
    return Event(event.name, _kind(event.name, shapes), start, end, lane, shape, count)


def _kind(name: str, shapes: Shapes) -> Kind:
    """The kind by the name; a batch of one product is a product.

    >>> _kind("aten::bmm", [[8, 2, 3], [8, 3, 4]]), _kind("aten::bmm", [[1, 2, 3], [1, 3, 4]])
    ('batched gemm', 'gemm')
    """
    found = kind(name, TORCH)
    alone = found == "batched gemm" and shapes and shapes[0] and shapes[0][0] == 1
    return "gemm" if alone else found


def flops(name: str, shapes: Shapes, given: list[Any]) -> float | None:
    """FLOPs of an operator by its shapes and arguments; None where they are not counted.

    As everywhere in pareo a product and a sum are two; of a convolution's padding, the windows
    count in full.

    >>> flops("aten::addmm", [[4], [2, 3], [3, 4]], [])
    48.0
    >>> x, w, b = [1, 3, 8, 8], [16, 3, 3, 3], [16]
    >>> flops("aten::convolution", [x, w, b], [None, None, None, [1, 1], [1, 1], [1, 1]])
    55296.0
    >>> back = [None, None, None, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    >>> flops("aten::convolution_backward", [[1, 16, 8, 8], x, w], [*back, [False, True, True]])
    55296.0
    """
    if name in PRODUCTS:
        a, b = shapes[1:3] if name in ("aten::addmm", "aten::baddbmm") else shapes[:2]
        return 2.0 * math.prod(a) * b[-1]
    if name == "aten::convolution":
        image, filters = shapes[:2]
        sides = [
            (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
            for size, window, stride, padding, dilation in zip(
                image[2:], filters[2:], *given[3:6], strict=True
            )
        ]
        return 2.0 * image[0] * math.prod(sides) * math.prod(filters)
    if name == "aten::convolution_backward":
        gradient, filters = shapes[0], shapes[2]
        once = 2.0 * gradient[0] * math.prod(gradient[2:]) * math.prod(filters)
        return once * sum(bool(wanted) for wanted in given[10][:2])  # of images, of filters
    return None
