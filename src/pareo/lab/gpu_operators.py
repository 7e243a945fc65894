"""Single operators on a GPU against what the card can do: its copy bandwidth, cuBLAS's product."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.table import Table

from pareo import op
from pareo.device import PRECISIONS, Device
from pareo.lab.machine.ceilings.gpu import card_seconds
from pareo.spec import Spec

SIDE = 8192
MEGABYTES = (2, 16, 64, 256, 1024)


def product_rate(precision: str) -> float:
    """FLOP/s of a large matrix product by pareo, which has cuBLAS do it."""
    with Device("cuda", precision=precision) as device:
        a, b, out = (device.backend.empty(Spec((SIDE, SIDE))) for _ in range(3))
        for array in (a, b):
            array[...] = import_module("cupy").random.random((SIDE, SIDE), dtype=np.float32) - 0.5
        return 2 * SIDE**3 / card_seconds(lambda: op.dot(a, b, out=out))


def peer_product_rate(precision: str) -> float | None:
    """The same by PyTorch; None where it is not here. In bfloat16 its operands are bfloat16."""
    if find_spec("torch") is None:
        return None
    torch = import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = (torch.rand(SIDE, SIDE, device="cuda").sub(0.5).to(kind) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * SIDE**3 / card_seconds(lambda: torch.mm(a, b, out=out))


def elementwise_table() -> Table:
    """GB/s of elementwise operators, operands of 2 MB to 1 GB, beside a copy of the same size."""
    made = Table(
        title="elementwise on cuda, GB/s read and written, and the share of a copy's",
        title_justify="left",
    )
    for head in ("operator", *(f"{size} MB" for size in MEGABYTES)):
        made.add_column(head, justify="left" if head == "operator" else "right")
    rows: dict[str, list[str]] = {}
    with Device("cuda"):
        for megabytes in MEGABYTES:
            for name, rate, share in _elementwise(megabytes << 20):
                cell = f"{rate / 1e9:.0f}" + ("" if name == "copy" else f" ({share:.0%})")
                rows.setdefault(name, []).append(cell)
    for name, cells in rows.items():
        made.add_row(name, *cells)
    return made


def _elementwise(nbytes: int) -> list[tuple[str, float, float]]:
    """Name, bytes a second and share of the copy's, for operands of one size."""
    cupy = import_module("cupy")
    a = cupy.random.random(nbytes // 4, dtype=np.float32) - np.float32(0.5)
    b, out = cupy.random.random(nbytes // 4, dtype=np.float32), cupy.empty_like(a)
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "copy": (2, lambda: cupy.copyto(out, a)),
        "add": (3, lambda: op.add(a, b, out=out)),
        "hadamard": (3, lambda: op.hadamard(a, b, out=out)),
        "scale": (2, lambda: op.scale(2.0, a, out=out)),
        "relu": (2, lambda: op.relu(a, out=out)),
        "sigmoid": (2, lambda: op.sigmoid(a, out=out)),
        "tanh": (2, lambda: op.tanh(a, out=out)),
    }
    rates = {name: arrays * nbytes / card_seconds(f) for name, (arrays, f) in calls.items()}
    return [(name, rate, rate / rates["copy"]) for name, rate in rates.items()]


def product_table() -> Table:
    """TFLOP/s of a large product in each precision, beside PyTorch's."""
    made = Table(title=f"dot {SIDE} x {SIDE} x {SIDE}, TFLOP/s", title_justify="left")
    for head in ("precision", "pareo", "PyTorch", "pareo / PyTorch"):
        made.add_column(head, justify="left" if head == "precision" else "right")
    for precision in PRECISIONS:
        ours, theirs = product_rate(precision), peer_product_rate(precision)
        told = ("", "") if theirs is None else (f"{theirs / 1e12:.1f}", f"{ours / theirs:.2f}")
        made.add_row(precision, f"{ours / 1e12:.1f}", *told)
    return made
