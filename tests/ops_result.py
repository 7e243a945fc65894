"""A result of `pareo ops` that nobody measured, and a machine that does not exist."""

from pareo.lab.machine.ceilings import Ceilings, Probe
from pareo.lab.machine.ceilings.model import Level
from pareo.lab.ops.engine import Laboratory
from pareo.lab.ops.work import Work

MB = 1 << 20
SHEET = {"flops": {"float32": 80e9}, "bandwidth": 60e9, "source": "a made-up data sheet"}


def machine(**more):
    """A machine of 60 GFLOP/s, with a cache of 4 MB at 90 GB/s before memory at 50."""
    samples = {
        Probe("product", "float32", "numpy", 1, 1536): (30e9, 31e9),
        Probe("product", "float32", "numpy", 2, 1536): (58e9, 60e9, 59e9),
        Probe("overhead", "np.add of one number", "numpy", 1): (2e-6, 1e-6, 3e-6),
    }
    for count in (1, 2):
        for name, share in (("copy", 1.0), ("triad", 0.9), ("read", 0.8)):
            for nbytes, rate in ((1 * MB, 90e9), (2 * MB, 90e9), (16 * MB, 50e9)):
                samples[Probe("stream", name, "loops", count, nbytes)] = (rate * share,)
    key = {"processor": "a machine <that> is made up", "memory_bytes": 1 << 34}
    levels = (Level("L2", 4 * MB, 2),)
    return Ceilings("cpu", key, "2026-01-01T00:00:00", levels, samples, SHEET, **more)


def made(seconds=1e-2):
    """Two contestants, three operators, one of them on two sizes, forward."""
    works = [Work("add", "forward", 2 * MB), Work("add", "forward", 64 * MB)]
    works += [Work("dot", "forward", 2 * MB), Work("transpose", "forward", 2 * MB)]
    lab = Laboratory([], [], {"cpu": machine()}, threads=2)
    result = lab.result()
    for work in works:
        for number, name in enumerate(("pareo-compiled", "torch")):
            row = {
                "operator": work.operator,
                "direction": work.direction,
                "nbytes": work.nbytes,
                "contestant": name,
                "place": "cpu",
                "status": "ok",
                "note": "",
                "flops": work.flops,
                "least_flops": work.least_flops,
                "read": work.read,
                "written": work.written,
                "error": 1e-7,
                "hot": [seconds * (number + 1)] * 3,
                "cold": [seconds * (number + 2)] * 3 if work.nbytes < 16 * MB else [],
                "counters": {},
            }
            result["rows"].append(row)
    missing = {**result["rows"][0], "contestant": "jax", "status": "missing", "note": "not <here>"}
    result["rows"].append({**missing, "hot": [], "cold": [], "error": None})
    return result
