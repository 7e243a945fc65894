"""A result of `pareo ops` that nobody measured, and a machine that does not exist."""

from pareo.lab.experiment import results
from pareo.lab.machine.ceilings import Ceilings, Measured
from pareo.lab.machine.ceilings.model import DataSheet, Key, Level
from pareo.lab.ops.engine import Benchmark
from pareo.lab.ops.result import Cell
from pareo.lab.ops.work import Work

MB = 1 << 20
SHEET = DataSheet(flops={"float32": 80e9}, bandwidth=60e9, source="a made-up data sheet")


def machine(idle_cores=None):
    """A machine of 60 GFLOP/s, with a cache of 4 MB at 90 GB/s before memory at 50."""
    samples = [
        Measured("product", "float32", "numpy", 1, 1536, samples=[30e9, 31e9]),
        Measured("product", "float32", "numpy", 2, 1536, samples=[58e9, 60e9, 59e9]),
        Measured("overhead", "np.add of one number", "numpy", 1, samples=[2e-6, 1e-6, 3e-6]),
    ]
    for count in (1, 2):
        for name, share in (("copy", 1.0), ("triad", 0.9), ("read", 0.8)):
            for nbytes, rate in ((1 * MB, 90e9), (2 * MB, 90e9), (16 * MB, 50e9)):
                rates = [rate * share]
                samples.append(Measured("stream", name, "loops", count, nbytes, samples=rates))
    return Ceilings(
        device="cpu",
        key=Key(processor="a machine <that> is made up", memory_bytes=1 << 34),
        when="2026-01-01T00:00:00",
        levels=[Level("L2", 4 * MB, 2)],
        samples=samples,
        datasheet=SHEET,
        idle_cores=idle_cores,
    )


def made(seconds=1e-2):
    """Two contestants, three operators, one of them on two sizes, forward."""
    works = [Work("add", "forward", 2 * MB), Work("add", "forward", 64 * MB)]
    works += [Work("dot", "forward", 2 * MB), Work("transpose", "forward", 2 * MB)]
    result = Benchmark([], [], {"cpu": machine()}, threads=2).result()
    for work in works:
        for number, name in enumerate(("pareo-compiled", "torch")):
            cell = _cell(work, name)
            cell.error = 1e-7
            cell.hot = [seconds * (number + 1)] * 3
            cell.cold = [seconds * (number + 2)] * 3 if work.nbytes < 16 * MB else []
            result.rows.append(cell)
    missing = _cell(works[0], "jax")
    missing.end("missing", "not <here>")
    result.rows.append(missing)
    return result


def plain(**more):
    """The same as JSON has it."""
    return results.plain(made(**more))


def _cell(work, contestant):
    kind = work.operator, work.direction, work.nbytes
    found = Cell(contestant, *kind, place="cpu", flops=work.flops, least_flops=work.least_flops)
    found.read, found.written = work.read, work.written
    return found
