"""PyTorch: eager or through torch.compile, with oneDNN or without, channels first or last."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pareo import nn
from pareo.lab.contestants import Array, Task, Trainer, pair, total_loss, unknown

torch: Any  # imported by `load`, when needed
functional: Any


def build(task: Task, onednn: bool = True, last: bool = False, compiled: bool = False) -> Trainer:
    """The task in PyTorch."""
    load()
    torch.set_num_threads(task.threads)
    torch.backends.mkldnn.enabled = onednn
    return TorchTrainer(task, last, compiled)


def load(**_: object) -> Any:
    """Import PyTorch for this module, and return it."""
    global torch, functional
    torch, functional = import_module("torch"), import_module("torch.nn.functional")
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
        self._leaves = {path: self._leaf(a) for path, a in task.parameters().items()}
        self._moving = list(self._leaves.values())
        self._rate = task.rate
        self._loss, self._compiled = loss_of(task.network), compiled
        if compiled:
            from torch._inductor import config

            self._configure(config)
            self._loss = torch.compile(self._loss, dynamic=False)

    def _configure(self, config: Any) -> None:
        config.compile_threads = 1  # no idle helpers beside the other contestants

    def _leaf(self, array: Array) -> Array:
        leaf = torch.from_numpy(array).to(self.place)
        if self._last and leaf.ndim == 4:
            leaf = leaf.contiguous(memory_format=torch.channels_last)
        return leaf.requires_grad_()

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
        """The parameters now."""
        return {path: leaf.detach().cpu().numpy().copy() for path, leaf in self._leaves.items()}

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters."""
        with torch.no_grad():
            for path, leaf in self._leaves.items():
                leaf.copy_(torch.from_numpy(parameters[path]))

    def facts(self) -> dict[str, object]:
        """How it computes."""
        onednn = "on" if torch.backends.mkldnn.enabled else "off"
        return {
            "precision": "float32",
            "layout": "channels last" if self._last else "channels first",
            "mode": f"{'torch.compile' if self._compiled else 'eager'}, oneDNN {onednn}",
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "first_layer_data_gradient": False,
        }


def loss_of(network: nn.Sequential) -> Callable[..., Array]:
    """The mean cross-entropy, with that of auxiliary heads, of parameters, images and labels."""

    def loss(parameters: Mapping[str, Array], x: Array, labels: Array) -> Array:
        return total_loss(
            network, parameters, x, layer,
            join=lambda parts: torch.cat(parts, dim=1),
            loss=lambda out: functional.cross_entropy(out, labels),
        )  # fmt: skip

    return loss


def layer(this: nn.Layer, w: Array, b: Array, x: Array) -> Array:
    """One of pareo's layers."""
    match this:
        case nn.Conv():
            return functional.conv2d(x, w, b, this.stride, this.padding, groups=this.groups)
        case nn.Subsample():
            return subsample(x, w, b, pair(this.stride))
        case nn.MaxPool():
            return functional.max_pool2d(
                x, this.size, this.stride, this.padding, ceil_mode=this.ceil
            )
        case nn.AveragePool():
            return functional.avg_pool2d(
                x, this.size, this.stride, this.padding, this.ceil, count_include_pad=False
            )
        case nn.Lrn():
            return functional.local_response_norm(x, this.size, this.alpha, this.beta, this.k)
        case nn.Dense():
            return torch.addmm(b, x, w)
        case nn.Flatten():
            return torch.flatten(x, 1)
        case nn.Sigmoid():
            return torch.sigmoid(x)
        case nn.Tanh():
            return torch.tanh(x)
        case nn.ReLU():
            return torch.relu(x)
        case nn.Softmax():
            return torch.softmax(x, dim=1)
    raise unknown(this)


def subsample(x: Array, w: Array, b: Array, stride: tuple[int, int]) -> Array:
    """One filter over every channel; a plain product if windows do not overlap.

    That product is several times as fast as a convolution with a group for each channel.
    """
    channels, (kh, kw) = x.shape[1], w.shape
    if stride != (kh, kw):
        filters = w.expand(channels, 1, kh, kw)
        return functional.conv2d(x, filters, stride=stride, groups=channels) + b
    rows, columns = x.shape[2] // kh, x.shape[3] // kw
    tiles = x[:, :, : rows * kh, : columns * kw]
    tiles = tiles.reshape(-1, channels, rows, kh, columns, kw)
    return torch.einsum("ncyuxv,uv->ncyx", tiles, w) + b
