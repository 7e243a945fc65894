"""Time the training step of a population of MLPs on a GPU in pareo and PyTorch.

    python -m benchmarks.population --rounds 6 --steps 468

Every member has the same width and its own weights, order of images and learning rate. PyTorch
multiplies their matrices in batches and runs the whole step, including the gather of the batch, as
one CUDA graph. Each contestant runs in its own process. Their first losses must agree before they
are timed, in turn.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pareo.cli import options, run
from pareo.data import mnist
from pareo.device import PRECISIONS, Device
from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.results import to_json
from pareo.lab.experiment.statistics import interval
from pareo.lab.experiment.worker import Failed, Worker, interleaved
from pareo.machine import describe
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.parallel.trials.population.step import PopulationStep, stacked, stacked_slots
from pareo.training.fit import shuffled
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe

BATCH = 128
FIRST = 4  # steps whose losses must agree
AGREE = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}  # of a loss, after a few steps

Steps = Callable[[Any], Any]  # from an order (steps, members, batch) to losses (steps, members)


@dataclass(frozen=True)
class Cell:
    """The task: a number of MLPs of one width, each with its own rate and order of images."""

    width: int
    members: int
    momentum: float
    precision: str

    def network(self) -> Sequential:
        """The fourth paper's network in any width."""
        return networks.mlp([784, self.width, self.width, self.width, 10])

    def rates(self) -> Any:
        """A rate for each member."""
        return np.linspace(0.01, 0.05, self.members)

    def order(self, steps: int) -> Any:
        """Which images each member sees: (steps, members, batch)."""
        count = len(mnist.load().train_labels)
        each = [shuffled(count, member, 0)[: steps * BATCH] for member in range(self.members)]
        orders = np.stack(each).reshape(self.members, steps, BATCH)
        return np.ascontiguousarray(orders.swapaxes(0, 1))


def images() -> tuple[Any, Any]:
    """MNIST's images from 0 to 1, and its labels."""
    digits = mnist.load()
    pixels = digits.train_images.astype(np.float32) / np.float32(255)
    return pixels, digits.train_labels.astype(np.int64)


def pareo_steps(cell: Cell) -> Steps:
    """Steps of a population in pareo, on the GPU."""
    network, data, members, momentum = cell.network(), images(), cell.members, cell.momentum
    place = Device("cuda", precision=cell.precision)
    backend = place.backend
    recipes = [Recipe(SGD(momentum))] * members
    step = PopulationStep(network, BATCH, place, recipes)
    with place, backend.scope(place):
        pictures = backend.to_device(data[0].reshape(len(data[0]), *network.inputs))
        labels = backend.to_device(data[1])
        weights = stacked(network, range(members))
        parameters = {path: backend.to_device(a) for path, a in weights.items()}
        still = stacked_slots(network, recipes, weights)
        slots = {name: backend.to_device(a) for name, a in still.items()}

    def run(order: Any) -> Any:
        return step.run(
            parameters, slots, pictures, labels, order, list(cell.rates()), range(members)
        )

    return run


def torch_steps(cell: Cell) -> Steps:
    """The same in PyTorch: batched products, the step captured as one graph."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = cell.precision == "tf32"
    network, data, members, momentum = cell.network(), images(), cell.members, cell.momentum
    leaves = [
        torch.from_numpy(a).cuda().requires_grad_()
        for a in stacked(network, range(members)).values()
    ]
    speeds = [torch.zeros_like(leaf) for leaf in leaves]
    pictures = torch.from_numpy(data[0].reshape(len(data[0]), -1)).cuda()
    labels = torch.from_numpy(data[1]).cuda()
    down = torch.from_numpy(-np.asarray(cell.rates(), np.float32)).cuda()
    chosen = torch.zeros(members * BATCH, dtype=torch.int64, device="cuda")

    def step() -> Any:
        x = pictures.index_select(0, chosen).view(members, BATCH, -1)
        y = labels.index_select(0, chosen)
        with torch.autocast("cuda", torch.bfloat16, enabled=cell.precision == "bfloat16"):
            for layer in range(0, len(leaves), 2):
                x = torch.baddbmm(leaves[layer + 1][:, None], x, leaves[layer])
                x = torch.relu(x) if layer < len(leaves) - 2 else x
        rows = torch.nn.functional.cross_entropy(x.float().flatten(0, 1), y, reduction="none")
        losses = rows.view(members, BATCH).mean(1)
        gradients = torch.autograd.grad(losses.sum(), leaves)
        with torch.no_grad():
            for leaf, speed, gradient in zip(leaves, speeds, gradients, strict=True):
                if momentum:
                    gradient = speed.mul_(momentum).add_(gradient)
                leaf.addcmul_(down.view(members, *[1] * (leaf.ndim - 1)), gradient)
        return losses.detach()

    before = [leaf.detach().clone() for leaf in leaves]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # what it reads is still being written there
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        kept = step()
    with torch.no_grad():
        for leaf, speed, start in zip(leaves, speeds, before, strict=True):
            leaf.copy_(start)
            speed.zero_()

    held = leaves, speeds, pictures, labels, down  # a graph keeps nothing alive

    def run(order: Any, held: Any = held) -> Any:
        rows = torch.from_numpy(order.reshape(len(order), -1)).cuda()
        losses = torch.empty(order.shape[:2], device="cuda")
        for row in range(len(order)):
            chosen.copy_(rows[row])
            graph.replay()
            losses[row] = kept
        return losses.cpu().numpy()

    return run


CONTESTANTS: dict[str, Callable[[Cell], Steps]] = {
    "pareo": pareo_steps,
    "torch-graph": torch_steps,
}


class Runner:
    """A contestant in its own process."""

    def __init__(self, name: str, cell: Cell, steps: int) -> None:
        self._run = CONTESTANTS[name](cell)
        self._order = cell.order(steps)

    def __call__(self, steps: int | None = None) -> tuple[float, Any]:
        """Microseconds for each network and step, and the losses."""
        order = self._order[:steps]
        begin = time.perf_counter()
        losses = self._run(order)
        took = time.perf_counter() - begin
        return took / order.shape[0] / order.shape[1] * 1e6, losses


def race(cell: Cell, rounds: int, steps: int) -> dict[str, Any]:
    """Microseconds for each network and step, sample by sample, of all contestants in turn."""
    found: dict[str, Any] = {**asdict(cell), "batch": BATCH, "samples": {}, "notes": {}}
    with ExitStack() as stack:
        running: dict[str, Worker] = {}
        first: dict[str, Any] = {}
        for name in CONTESTANTS:
            worker = stack.enter_context(Worker(Runner, name, cell, steps))
            try:
                first[name] = worker.ask(FIRST)[1]
                worker.ask()
                running[name] = worker
            except Failed as failure:  # a contestant that fails is a row
                found["notes"][name] = str(failure)
        if len(first) == len(CONTESTANTS):
            apart = float(np.max(np.abs(first["pareo"] / first["torch-graph"] - 1)))
            found["first_losses_differ_by"] = apart
            if not apart < AGREE[cell.precision]:
                found["notes"]["pareo"] = f"refused: its first losses differ by {apart:.2g}"
                running.pop("pareo", None)
        found["samples"] = {name: [] for name in running}
        for answers in interleaved(running, rounds):
            for name, answer in answers.items():
                if isinstance(answer, Failed):
                    found["notes"][name] = str(answer)
                else:
                    found["samples"][name].append(answer[0])
    return found


def table(cells: list[dict[str, Any]]) -> Table:
    """What was measured."""
    made = Table(title="microseconds for each network and step", title_justify="left")
    for head in ("width", "members", "momentum", "precision", "contestant"):
        made.add_column(head)
    for head in ("median", "95 % interval", "note"):
        made.add_column(head, justify="right")
    for cell in cells:
        about = [str(cell[key]) for key in ("width", "members", "momentum", "precision")]
        for name in CONTESTANTS:
            samples = cell["samples"].get(name)
            if not samples:
                made.add_row(*about, name, "", "", cell["notes"].get(name, ""))
                continue
            low, middle, high = interval(samples)
            made.add_row(*about, name, f"{middle:.3g}", f"{low:.3g} to {high:.3g}", "")
    return made


def main(
    widths: Annotated[str, typer.Option(help="Hidden units of each layer.")] = "196,784",
    members: Annotated[str, typer.Option(help="Sizes of the population.")] = "64",
    momentum: float = 0.0,
    precision: options.Precision = "tf32",
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each contestant.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a sample.")] = 64,
    json_file: options.JsonFile = None,
) -> None:
    """Time the training step of a population of MLPs on a GPU in pareo and PyTorch."""
    options.check_choice("--precision", precision, PRECISIONS)
    cells = [
        race(Cell(width, count, momentum, precision), rounds, steps)
        for width in options.numbers("--widths", widths)
        for count in options.numbers("--members", members)
    ]
    Console(width=120).print(table(cells))
    if json_file:
        write_whole(json_file, to_json({"machine": describe(), "cells": cells}))


if __name__ == "__main__":
    run(lambda: typer.run(main))
