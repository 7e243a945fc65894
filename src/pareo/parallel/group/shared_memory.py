"""Arrays that several workers see: threads as they are, processes through shared memory.

The memory has no name that could be left behind. It is freed when the last process that maps it has
ended, however it ended.
"""

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.program.kernel import ALIGNMENT
from pareo.spec import Spec

Specs = Mapping[str, Spec]
DATASET_ARRAYS = ("images", "labels", "test_images", "test_labels")


def byte_offsets(specs: Specs) -> tuple[dict[str, int], int]:
    """Where each array starts in one aligned block of bytes, and the size of the block.

    >>> byte_offsets({"a": Spec((3,)), "b": Spec((2, 2))})
    ({'a': 0, 'b': 64}, 128)
    """
    offsets, end = {}, 0
    for name, spec in specs.items():
        offsets[name] = end
        end += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(1, end)


def views(block: np.ndarray, specs: Specs) -> dict[str, np.ndarray]:
    """Views of the arrays in a block of bytes, by name."""
    offsets, _ = byte_offsets(specs)
    return {
        name: block[start : start + specs[name].nbytes]
        .view(specs[name].dtype)
        .reshape(specs[name].shape)
        for name, start in offsets.items()
    }


class SharedArrays:
    """Named arrays in one block of memory, all zero at first.

    With `processes` it can be an argument of a `multiprocessing.Process`, which then sees the same
    memory. The memory is freed with the last of its arrays.

    >>> shared = SharedArrays({"total": Spec((2,))}, processes=True)
    >>> shared["total"][:] = 1, 2
    >>> float(shared["total"].sum())
    3.0
    """

    def __init__(self, specs: Specs, processes: bool = False) -> None:
        self.specs = dict(specs)
        size = byte_offsets(self.specs)[1]
        self._file = -1
        if processes:
            self._file = os.memfd_create("pareo")
            os.ftruncate(self._file, size)
        self._map(size)

    def _map(self, size: int) -> None:
        memory = mmap.mmap(self._file, size)
        self._arrays = views(np.frombuffer(memory, np.uint8), self.specs)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def with_prefix(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose names start with a prefix, by the rest of their names.

        >>> list(SharedArrays({"w.0": Spec(()), "b": Spec(())}).with_prefix("w."))
        ['0']
        """
        skip = len(prefix)
        return {name[skip:]: a for name, a in self._arrays.items() if name.startswith(prefix)}

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)

    def __getstate__(self) -> dict[str, Any]:
        return {"specs": self.specs, "file": reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.specs = state["specs"]
        self._file = state["file"].detach()
        self._map(byte_offsets(self.specs)[1])


@dataclass(frozen=True)
class DatasetHandle:
    """A dataset in shared memory, as it is sent to a process, which attaches it."""

    shared: SharedArrays
    name: str
    classes: int
    class_names: tuple[str, ...]

    def attach(self) -> Dataset:
        """The dataset, whose arrays lie in the shared memory."""
        images, labels, test_images, test_labels = (self.shared[name] for name in DATASET_ARRAYS)
        return Dataset(
            self.name, images, labels, test_images, test_labels, self.classes, self.class_names
        )


def shared_dataset(data: Dataset) -> DatasetHandle:
    """Copy a dataset into shared memory; the handle can be sent to processes.

    >>> from pareo.data import load
    >>> shared_dataset(load("synthetic:16:3:120")).attach()
    <Dataset synthetic:16:3:120: 100 images of 16 float32, 20 more for testing, 3 classes>
    """
    arrays = {name: getattr(data, name) for name in DATASET_ARRAYS}
    specs = {name: Spec(a.shape, a.dtype) for name, a in arrays.items()}
    shared = SharedArrays(specs, processes=True)
    for name, array in arrays.items():
        shared[name][...] = array
    return DatasetHandle(shared, data.name, data.classes, data.class_names)
