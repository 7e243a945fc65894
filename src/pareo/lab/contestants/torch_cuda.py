"""PyTorch on a GPU: eager, through torch.compile, and either of them as one CUDA graph."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from pareo.lab.contestants import Task, Trainer, torch_step


def load(compiled: bool = False, **_: Any) -> None:
    """Import PyTorch, and its compiler for who wants it."""
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

    `benchmark` times cuDNN's algorithms and takes the fastest, which may be a less exact one;
    without, cuDNN chooses by rule, as PyTorch has it unless asked. Without `cudnn`, PyTorch's own
    convolutions.
    """
    torch = torch_step.load()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled = benchmark, cudnn
    return TorchCudaTrainer(torch, task, compiled, graph, precision == "bfloat16")


class TorchCudaTrainer:
    """The task with autograd, its data and the order of its images on the card."""

    def __init__(self, torch: Any, task: Task, compiled: bool, graph: bool, half: bool) -> None:
        self._torch, self._half, self._rate = torch, half, task.rate
        images, labels = (torch.from_numpy(a).cuda() for a in task.data())
        self._last = images.ndim == 4 and images.shape[1] > 1
        if self._last:
            # Rows that are gathered keep this order; as (N, C, H, W) they are channels last.
            images = images.permute(0, 2, 3, 1).contiguous()
        self._images, self._labels = images, labels
        self._leaves = {path: self._leaf(a) for path, a in task.parameters().items()}
        self._loss = torch_step.loss_of(task.network)
        self._compiled = compiled
        if compiled:
            from torch._inductor import config

            config.autotune_local_cache = False  # what was timed on a busy card serves nobody else
            self._loss = torch.compile(self._loss, dynamic=False)
        self._chosen = torch.zeros(task.batch, dtype=torch.int64, device="cuda")
        self._graph: Any = None
        if graph:
            self._graph, self._recorded = self._captured()

    def _leaf(self, array: Any) -> Any:
        leaf = self._torch.from_numpy(array).cuda()
        if self._last and leaf.ndim == 4:
            leaf = leaf.contiguous(memory_format=self._torch.channels_last)
        return leaf.requires_grad_()

    def _precision(self) -> AbstractContextManager[Any]:
        torch = self._torch
        return torch.autocast("cuda", torch.bfloat16, enabled=self._half)

    def _step(self, chosen: Any) -> Any:
        """One step; its loss."""
        leaves = list(self._leaves.values())
        x = self._images.index_select(0, chosen)
        x = x.permute(0, 3, 1, 2) if self._last else x
        with self._precision():
            loss = self._loss(self._leaves, x, self._labels.index_select(0, chosen))
        gradients = self._torch.autograd.grad(loss, leaves)
        with self._torch.no_grad():
            self._torch._foreach_add_(leaves, gradients, alpha=-self._rate)
        return loss.detach()

    def _captured(self) -> Any:
        """A graph of one step on `self._chosen`, and where it leaves the loss."""
        torch = self._torch
        before = [leaf.detach().cpu() for leaf in self._leaves.values()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())  # what it reads is still being written there
        with torch.cuda.stream(side):
            for _ in range(3):  # what is compiled or chosen by time is so before the capture
                self._step(self._chosen)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()  # what a graph takes is taken while it is captured
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):  # autograd warns of any other stream
            loss = self._step(self._chosen)
        with torch.no_grad():
            for leaf, start in zip(self._leaves.values(), before, strict=True):
                leaf.copy_(start)
        return graph, loss

    def load(self, parameters: dict[str, Any]) -> None:
        """Go on from other parameters."""
        with self._torch.no_grad():
            for path, leaf in self._leaves.items():
                leaf.copy_(self._torch.from_numpy(parameters[path]))

    def facts(self) -> dict[str, Any]:
        """How it computes."""
        torch, tf32 = self._torch, self._torch.backends.cudnn.allow_tf32
        words = ["torch.compile" if self._compiled else "eager"]
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

    def run(self, order: Any) -> Any:
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
        """One step, operator by operator, where a race may replay a graph of it."""
        self._step(self._chosen)
        self._torch.cuda.synchronize()

    def parameters(self) -> dict[str, Any]:
        """The parameters now."""
        return {path: leaf.detach().cpu().numpy().copy() for path, leaf in self._leaves.items()}

    def forget_peak(self) -> None:
        """Let both begin anew; a graph, which allocates nothing any more, has done so before."""
        if self._graph is None:
            self._torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        """The most that tensors have had of the card's memory."""
        return int(self._torch.cuda.max_memory_allocated())

    def reserved_bytes(self) -> int:
        """The most that PyTorch's allocator has held, in use or not."""
        return int(self._torch.cuda.max_memory_reserved())
