"""Hardware counters, by a ladder: the best that this machine allows, and its name on each figure.

On a GPU: Nsight Compute (`ncu`), then CUPTI's times of kernels, then timing alone. On a CPU: Linux
`perf_event`, then timing alone.
"""

from pareo.lab.machine.counters.ladder import Rung, rung_of

__all__ = ["Rung", "rung_of"]
