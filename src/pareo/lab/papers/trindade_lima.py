"""The third paper: AlexNet and GoogLeNet at batch 1 to 512, on CPU and GPU, in two frameworks.

R. G. Trindade and J. V. F. Lima, Análise de Desempenho de Frameworks de Deep Learning. Its figure
of times has no numbers; the numbers of its text and its table are here.
"""

MACHINE = "Intel Xeon E5620, 8 cores; 11 GB RAM; NVIDIA GeForce GTX Titan X, 12 GB"
FRAMEWORKS = "Caffe 1.0.0 and TensorFlow 1.4.0"
NETWORKS = ("alexnet", "googlenet")
BATCHES = tuple(2**power for power in range(10))
EPOCHS = 10

# The largest batch that fits on the GPU; the text does not name the network.
LARGEST = {"Caffe": 128, "TensorFlow": 256}

# The findings that the text gives in numbers, each with its device.
FINDINGS = (
    ("GPU", "TensorFlow's time per image is up to 49 % less than Caffe's"),
    ("CPU", "TensorFlow's time per image is up to 70 % less than Caffe's"),
    ("CPU", "GoogLeNet at batch 256 swaps, which takes four times as long per image"),
    ("GPU", "batch 256 fits in TensorFlow, 128 is the largest in Caffe"),
    ("GPU", "TensorFlow allocates all of the memory, whatever it needs"),
)

# Table 1: the kernel; seconds and calls in Caffe, in TensorFlow, and in its batched kernels.
SGEMM: tuple[tuple[str, tuple[float, int] | None, tuple[float, int] | None,
                   tuple[float, int] | None], ...] = (
    ("128x64_nn", (6.90060, 75264), (0.016219, 21), (0.14928, 26)),
    ("128x64_nt", (4.02506, 71680), None, (0.089606, 21)),
    ("128x64_tn", (5.02266, 71701), None, None),
    ("128x128_tn", (1.22427, 10282), (0.18607, 60), None),
    ("128x128_nn", (1.00165, 10812), (0.16892, 42), (0.31289, 45)),
    ("128x128_nt", (0.20359, 60), (0.16529, 60), (0.30616, 42)),
    ("64x64_nt", None, None, (0.39549, 64)),
    ("64x64_nn", None, None, (0.11230, 21)),
)  # fmt: skip


def totals() -> dict[str, tuple[float, int]]:
    """Seconds and calls of all kernels in the table.

    >>> totals()["Caffe"][1], totals()["TensorFlow"][1], totals()["TensorFlow, batched"][1]
    (239799, 183, 219)
    """
    found = {}
    for column, name in enumerate(("Caffe", "TensorFlow", "TensorFlow, batched"), start=1):
        cells = [row[column] for row in SGEMM]
        both = [cell for cell in cells if isinstance(cell, tuple)]
        found[name] = (sum(cell[0] for cell in both), sum(cell[1] for cell in both))
    return found
