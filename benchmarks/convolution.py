"""Time convolution layers on the CPU in pareo, NumPy and PyTorch.

    python -m benchmarks.convolution --rounds 11

A layer is y = sigmoid(conv(x, w) + b). Its backward pass starts from the gradient of y and computes
those of w and b, and that of x unless the layer is the first of its network. Each contestant runs
in its own process, one call at a time in turn. It is timed only if its results match float64.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from pareo import Device, op, trace
from pareo.backends import blas
from pareo.cli import live, options, run
from pareo.device import cores
from pareo.lab.experiment.worker import Failed, Worker, interleaved
from pareo.lab.machine.ceilings import limits


@dataclass(frozen=True)
class Layer:
    """The shapes of a layer; a first layer computes no gradient of its images."""

    name: str
    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    stride: int = 1
    padding: int = 0
    first: bool = False

    def arrays(self, dtype: Any = np.float32) -> list[Any]:
        """x, w, b and the gradient of y, the same for all contestants."""
        draw = np.random.default_rng(7)
        n, _, height, width = self.x
        k, _, kh, kw = self.w
        rows = (height + 2 * self.padding - kh) // self.stride + 1
        columns = (width + 2 * self.padding - kw) // self.stride + 1
        shapes = (self.x, self.w, (k,), (n, k, rows, columns))
        scales = (1.0, 1 / np.sqrt(np.prod(self.w[1:])), 1.0, 1.0)
        return [
            (draw.standard_normal(shape) * scale).astype(dtype)
            for shape, scale in zip(shapes, scales, strict=True)
        ]

    @property
    def flops(self) -> int:
        """Multiply-adds of the convolutions, two for each."""
        pixels = int(np.prod(self.arrays()[3].shape))
        return (2 if self.first else 3) * 2 * pixels * int(np.prod(self.w[1:]))


LAYERS = [
    Layer("the papers' CNN: 6 @ 5x5 on 128 x 1 x 28 x 28", (128, 1, 28, 28), (6, 1, 5, 5),
          first=True),
    Layer("AlexNet 1: 64 @ 11x11 / 4 on 8 x 3 x 224 x 224", (8, 3, 224, 224), (64, 3, 11, 11),
          4, 2, first=True),
    Layer("AlexNet 2: 192 @ 5x5 on 8 x 64 x 27 x 27", (8, 64, 27, 27), (192, 64, 5, 5), 1, 2),
    Layer("AlexNet 3: 384 @ 3x3 on 8 x 192 x 13 x 13", (8, 192, 13, 13), (384, 192, 3, 3), 1, 1),
    Layer("GoogLeNet: 192 @ 1x1 on 8 x 480 x 14 x 14", (8, 480, 14, 14), (192, 480, 1, 1)),
]  # fmt: skip


def pareo_layer(device: str, layer: Layer, threads: int, dtype: Any = np.float32) -> Any:
    """The layer as a compiled program on a device."""
    how = {"stride": layer.stride, "padding": layer.padding}

    def step(x: Any, w: Any, b: Any, g: Any) -> Any:
        y = op.sigmoid(op.add_bias(op.conv(x, w, **how), b))
        d = op.sigmoid_gradient(g, y)
        gb = op.sum(d, axis=(0, 2, 3))
        gw = op.conv_weight_gradient(x, d, size=w.shape[2:], **how)
        if layer.first:
            return y, gw, gb
        return y, gw, gb, op.conv_input_gradient(d, w, size=x.shape[2:], **how)

    arrays = layer.arrays(dtype)
    program = trace(step, *arrays).compile(Device(device, threads=threads))
    return lambda: program(*arrays)


def numpy_layer(layer: Layer, threads: int) -> Any:
    """The layer in plain NumPy: im2col and one matrix product."""
    blas.threads(threads)
    x, w, b, g = layer.arrays()
    n, c, height, width = layer.x
    k, _, kh, kw = layer.w
    s, p = layer.stride, layer.padding
    rows, columns = g.shape[2:]

    def step() -> Any:
        wide = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p))) if p else x
        windows = np.lib.stride_tricks.sliding_window_view(wide, (kh, kw), axis=(2, 3))
        windows = windows[:, :, ::s, ::s].transpose(0, 2, 3, 1, 4, 5)
        matrix = windows.reshape(n * rows * columns, c * kh * kw)
        z = matrix @ w.reshape(k, -1).T + b
        y = (1 / (1 + np.exp(-z))).reshape(n, rows, columns, k).transpose(0, 3, 1, 2)
        d = (g * y * (1 - y)).transpose(0, 2, 3, 1).reshape(-1, k)
        gw, gb = (d.T @ matrix).reshape(w.shape), d.sum(axis=0)
        if layer.first:
            return y, gw, gb
        back = (d @ w.reshape(k, -1)).reshape(n, rows, columns, c, kh, kw)
        gx = np.zeros_like(wide)
        for u in range(kh):
            for v in range(kw):
                target = gx[:, :, u : u + rows * s : s, v : v + columns * s : s]
                target += back[..., u, v].transpose(0, 3, 1, 2)
        return y, gw, gb, gx[:, :, p : p + height, p : p + width]

    return step


def torch_layer(layer: Layer, threads: int, onednn: bool = True, last: bool = False) -> Any:
    """The layer in PyTorch, with oneDNN or without, channels first or last."""
    import torch

    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn
    x, w, b, g = (torch.from_numpy(a) for a in layer.arrays())
    if last:
        x, w, g = (a.contiguous(memory_format=torch.channels_last) for a in (x, w, g))
    leaves = [w, b] if layer.first else [w, b, x]
    for leaf in leaves:
        leaf.requires_grad_(True)

    def step() -> Any:
        for leaf in leaves:
            leaf.grad = None
        y = torch.sigmoid(torch.conv2d(x, w, b, stride=layer.stride, padding=layer.padding))
        y.backward(g)
        return [y.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves]]

    return step


CONTESTANTS: dict[str, Callable[[Layer, int], Any]] = {
    "pareo-compiled": lambda layer, threads: pareo_layer("compiled", layer, threads),
    "pareo-vectorized": lambda layer, threads: pareo_layer("vectorized", layer, threads),
    "numpy, plain im2col": numpy_layer,
    "torch": torch_layer,
    "torch, oneDNN off": lambda layer, threads: torch_layer(layer, threads, onednn=False),
    "torch, channels last": lambda layer, threads: torch_layer(layer, threads, last=True),
}


def timed(name: str, layer: Layer, threads: int, calls: int) -> Callable[[str], Any]:
    """A function that answers "results" with the arrays of a call, and else with its seconds."""
    step = CONTESTANTS[name](layer, threads)

    def answer(question: str) -> Any:
        if question == "results":
            return [np.array(a) for a in step()]
        step()  # wakes threads that slept while others ran
        start = time.perf_counter()
        for _ in range(calls):
            step()
        return (time.perf_counter() - start) / calls

    return answer


def parity(results: Any, layer: Layer) -> str:
    """Which result differs from float64, and by how much; empty where none does."""
    exact = pareo_layer("vectorized", layer, cores(), np.float64)()
    names = ("y", "gradient of w", "gradient of b", "gradient of x")
    for name, found, wanted in zip(names, results, exact, strict=False):
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        # Sums of up to 10^5 float32 products keep five digits; a wrong formula keeps none.
        if not error < 1e-5:
            return f"{name} differs by {error:.1e}"
    return ""


def race(layer: Layer, names: list[str], threads: int, rounds: int, console: Console) -> None:
    """Time the contestants on one layer in turn, and print the table."""
    calls = 5 if layer.flops < 10**9 else 1
    notes: dict[str, str] = {}
    samples: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as stack:
        fair: dict[str, Worker] = {}
        for name in names:
            worker = stack.enter_context(
                Worker(timed, name, layer, threads, calls, threads=threads)
            )
            try:
                notes[name] = parity(worker.ask("results"), layer)
            except Failed as failure:
                notes[name] = str(failure)
            if not notes[name]:
                fair[name] = worker
        turns = interleaved(fair, rounds, "seconds")
        for answers in track(turns, layer.name, rounds, console=console, transient=True):
            for name, answer in answers.items():
                if isinstance(answer, Failed):
                    notes[name] = str(answer)
                else:
                    samples[name].append(answer)
    peak = limits(Device("compiled", threads=threads)).peak.value
    console.print(_table(layer, names, notes, samples, layer.flops / peak))


def _table(layer: Layer, names: list[str], notes: Any, samples: Any, floor: float) -> Table:
    best = min(
        (float(np.median(samples[n])) for n in names if n.startswith("torch") and not notes[n]),
        default=float("nan"),
    )
    table = Table(title=layer.name, title_justify="left")
    for head in ("contestant", "median ms", "fastest", "slowest", "best torch / this", "of sgemm"):
        table.add_column(head, justify="left" if head == "contestant" else "right")
    for name in names:
        if notes[name]:
            table.add_row(name, "not timed", notes[name])
            continue
        times = np.array(samples[name])
        middle = float(np.median(times))
        table.add_row(
            name,
            *(f"{value * 1e3:.2f}" for value in (middle, times.min(), times.max())),
            f"{best / middle:.2f}",
            f"{floor / middle:.0%}",
        )
    return table


def main(
    rounds: Annotated[int, typer.Option(min=3, help="Samples of each contestant.")] = 15,
    layers: Annotated[str, typer.Option(help="Only layers whose name contains this.")] = "",
    threads: options.Threads = None,
) -> None:
    """Time convolution layers on the CPU in pareo, NumPy and PyTorch."""
    console = live.console(120)
    for layer in LAYERS:
        if layers.lower() in layer.name.lower():
            race(layer, list(CONTESTANTS), threads or cores(), rounds, console)


if __name__ == "__main__":
    run(lambda: typer.run(main))
