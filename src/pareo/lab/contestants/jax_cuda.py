"""JAX on a GPU: one jitted call for every step, or one `lax.scan` over all steps of a chunk."""

import os
from contextlib import suppress
from typing import Any

from pareo.lab.contestants import Task, Trainer, jax_step

load = jax_step.load
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default"}


def build(
    task: Task, scan: bool = False, last: bool = False, precision: str = "float32"
) -> Trainer:
    """The task in JAX, with channels last if asked."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the GPU is shared
    jax = jax_step.load()
    if jax.default_backend() != "gpu":
        raise RuntimeError(f"this JAX runs on '{jax.default_backend()}', not on a GPU")
    jax.config.update("jax_default_matmul_precision", PRECISIONS[precision])
    return JaxCudaTrainer(jax, task, scan, last, precision)


class JaxCudaTrainer(jax_step.JaxTrainer):
    """The task in JAX, which also reports its GPU memory."""

    def __init__(self, jax: Any, task: Task, scan: bool, last: bool, precision: str) -> None:
        super().__init__(task, scan, last, half=precision == "bfloat16")
        self._jax, self._precision = jax, precision

    def facts(self) -> dict[str, object]:
        """How it computes."""
        return {**super().facts(), "precision": self._precision}

    def peak_bytes(self) -> int:
        """The GPU memory of a step, as XLA reports it for what it compiled.

        The allocator's peak includes XLA's search for algorithms, and cannot be reset.
        """
        with suppress(RuntimeError):  # XLA may not report it
            if nbytes := jax_step.step_bytes():
                return nbytes
        return int(self._stats()["peak_bytes_in_use"])

    def reserved_bytes(self) -> int | None:
        """The most that JAX's allocator has held, in use or not; None if unknown.

        By default JAX takes three quarters of the GPU's memory at once; here it grows as needed.
        """
        stats = self._stats()
        held = stats.get("peak_pool_bytes", stats.get("pool_bytes"))
        return None if held is None else int(held)

    def _stats(self) -> dict[str, int]:
        found: dict[str, int] = self._jax.local_devices()[0].memory_stats()
        return found
