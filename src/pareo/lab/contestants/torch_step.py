"""PyTorch: eager or through torch.compile, with oneDNN or without, channels first or last.

A network that was imported from a module of PyTorch is trained as that very module.
"""

from collections.abc import Mapping
from typing import Any

from pareo.lab.contestants import Array, Task, Trainer
from pareo.lab.contestants.torch_models import model_of
from pareo.nn.torch_export import layers as torch_layers

torch: Any  # imported by `load`, when needed


def build(task: Task, onednn: bool = True, last: bool = False, compiled: bool = False) -> Trainer:
    """The task in PyTorch."""
    load()
    torch.set_num_threads(task.threads)
    torch.backends.mkldnn.enabled = onednn
    return TorchTrainer(task, last, compiled)


def load(**_: object) -> Any:
    """Import PyTorch for this module, and return it."""
    global torch
    torch = torch_layers.load()
    return torch


class TorchTrainer:
    """The task with autograd; only parameters have gradients, so the first layer's x has none."""

    place = "cpu"

    def __init__(self, task: Task, last: bool, compiled: bool) -> None:
        images, labels = (torch.from_numpy(a).to(self.place) for a in task.data())
        self._last = last and images.ndim == 4
        if self._last:
            # Rows that are gathered keep this order; as (N, C, H, W) they are channels last.
            images = images.permute(0, 2, 3, 1).contiguous()
        self._images, self._labels = images, labels
        self._model = model_of(task, self.place, self._last)
        self._leaves = self._model.leaves
        state = set(task.network.state)  # running statistics: the layers move them themselves
        moving = [leaf for path, leaf in self._leaves.items() if path not in state]
        self._moving = [leaf.requires_grad_() for leaf in moving]
        self._rate = task.rate
        self._loss, self._compiled = self._model.loss, compiled
        if compiled:
            from torch._inductor import config

            self._configure(config)
            self._loss = torch.compile(self._loss, dynamic=False)

    def _configure(self, config: Any) -> None:
        config.compile_threads = 1  # no idle helpers beside the other contestants

    def run(self, order: Array) -> list[Array]:
        """Train one step for each row of image numbers; the losses."""
        return [self._step(chosen) for chosen in torch.from_numpy(order).unbind()]

    def _step(self, chosen: Array) -> Array:
        """One step; its loss."""
        x = self._images.index_select(0, chosen)
        x = x.permute(0, 3, 1, 2) if self._last else x
        loss = self._computed(x, self._labels.index_select(0, chosen))
        gradients = torch.autograd.grad(loss, self._moving)
        with torch.no_grad():
            torch._foreach_add_(self._moving, gradients, alpha=-self._rate)
        return loss.detach()

    def _computed(self, x: Array, labels: Array) -> Array:
        return self._loss(self._leaves, x, labels)

    def parameters(self) -> dict[str, Array]:
        """The parameters now, with running statistics."""
        return {
            path: self._model.ours(path, leaf.detach().cpu().numpy()).copy()
            for path, leaf in self._leaves.items()
        }

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters."""
        with torch.no_grad():
            for path, leaf in self._leaves.items():
                leaf.copy_(torch.from_numpy(self._model.theirs(path, parameters[path])))

    @property
    def _words(self) -> str:
        """How it computes, and what."""
        mode = "torch.compile" if self._compiled else "eager"
        return f"{mode}{self._model.words}"

    def facts(self) -> dict[str, object]:
        """How it computes."""
        onednn = "on" if torch.backends.mkldnn.enabled else "off"
        return {
            "precision": "float32",
            "layout": "channels last" if self._last else "channels first",
            "mode": f"{self._words}, oneDNN {onednn}",
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "first_layer_data_gradient": False,
        }
