"""Hardware counters: the best source that this machine allows, which each figure names.

On a GPU: Nsight Compute (`ncu`), else CUPTI's times of kernels, else timing alone. On a CPU: Linux
`perf_event`, else timing alone.
"""

from pareo.lab.ops.counters.ladder import Rung, rung_of

__all__ = ["Rung", "rung_of"]
