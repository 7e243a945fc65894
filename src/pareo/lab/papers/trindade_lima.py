"""The third paper: AlexNet and GoogLeNet at batch 1 to 512, on CPU and GPU, in two frameworks.

R. G. Trindade and J. V. F. Lima, Análise de Desempenho de Frameworks de Deep Learning. Its figure
of times has no numbers; those of its text and its table are in trindade-lima.toml.
"""

from typing import Any

from pareo.lab.papers.published import paper

PAPER = paper("trindade-lima")
MACHINE = PAPER.machine
FRAMEWORKS = " and ".join(f"{one.name} {one.version}" for one in PAPER.software)
NETWORKS = ("alexnet", "googlenet")
BATCHES = tuple(2**power for power in range(10))
EPOCHS = 10
MEMORY = 12 * 10**9  # bytes of its GPU

# The largest batch that fits on the GPU; the text does not name the network.
LARGEST = {
    "Caffe": int(PAPER.value("largest-caffe")),
    "TensorFlow": int(PAPER.value("largest-tensorflow")),
}


def _less(name: str) -> str:
    return f"{100 * (1 - PAPER.value(name)):.0f}"


# The findings that the text gives in numbers, each with its device.
FINDINGS = (
    ("GPU", f"TensorFlow's time per image is up to {_less('gpu-time')} % less than Caffe's"),
    ("CPU", f"TensorFlow's time per image is up to {_less('cpu-time')} % less than Caffe's"),
    ("CPU", f"GoogLeNet at batch 256 swaps, which takes {PAPER.value('swap'):.0f} times as long "
            "per image"),
    ("GPU", f"batch {LARGEST['TensorFlow']} fits in TensorFlow, {LARGEST['Caffe']} is the largest "
            "in Caffe"),
    ("GPU", "TensorFlow allocates all of the memory, whatever it needs"),
)  # fmt: skip


def sgemm() -> dict[str, dict[str, tuple[float, int]]]:
    """Table 1: seconds and calls by framework and kernel, for the kernels that it calls.

    >>> sgemm()["TensorFlow"]["128x64_nn"]
    (0.016219, 21)
    """
    rows: Any = PAPER.table("sgemm").rows
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for column, name in enumerate(("Caffe", "TensorFlow", "TensorFlow, batched")):
        cells = {row[0]: (row[1 + 2 * column], row[2 + 2 * column]) for row in rows}
        found[name] = {kernel: both for kernel, both in cells.items() if both[1]}
    return found


def totals() -> dict[str, tuple[float, int]]:
    """Seconds and calls of all kernels in the table.

    >>> totals()["Caffe"][1], totals()["TensorFlow"][1], totals()["TensorFlow, batched"][1]
    (239799, 183, 219)
    """
    return {
        name: (sum(s for s, _ in cells.values()), sum(calls for _, calls in cells.values()))
        for name, cells in sgemm().items()
    }
