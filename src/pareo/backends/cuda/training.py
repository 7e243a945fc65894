"""Many training steps on the GPU: batches are gathered there, and each step is one graph launch.

A first layer that can read images from the dataset by index does so; then only labels are gathered.
A dataset that does not fit into GPU memory stays in pinned host memory, which kernels can read: a
second stream gathers the next batch from there while the current one is computed.
"""

import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import numpy as np

from pareo import moving
from pareo.array import Array
from pareo.backends.cuda.grid.lower import loop_of
from pareo.backends.cuda.runtime import launch, memory
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.backends.cuda.runtime.graph import Replay
from pareo.backends.cuda.runtime.indexed_batch import indexed_batch, reads_in_place
from pareo.backends.cuda.runtime.launch import NULL
from pareo.errors import DeviceError, DtypeError, ShapeError
from pareo.program.executable import Executable
from pareo.spec import Spec

DATASET_SHARE = 0.6  # of the free memory; programs get the rest
# Minimum number of steps to allocate for, so that a longer order does not force a new capture;
# fewer where the order would take more than so many bytes.
LEAST_ROWS, LEAST_BYTES = 1024, 1 << 20
THREADS = 256
BYTES = 4 * 16 * THREADS  # of an image for each block: four copies of 16 bytes for each thread


def place_dataset(array: Array) -> Array:
    """The dataset on the GPU if it fits there, else pinned in host memory."""
    if isinstance(array, cupy.ndarray):
        return array
    free, _ = cupy.cuda.runtime.memGetInfo()
    unused = cupy.get_default_memory_pool().free_bytes()
    if array.nbytes <= DATASET_SHARE * (free + unused):
        return memory.to_device(array)
    return pinned(array)


def pinned(array: Array) -> Array:
    """The same host array, its memory page-locked and visible to the GPU."""
    address = array.ctypes.data
    if address not in _pinned:
        cupy.cuda.runtime.hostRegister(address, array.nbytes, 0)
        _pinned[address] = array.nbytes
        weakref.finalize(array, _unpinned, address)
    return array


_pinned: dict[int, int] = {}  # bytes that a GPU can read, by start address


def _unpinned(address: int) -> None:
    del _pinned[address]
    cupy.cuda.runtime.hostUnregister(address)


def check_data(wanted: Spec, targets: Spec, images: Array, labels: Array, order: Array) -> None:
    """Raise an error for data that the gathering kernel would read wrongly: it checks nothing.

    >>> batch = Spec((2, 3)), Spec((2,), "int64")
    >>> check_data(*batch, np.zeros((5, 3), "f4"), np.zeros(5, "i8"), np.array([[0, 7]]))
    Traceback (most recent call last):
    pareo.errors.ShapeError: an order of 5 images expects numbers from 0 to 4; got 0 to 7
    """
    if images.dtype != wanted.dtype or labels.dtype != targets.dtype:
        raise DtypeError(
            f"steps expect images of {wanted.dtype} and labels of {targets.dtype}; "
            f"got {images.dtype} and {labels.dtype}"
        )
    own = () if targets.dtype.kind in "iu" else targets.shape[1:]  # not a population's members
    if images.shape[1:] != wanted.shape[1:] or labels.shape != (*images.shape[:1], *own):
        raise ShapeError(
            f"steps expect images of shape (N, *{wanted.shape[1:]}) and N labels; "
            f"got {images.shape} and {labels.shape}"
        )
    if not (images.flags.c_contiguous and labels.flags.c_contiguous):
        raise ShapeError("steps expect images and labels that are C-contiguous")
    # One pass over the indices: read as unsigned, negative ones are the largest.
    numbers = np.ascontiguousarray(order, np.int64).view(np.uint64)
    if order.size and not numbers.max() < len(images):
        raise ShapeError(
            f"an order of {len(images)} images expects numbers from 0 to {len(images) - 1}; "
            f"got {order.min()} to {order.max()}"
        )


class BatchBuffer:
    """Memory for the images and labels of one step."""

    def __init__(self, images: Spec, labels: Spec) -> None:
        self._spec = images
        self.size = images.shape[0]  # a population's labels have an axis for its members as well
        self.labels = memory.empty(labels.shape, labels.dtype)
        self._words = self.labels.nbytes // (4 * self.size)  # of a label, or of targets
        self.free: Any = None  # the event after which it may be refilled

    @cached_property
    def images(self) -> Array:
        """The images, allocated on first use."""
        return memory.empty(self._spec.shape, self._spec.dtype)

    def gather(self, images: Array, labels: Array, order: Array, step: Array) -> None:
        """Fill it with the images and labels of row `step` of `order`; `step` is on the GPU."""
        address = images.data.ptr if isinstance(images, cupy.ndarray) else images.ctypes.data
        size = self.images[0].size
        blocks = -(-self.images[0].nbytes // BYTES)
        self._gather(self.images, address, labels, order, step, size, blocks)

    def gather_labels(self, labels: Array, order: Array, step: Array) -> None:
        """Fill in the labels only."""
        self._gather(NULL, NULL, labels, order, step, 0, 1)

    def _gather(
        self,
        out: Array,
        address: Array,
        labels: Array,
        order: Array,
        step: Array,
        size: int,
        blocks: int,
    ) -> None:
        launch.kernel("batches", "gather", self._spec.dtype.char)(
            (self.size, blocks), (THREADS,),
            (out, self.labels, address, labels, order, step, self.size, size, self._words),
        )  # fmt: skip


class TrainingSteps:
    """Steps of one compiled program, each on the batch given by the next row of an order."""

    def __init__(self, executable: Executable, seeds: int) -> None:
        """The program's arguments are (parameters, slots, images, labels, numbers, seeds)."""
        self._executable, self._device = executable, executable.device
        program = executable.program
        moved = len(program.outputs) - 1  # parameters and slots
        data = program.inputs[moved : len(program.inputs) - seeds]
        self._images, self._labels, *numbers = (program.specs[number] for number in data)
        self._kind = self._images.dtype.char
        self._can_read_dataset = reads_in_place(program, data[0])
        with self._scope():
            self._batch = BatchBuffer(self._images, self._labels)
            self._numbers = memory.empty((len(numbers), *numbers[0].shape), numbers[0].dtype)
            self._loss = program.specs[program.outputs[0]]
            self._seeds = memory.empty((seeds,), np.int64)
            self._step = memory.empty((), np.int64)
            self._capacity = 0
            self._reserve(max(1, min(LEAST_ROWS, LEAST_BYTES // self._batch.labels.nbytes)))
            self._loop = loop_of(program)
        self._next: list[BatchBuffer] = []
        self._run: Any = None  # the program, bound to the arrays of the current call
        self._data: Any = None  # images and labels of the current call
        self._resident = Replay()
        self._streamed = Replay()

    def __call__(
        self,
        parameters: Mapping[str, Array],
        slots: Mapping[str, Array],
        images: Array,
        labels: Array,
        order: Array,
        numbers: Array,
        seeds: Array,
    ) -> Array:
        """Update parameters and slots in place, one step for each row of `order`.

        `numbers` and `seeds` have a row for each step. Returns the losses. A population has numbers
        and a loss for each of its members.
        """
        check_data(self._images, self._labels, images, labels, order)
        if isinstance(images, np.ndarray) and _pinned.get(images.ctypes.data, 0) < images.nbytes:
            raise DeviceError(
                "steps on 'cuda' expect images on the GPU, or in pinned memory of the host: see "
                "pareo.to_device"
            )
        with self._scope():
            self._reserve(len(order))
            memory.write(self._order[: len(order)], order)
            memory.write(self._all_seeds[: len(order)], seeds)
            memory.write(self._all_numbers[: len(order)], numbers)
            self._step.fill(0)
            self._data = images, labels
            in_place = self._reads_dataset(images)
            batch = self._indexed_batch(images) if in_place else self._batch.images
            self._run = self._executable.bind(
                parameters, slots, batch, self._batch.labels,
                tuple(self._numbers[i, ...] for i in range(len(self._numbers))),
                tuple(self._seeds[i, ...] for i in range(self._seeds.size)),
            )  # fmt: skip
            fixed = [*parameters.values(), *slots.values(), self._order, self._losses]
            if isinstance(images, cupy.ndarray):
                if self._loop is not None:
                    moved = *parameters.values(), *slots.values()
                    rows = (a[: len(order)] for a in (self._order, self._all_numbers, self._losses))
                    self._loop(moved, images, labels, *rows)
                else:
                    fixed += [images, labels]
                    for _ in range(len(order)):
                        self._resident(self._gathered_step, fixed)
            else:
                self._stream(len(order), fixed)
            self._data = self._run = None  # release the caller's arrays
            self._executable.release()
            return memory.to_host(self._losses[: len(order)]).astype(np.float64)

    @property
    def kept_bytes(self) -> int:
        """Bytes that the captured graphs of steps hold."""
        loop = self._loop.nbytes if self._loop else 0
        return loop + self._resident.kept_bytes + self._streamed.kept_bytes

    def _reads_dataset(self, images: Array) -> bool:
        """Whether a step reads these images from the dataset, by index."""
        enough = len(images) >= self._batch.size
        return self._can_read_dataset and enough and isinstance(images, cupy.ndarray)

    def _indexed_batch(self, images: Array) -> Array:
        return indexed_batch(images, self._batch.size, self._order, self._step)

    def _scope(self) -> ExitStack:
        scope = ExitStack()
        scope.enter_context(self._device)
        scope.enter_context(self._device.backend.scope(self._device))
        return scope

    def _reserve(self, rows: int) -> None:
        if rows <= self._capacity:
            return
        self._capacity = 1 << (rows - 1).bit_length()
        self._order: Array = memory.empty((self._capacity, self._batch.size), np.int64)
        self._all_seeds: Array = memory.empty((self._capacity, self._seeds.size), np.int64)
        kind = self._numbers.dtype
        self._all_numbers: Array = memory.empty((self._capacity, *self._numbers.shape), kind)
        self._losses: Array = memory.empty((self._capacity, *self._loss.shape), self._loss.dtype)

    def _gathered_step(self) -> None:
        images, labels = self._data
        if self._reads_dataset(images):
            self._batch.gather_labels(labels, self._order, self._step)
        else:
            self._batch.gather(images, labels, self._order, self._step)
        self._whole_step()

    def _whole_step(self) -> None:
        """Forward pass, backward pass and update on the batch that was gathered."""
        picked = (self._numbers, self._all_numbers, self._step, self._numbers.size)
        launch.blocks(1, THREADS, "batches", "pick_numbers", self._kind, *picked)
        count = self._seeds.size
        if count:
            arguments = (self._seeds, self._all_seeds, self._step, count)
            launch.blocks(1, THREADS, "batches", "pick_seeds", self._kind, *arguments)
        loss = self._run()[0]
        arguments = (self._losses, loss, self._step, loss.size)
        threads = launch.threads_for(loss.size)
        launch.blocks(1, threads, "batches", "advance", self._kind, *arguments)

    def _stream(self, rows: int, fixed: list[Array]) -> None:
        """Steps on images in host memory: the next batch is copied while one is computed."""
        if not self._next:
            self._next = [BatchBuffer(self._images, self._labels) for _ in range(2)]
            self._coming = cupy.cuda.Stream(non_blocking=True)
        images, labels = self._data
        computing = cupy.cuda.get_current_stream()
        numbers = cupy.arange(rows, dtype=np.int64)
        self._coming.wait_event(computing.record())
        for row in range(rows):
            batch = self._next[row % 2]
            with self._coming:
                if row >= 2:
                    self._coming.wait_event(batch.free)
                batch.gather(images, labels, self._order, numbers[row : row + 1])
                here = self._coming.record()
            moving.count("to_device", self._images.nbytes)
            computing.wait_event(here)
            self._batch.images[...] = batch.images
            self._batch.labels[...] = batch.labels
            batch.free = computing.record()
            self._streamed(self._whole_step, fixed)
