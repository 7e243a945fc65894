"""The backend of the `cuda` device; the modules of `kernels/` fill its table."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import numpy as np

from pareo.array import Array
from pareo.backends.base import Backend, StepRunner, TrainingLoop
from pareo.backends.cuda.runtime import cublas, memory, streams
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.backends.cuda.runtime.graph import Replay
from pareo.device import Device, current
from pareo.errors import DeviceError
from pareo.program.executable import Executable
from pareo.program.ir import Program
from pareo.program.kernel import Call
from pareo.program.plan import Plan
from pareo.spec import Spec

# Minimum number of instructions before a buffer of up to so many bytes may be reused; AT_LEAST for
# larger ones. Until then independent instructions can run at the same time. Larger values (12 and 6
# instead of 8 and 2) made no step of AlexNet or GoogLeNet faster by 0.5 % on an H200; smaller ones
# made some slower.
IDLE = {4 << 20: 64, 64 << 20: 8}
AT_LEAST = 2
SPARE = 0.5  # of the free memory; larger plans reuse every buffer at once


class _Cuda(Backend):
    """The backend whose arrays are CuPy's."""

    def empty(self, spec: Spec) -> Array:
        return memory.empty(spec.shape, spec.dtype)

    def arena(self, nbytes: int) -> Array:
        return memory.empty((nbytes,), np.uint8)  # CuPy aligns to 512 bytes

    def as_operand(self, name: str, array: Array) -> Array:
        if isinstance(array, np.ndarray) and array.ndim == 0:
            return memory.number(array)
        self.check(name, array)
        return array

    def without_subclass(self, array: Array) -> Array:
        return array  # kernels read addresses, whatever the class

    def is_local(self, array: Array) -> bool:
        return isinstance(array, cupy.ndarray)

    def check(self, name: str, array: Array) -> None:
        if not self.is_local(array):
            raise DeviceError(
                f"{name} on 'cuda' expects CuPy arrays; got one of {type(array).__module__}, and "
                "nothing moves between devices unless asked: see pareo.to_device"
            )
        here, there = cupy.cuda.runtime.getDevice(), array.data.device_id
        if there != here:
            raise DeviceError(f"{name} is on 'cuda:{there}', not on 'cuda:{here}'")

    def to_device(self, array: Array) -> Array:
        return memory.to_device(array)

    def to_host(self, array: Array) -> Array:
        return memory.to_host(array)

    def contiguous(self, array: Array) -> Array:
        return array if array.flags.c_contiguous else cupy.ascontiguousarray(array)

    def copy(self, target: Array, source: Array) -> None:
        target[...] = source

    def may_share_memory(self, a: Array, b: Array) -> bool:
        return memory.share(a, b)

    def address(self, array: Array) -> int:
        return int(array.data.ptr)

    def is_writable(self, array: Array) -> bool:
        return True

    def check_available(self, device: Device) -> None:
        if device.index >= _gpu_count():
            raise DeviceError(
                f"the device '{device}' is not available: this machine has {_gpu_count()} in all"
            )

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if cupy.cuda.runtime.getDevice() == device.index:
            return _HERE
        return cupy.cuda.Device(device.index)

    def wait(self) -> None:
        cupy.cuda.get_current_stream().synchronize()

    def runner(self) -> Callable[[Callable[[], None], Sequence[Array]], None]:
        return Replay()

    def reuse_distance(self, nbytes: int) -> int:
        return next((steps for most, steps in IDLE.items() if nbytes <= most), AT_LEAST)

    def has_spare_memory(self, nbytes: int) -> bool:
        free, _ = cupy.cuda.runtime.memGetInfo()
        return nbytes <= SPARE * (free + cupy.get_default_memory_pool().free_bytes())

    def persistent_bytes(self) -> int:
        return cublas.standing_bytes()

    def execute(self, calls: Sequence[Call], values: list[Array]) -> None:
        """Run the calls in order, or on several streams while a graph is captured."""
        if streams.capturing():
            streams.execute(calls, values)
        else:
            super().execute(calls, values)

    def place_dataset(self, array: Array) -> Array:
        from pareo.backends.cuda.training import place_dataset

        return place_dataset(array)

    def step_runner(self, executable: Executable, seeds: int) -> StepRunner:
        from pareo.backends.cuda.training import TrainingSteps

        return TrainingSteps(executable, seeds)

    def reads_dataset_in_place(self, program: Program, images: int) -> bool:
        from pareo.backends.cuda.runtime.indexed_batch import reads_in_place

        return reads_in_place(program, images)

    def lower(self, program: Program) -> Program:
        from pareo.backends.cuda.ways import lowered

        return lowered(program)

    def describe_lowering(self, program: Program) -> str:
        from pareo.backends.cuda.ways import description

        return description(program)

    def squaring(self, matrix: Array) -> Callable[[], Array]:
        from pareo.backends.cuda.kernels.linear import squared

        return squared(matrix)

    def training_loop(self, program: Program, plan: Plan, threads: int) -> TrainingLoop | None:
        """The whole-epoch kernel, for networks that fit into a multiprocessor."""
        from pareo.backends.cuda.epoch import loop

        return loop(program, exact=current().precision == "float32")


_HERE: AbstractContextManager[object] = nullcontext()  # the current GPU already


@cache
def _gpu_count() -> int:
    return int(cupy.cuda.runtime.getDeviceCount())


backend = _Cuda("cuda")
