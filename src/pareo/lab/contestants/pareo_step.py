"""pareo itself: the step that `fit` runs, many of them in one call."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from pareo import __version__
from pareo.device import Device
from pareo.lab.contestants import Array, Task, Trainer
from pareo.moving import to_device, to_host
from pareo.training.step import Step


def load(device: str, **_: object) -> None:
    """Import what a device needs: for a GPU cuDNN, too, which takes a second or two."""
    if Device(device).backend.name == "cuda":
        import_module("pareo.backends.cuda.nhwc.conv.cudnn").missing()


def build(task: Task, device: str, dtype: str = "float32", precision: str = "float32") -> Trainer:
    """The task on one of pareo's devices."""
    return PareoTrainer(task, device, dtype, precision)


class PareoTrainer:
    """The task as a `Step`, which moves its parameters in place."""

    def __init__(self, task: Task, device: str, dtype: str, precision: str = "float32") -> None:
        self._place = Device(device, threads=task.threads, precision=precision)
        self.step = Step(task.network, task.batch, self._place, task.recipe, dtype)
        self._rate = task.rate
        images, labels = task.data()
        with self._place:
            self._images = to_device(images.astype(dtype, copy=False))
            self._labels = to_device(labels if task.loss.takes_classes else labels.astype(dtype))
        self._dtype, self._parameters = dtype, {}
        with self._place:
            for path, array in task.parameters().items():
                self._parameters[path] = self._there(array)

    def run(self, order: Array) -> Array:
        """Train one step for each row of image numbers; the losses."""
        with self._place:
            return to_host(
                self.step.run(self._parameters, {}, self._images, self._labels, order, self._rate)
            )

    def run_as_program(self) -> None:
        """One step on the first images, instruction by instruction, even if a race runs it whole.

        It is never captured, however often it runs.
        """
        backend = self._place.backend
        with self._place, backend.scope(self._place):
            batch = self._images[: self.step.batch], self._labels[: self.step.batch]
            numbers = tuple(self.step.numbers(self._rate, 0, 1)[0])
            self.step.executable.bind(self._parameters, {}, *batch, numbers, ())()
            backend.wait()
            self.step.executable.release()

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters, in the same arrays: a captured step is bound to them."""
        with self._place:
            for path, array in self._parameters.items():
                array[...] = self._there(parameters[path])

    def _there(self, array: Array) -> Array:
        return to_device(np.array(array, self._dtype, order="C"))

    def parameters(self) -> dict[str, Array]:
        """The parameters now."""
        with self._place:
            return {path: np.array(to_host(a)) for path, a in self._parameters.items()}

    def facts(self) -> dict[str, object]:
        """How it computes."""
        return {
            "precision": self._place.precision if self._dtype == "float32" else self._dtype,
            "layout": "channels first",
            "mode": f"device {self._place.name}",
            "version": __version__,
            "threads": 1 if self._place.name == "sequential" else self._place.threads,
            "first_layer_data_gradient": False,
        }

    def peak_bytes(self) -> int | None:
        """The GPU memory of all arrays, with the arena of all values; None on a CPU.

        A step needs no more: it allocates nothing but what its graph keeps.
        """
        pool = self._pool()
        return None if pool is None else int(pool.used_bytes()) + self.step.kept_bytes

    def reserved_bytes(self) -> int | None:
        """The GPU memory that CuPy's pools hold; None on a CPU."""
        pool = self._pool()
        return None if pool is None else int(pool.total_bytes()) + self.step.kept_bytes

    def standing_bytes(self) -> int:
        """Bytes that the device keeps for all programs: in `peak_bytes`, but in no prediction."""
        return self._place.backend.persistent_bytes()

    def _pool(self) -> Any:
        if self._place.backend.name != "cuda":
            return None
        return import_module("cupy").get_default_memory_pool()
