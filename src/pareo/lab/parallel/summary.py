"""What a result of `pareo parallel` says, in sentences."""

from typing import Any

from pareo.lab.experiment.statistics import noticed
from pareo.lab.parallel.papers import ALL, HELPED, HELPED_PROCESSES, PROCESSES, SERIAL, THREADS

SAME = ((HELPED, THREADS), (HELPED_PROCESSES, PROCESSES))  # ours, and the paper's way


def title(result: dict[str, Any]) -> str:
    """What was trained, on how much.

    >>> title({"network": "mlp-small", "batch": 128, "images": 1280, "test_images": 100})
    'mlp-small, batch 128: 1,280 images to train on, 100 to test'
    """
    return (
        f"{result['network']}, batch {result['batch']}: {result['images']:,} images to train on, "
        f"{result['test_images']:,} to test"
    )


def lines(result: dict[str, Any]) -> list[str]:
    """The answer, and what a reader must know."""
    found = _papers(result) if "sgemm_peak" in result else _network(result)
    timed = {
        f"{row['contestant']}, {row['name']}, {row['workers']}": row["train"]
        for row in result["rows"]
        if row["train"]
    }
    return [*found, *noticed(timed, max(result["workers"]), result["machine"].get("idle_cores"))]


def _network(result: dict[str, Any]) -> list[str]:
    rows = [row for row in result["rows"] if row["speedup"] is not None and row["workers"] > 1]
    found = []
    for networks, what in ((1, "For one network"), (None, "For several")):
        own = [row for row in rows if (row["networks"] == 1) == (networks == 1)]
        if own:
            best = max(own, key=lambda row: row["speedup"])
            found.append(
                f"{what} the fastest is {best['name']} with {best['workers']} workers: "
                f"{best['speedup']:.2f} times as fast as one."
            )
    losing = [f"{row['name']} ({row['workers']})" for row in rows if row["speedup"] < 1]
    if losing:
        found.append(f"Slower than one worker: {', '.join(losing)}.")
    if "prediction" in result:
        found.append(f"Predicted for several: {result['prediction']['words']}.")
    return found


def _papers(result: dict[str, Any]) -> list[str]:
    by = {(row["contestant"], row["name"]): row for row in result["rows"] if row["train"]}
    found = []
    ours, alone, both = (by.get(("pareo", name)) for name in (HELPED, SERIAL, ALL))
    if ours and alone and both:
        found.append(
            f"Scheduled threads are {alone['seconds'] / ours['seconds']:.2f} times as fast as one "
            f"after another with one thread each, {both['seconds'] / ours['seconds']:.2f} times as "
            f"with all cores each, at {ours['of_peak']:.0%} of the sgemm peak "
            f"({result['sgemm_peak'] / 1e9:.1f} GFLOP/s)."
        )
    for mine, theirs in (*((name, name) for name in (SERIAL, ALL, THREADS, PROCESSES)), *SAME):
        here, there = by.get(("pareo", mine)), by.get(("torch", theirs))
        if here and there:
            found.append(
                f"{mine}: pareo trains {there['seconds'] / here['seconds']:.2f} times as fast as "
                f"PyTorch ({theirs}), tests {there['test_seconds'] / here['test_seconds']:.2f}."
            )
    together, single = (
        result["published"]["seconds"][k] for k in ("separate threads", "one thread")
    )
    found.append(
        f"The paper's Table 2: {single[0] / together[0]:.2f} times as fast in separate threads, "
        f"{single[1] / together[1]:.2f} in testing."
    )
    return found
