"""Load: memory stays flat however many shapes come, and a population may be large."""

import gc
import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from faults import Attempt, Kind, expect
from pareo import Device, grad, op
from pareo.data import load
from pareo.nn import networks
from pareo.parallel import Trial, train_many
from pareo.training import fit

CALLS = 500
GROWTH = 8 << 20  # bytes: a leak of one small array a call would be more


def resident() -> int:
    """The memory of this process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def gradients(random: Random, folder: Path) -> Attempt:
    """Gradients of arrays whose shapes change with every call."""
    device = random.choice(("vectorized", "compiled"))
    sizes = [tuple(random.randint(2, 60) for _ in range(3)) for _ in range(CALLS + 100)]

    def attempt() -> None:
        before = 0
        with Device(device, 1):
            for number, (rows, depth, columns) in enumerate(sizes):
                if number == 100:  # by then everything is imported and compiled
                    before = resident()
                x, w = np.ones((rows, depth)), np.ones((depth, columns))
                found = grad(lambda w, x=x: op.sum(op.dot(x, w)))(w)
                expect(found[0, 0] == rows and found.shape == w.shape, "the gradient is right")
        grown = resident() - before
        expect(grown < GROWTH, f"memory stays flat: {grown:,} B for {CALLS} calls")

    return attempt


def populations(random: Random, folder: Path) -> Attempt:
    """A thousand networks at once."""
    data, network = load("synthetic:16:3:240"), networks.mlp([16, 5, 3])
    some = random.sample(range(1000), 3)

    def attempt() -> None:
        trials = [Trial(network, batch_size=20, seed=seed, epochs=2) for seed in range(1000)]
        found = train_many(trials, data, "population", device=Device("vectorized", 1))
        expect(not any(result.error for result in found), "no network fails")
        alone = train_many([trials[seed] for seed in some], data, "serial", device="vectorized")
        for seed, result in zip(some, alone, strict=True):
            loss, right = found[seed].history[-1].loss, result.history[-1].loss
            expect(abs(loss - right) < 1e-4 * right, f"it trains as alone: {loss} and {right}")

    return attempt


def epochs(random: Random, folder: Path) -> Attempt:
    """A thousand epochs of the papers' CNN."""
    data = load("synthetic:1x28x28:10:24")
    device = random.choice(("vectorized", "compiled"))
    sizes: list[int] = []

    def measure(result: Any) -> None:
        if len(result.history) in (100, 1000):
            sizes.append(resident())

    def attempt() -> None:
        fit(
            networks.papers_cnn(), data, epochs=1000, batch_size=20, device=Device(device, 1),
            callbacks=[measure], progress=False,
        )  # fmt: skip
        grown = sizes[1] - sizes[0]
        expect(grown < GROWTH, f"memory stays flat: {grown:,} B for 900 epochs")

    return attempt


KINDS = (
    Kind("gradients of 500 shapes", gradients, 40, 0, 60.0, 10, False),
    Kind("1,000 epochs of a CNN", epochs, 2, 0, 400.0, 1, False),
    Kind("populations of 1,000", populations, 2, 0, 90.0, 2, False),
)
