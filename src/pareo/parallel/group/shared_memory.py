"""Arrays that several workers see: threads as they are, processes through shared memory.

The memory has no name that could be left behind: it is freed when the last who sees it is gone,
however it went.
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
PARTS = ("images", "labels", "test_images", "test_labels")  # of a Dataset


def places(specs: Specs) -> tuple[dict[str, int], int]:
    """Where each array starts in one block of bytes, and the bytes of it all.

    >>> places({"a": Spec((3,)), "b": Spec((2, 2))})
    ({'a': 0, 'b': 64}, 128)
    """
    offsets, end = {}, 0
    for name, spec in specs.items():
        offsets[name] = end
        end += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(1, end)


def views(block: Any, specs: Specs) -> dict[str, Any]:
    """The arrays in a block of bytes, by name."""
    offsets, _ = places(specs)
    return {
        name: block[start : start + specs[name].nbytes]
        .view(specs[name].dtype)
        .reshape(specs[name].shape)
        for name, start in offsets.items()
    }


class Shared:
    """Arrays by name in one block of memory, all zero at first.

    With `processes` it can be an argument of a `multiprocessing.Process`, which then sees the same
    memory. The memory is freed with the last of its arrays.

    >>> shared = Shared({"total": Spec((2,))}, processes=True)
    >>> shared["total"][:] = 1, 2
    >>> float(shared["total"].sum())
    3.0
    """

    def __init__(self, specs: Specs, processes: bool = False) -> None:
        self.specs = dict(specs)
        size = places(self.specs)[1]
        self._file = -1
        if processes:
            self._file = os.memfd_create("pareo")
            os.ftruncate(self._file, size)
            self._see(mmap.mmap(self._file, size))
        else:
            self._see(mmap.mmap(-1, size))

    def _see(self, memory: Any) -> None:
        self._arrays = views(np.frombuffer(memory, np.uint8), self.specs)

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def below(self, prefix: str) -> dict[str, Any]:
        """The arrays whose name starts with a prefix, without it.

        >>> list(Shared({"w.0": Spec(()), "b": Spec(())}).below("w."))
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
        self._see(mmap.mmap(self._file, places(self.specs)[1]))


@dataclass(frozen=True)
class Handle:
    """Data in shared memory, as it is sent to a process, which attaches it there."""

    shared: Shared
    name: str
    classes: int
    class_names: tuple[str, ...]

    def attach(self) -> Dataset:
        """The data itself."""
        images, labels, test_images, test_labels = (self.shared[part] for part in PARTS)
        return Dataset(
            self.name, images, labels, test_images, test_labels, self.classes, self.class_names
        )


class SharedDataset:
    """Data copied into shared memory once; a scope that gives a `Handle` to send to processes.

    >>> from pareo.data import load
    >>> with SharedDataset(load("synthetic:16:3:120")) as handle:
    ...     handle.attach()
    <Dataset synthetic:16:3:120: 100 images of 16 float32, 20 more for testing, 3 classes>
    """

    def __init__(self, data: Dataset) -> None:
        arrays = {part: getattr(data, part) for part in PARTS}
        specs = {part: Spec(a.shape, a.dtype) for part, a in arrays.items()}
        self._shared = Shared(specs, processes=True)
        for part, array in arrays.items():
            self._shared[part][...] = array
        self._about = (data.name, data.classes, data.class_names)

    def __enter__(self) -> Handle:
        return Handle(self._shared, *self._about)

    def __exit__(self, *_: object) -> None:
        """Nothing to free: the memory goes with the last handle."""
