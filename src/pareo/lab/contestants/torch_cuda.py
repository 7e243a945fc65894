"""PyTorch on a GPU: eager, through torch.compile, and either of them as one CUDA graph."""

from importlib import import_module
from typing import Any

from pareo.lab.contestants import Array, Task, Trainer, torch_step


def load(compiled: bool = False, **_: object) -> None:
    """Import PyTorch, and its compiler if asked."""
    torch_step.load()
    if compiled:
        import_module("torch._inductor.compile_fx")


def build(
    task: Task,
    compiled: bool = False,
    graph: bool = False,
    benchmark: bool = True,
    cudnn: bool = True,
    precision: str = "float32",
) -> Trainer:
    """The task in PyTorch, channels last.

    `benchmark` times cuDNN's algorithms and takes the fastest, which may be less exact. Without it
    cuDNN chooses by rule, PyTorch's default. Without `cudnn`, convolutions are PyTorch's own.
    """
    torch = torch_step.load()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled = benchmark, cudnn
    return TorchCudaTrainer(torch, task, compiled, graph, precision == "bfloat16")


class TorchCudaTrainer(torch_step.TorchTrainer):
    """The task with autograd, its data and the order of its images on the GPU."""

    place = "cuda"

    def __init__(self, torch: Any, task: Task, compiled: bool, graph: bool, half: bool) -> None:
        self._torch, self._half = torch, half
        super().__init__(task, last=len(task.network.inputs) == 3 and task.network.inputs[0] > 1,
                         compiled=compiled)  # fmt: skip
        self._chosen = torch.zeros(task.batch, dtype=torch.int64, device="cuda")
        self._graph: Any = None
        if graph:
            self._graph, self._recorded = self._captured()

    def _configure(self, config: Any) -> None:
        config.autotune_local_cache = False  # no times that were measured on a busy GPU

    def _computed(self, x: Array, labels: Array) -> Array:
        torch = self._torch
        with torch.autocast("cuda", torch.bfloat16, enabled=self._half):
            return self._loss(self._leaves, x, labels)

    def _captured(self) -> tuple[Any, Array]:
        """A graph of one step on `self._chosen`, and where it leaves the loss."""
        torch = self._torch
        before = self.parameters()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())  # what it reads is still being written there
        with torch.cuda.stream(side):
            for _ in range(3):  # to compile, and to choose algorithms, before the capture
                self._step(self._chosen)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()  # the capture allocates what the graph needs
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):  # autograd warns of any other stream
            loss = self._step(self._chosen)
        self.load(before)
        return graph, loss

    def facts(self) -> dict[str, object]:
        """How it computes."""
        torch, tf32 = self._torch, self._torch.backends.cudnn.allow_tf32
        words = [self._words]
        words += ["CUDA graph"] if self._graph else []
        chosen = "timed" if torch.backends.cudnn.benchmark else "by rule"
        words.append(f"cuDNN {chosen if torch.backends.cudnn.enabled else 'off'}")
        return {
            "precision": "bfloat16" if self._half else "tf32" if tf32 else "float32",
            "layout": "channels last" if self._last else "channels first",
            "mode": ", ".join(words),
            "version": torch.__version__,
            "first_layer_data_gradient": False,
        }

    def run(self, order: Array) -> list[Array]:
        """Train one step for each row of image numbers; the losses."""
        torch = self._torch
        losses = []
        for chosen in torch.from_numpy(order).cuda().unbind():
            if self._graph is None:
                losses.append(self._step(chosen))
                continue
            self._chosen.copy_(chosen)
            self._graph.replay()
            losses.append(self._recorded.clone())
        torch.cuda.synchronize()
        return losses

    def run_eagerly(self) -> None:
        """One step, operator by operator, even if a race replays a graph of it."""
        self._step(self._chosen)
        self._torch.cuda.synchronize()

    def forget_peak(self) -> None:
        """Reset both peaks; a graph, which allocates nothing more, has done so before."""
        if self._graph is None:
            self._torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        """The most GPU memory that tensors have had."""
        return int(self._torch.cuda.max_memory_allocated())

    def reserved_bytes(self) -> int:
        """The most that PyTorch's allocator has held, in use or not."""
        return int(self._torch.cuda.max_memory_reserved())
