"""How fast a population steps on a GPU, beside PyTorch: `python -m pareo.lab.parallel_population`.

Many MLPs of one width, plain SGD, each with its own weights, order and rate. PyTorch multiplies
their matrices in batches, and its whole step is one CUDA graph, the batch gathered inside. Both
must agree on the first losses before a clock runs; then they take turns.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pareo.data import mnist
from pareo.device import PRECISIONS, Device
from pareo.lab.arguments import least_one, numbers
from pareo.lab.measure import interval
from pareo.machine import describe
from pareo.nn import networks
from pareo.parallel.population_step import PopulationStep, stacked
from pareo.training.fit import shuffled

BATCH = 128
AGREE = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}  # of a loss, after a few steps

Steps = Callable[[Any], Any]  # from an order (steps, members, batch) to losses (steps, members)


def pareo_steps(width: int, rates: Any, momentum: float, precision: str, data: Any) -> Steps:
    """Steps of a population in pareo, on the GPU."""
    network = networks.mlp([784, width, width, width, 10])
    place = Device("cuda", precision=precision)
    members = len(rates)
    backend = place.backend
    step = PopulationStep(network, BATCH, place, [momentum] * members, [0.0] * members)
    with place, backend.scope(place):
        images = backend.to_device(data[0].reshape(len(data[0]), *network.inputs))
        labels = backend.to_device(data[1])
        weights = stacked(network, range(members))
        parameters = {path: backend.to_device(a) for path, a in weights.items()}
        still = {path: np.zeros_like(a) for path, a in weights.items()} if momentum else {}
        velocities = {path: backend.to_device(a) for path, a in still.items()}

    def run(order: Any) -> Any:
        return step.run(
            parameters, velocities, images, labels, order, list(rates), list(range(members))
        )

    return run


def torch_steps(width: int, rates: Any, momentum: float, precision: str, data: Any) -> Steps:
    """The same in PyTorch: batched products, the step captured as one graph."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    members = len(rates)
    network = networks.mlp([784, width, width, width, 10])
    leaves = [
        torch.from_numpy(a).cuda().requires_grad_()
        for a in stacked(network, range(members)).values()
    ]
    speeds = [torch.zeros_like(leaf) for leaf in leaves]
    images = torch.from_numpy(data[0].reshape(len(data[0]), -1)).cuda()
    labels = torch.from_numpy(data[1]).cuda()
    down = torch.from_numpy(-np.asarray(rates, np.float32)).cuda()
    chosen = torch.zeros(members * BATCH, dtype=torch.int64, device="cuda")

    def step() -> Any:
        x = images.index_select(0, chosen).view(members, BATCH, -1)
        y = labels.index_select(0, chosen)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
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
    with torch.cuda.graph(graph):
        kept = step()
    with torch.no_grad():
        for leaf, speed, start in zip(leaves, speeds, before, strict=True):
            leaf.copy_(start)
            speed.zero_()

    def run(order: Any) -> Any:
        rows = torch.from_numpy(order.reshape(len(order), -1)).cuda()
        losses = torch.empty(order.shape[:2], device="cuda")
        for row in range(len(order)):
            chosen.copy_(rows[row])
            graph.replay()
            losses[row] = kept
        return losses.cpu().numpy()

    return run


CONTESTANTS = {"pareo": pareo_steps, "torch-graph": torch_steps}


def race(
    width: int, members: int, momentum: float, precision: str, rounds: int, steps: int
) -> dict[str, Any]:
    """Microseconds for each network and step, sample by sample, of everyone in turn."""
    digits = mnist.load()
    data = (
        digits.train_images.astype(np.float32) / np.float32(255),
        digits.train_labels.astype(np.int64),
    )
    rates = np.linspace(0.01, 0.05, members)
    order = np.stack(
        [shuffled(len(data[1]), member, 0)[: steps * BATCH] for member in range(members)]
    ).reshape(members, steps, BATCH).swapaxes(0, 1)  # fmt: skip
    order = np.ascontiguousarray(order)
    cell: dict[str, Any] = {
        "width": width, "members": members, "momentum": momentum, "precision": precision,
        "batch": BATCH, "samples": {}, "notes": {},
    }  # fmt: skip
    running: dict[str, Steps] = {}
    first: dict[str, Any] = {}
    for name, make in CONTESTANTS.items():
        try:
            run = make(width, rates, momentum, precision, data)
            first[name] = run(order[:4])
            run(order)
            running[name] = run
        except Exception as error:  # a contestant that fails is a row
            cell["notes"][name] = f"{type(error).__name__}: {error}"[:200]
    reference = first.get("torch-graph")
    if reference is not None and "pareo" in first:
        apart = float(np.max(np.abs(first["pareo"] / reference - 1)))
        cell["first_losses_differ_by"] = apart
        if not apart < AGREE[precision]:
            cell["notes"]["pareo"] = f"refused: its first losses differ by {apart:.2g}"
            running.pop("pareo")
    cell["samples"] = {name: [] for name in running}
    for _ in range(rounds):
        for name, run in running.items():
            begin = time.perf_counter()
            run(order)
            took = time.perf_counter() - begin
            cell["samples"][name].append(took / steps / members * 1e6)
    return cell


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


def main(words: list[str] | None = None) -> None:
    """Race, print, and keep."""
    parser = argparse.ArgumentParser(prog="python -m pareo.lab.parallel_population")
    parser.add_argument("--widths", type=numbers, default=[196, 784])
    parser.add_argument("--members", type=numbers, default=[64])
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--precision", choices=PRECISIONS, default="tf32")
    parser.add_argument("--rounds", type=least_one, default=8)
    parser.add_argument("--steps", type=least_one, default=64)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(words)
    cells = [
        race(width, members, given.momentum, given.precision, given.rounds, given.steps)
        for width in given.widths
        for members in given.members
    ]
    Console(width=120).print(table(cells))
    if given.json:
        given.json.write_text(json.dumps({"machine": describe(), "cells": cells}, indent=1))


if __name__ == "__main__":
    main()
