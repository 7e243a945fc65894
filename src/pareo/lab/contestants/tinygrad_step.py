"""tinygrad on the CPU: a step that TinyJit replays; clang compiles its kernels."""

import os
from collections.abc import Mapping
from functools import partial, reduce
from importlib import import_module
from importlib.metadata import version
from operator import add, mul
from typing import Any

import numpy as np

from pareo import nn
from pareo.lab.contestants import Array, Task, Trainer
from pareo.lab.contestants.layers import pair, total_loss, unknown

Tensor: Any  # imported by `load`, when needed
PLACE = "CPU"


def build(task: Task) -> Trainer:
    """The task in tinygrad."""
    os.environ["CPU_COUNT"] = str(task.threads)
    load()
    return TinygradTrainer(task)


def load(**_: object) -> Any:
    """Import tinygrad for this module, and return it."""
    global Tensor
    tinygrad = import_module("tinygrad")
    Tensor = tinygrad.Tensor
    return tinygrad


class TinygradTrainer:
    """The task as a jitted step, which assigns to its parameters."""

    def __init__(self, task: Task) -> None:
        if task.network.state:
            raise TypeError("this adapter has no running statistics")
        self._images, self._labels = task.data()
        start = task.parameters()
        self._shapes = {path: a.shape for path, a in start.items()}
        # A single number would be a constant, to which nothing can be assigned.
        self._now = {path: _here(np.atleast_1d(a)) for path, a in start.items()}

        def step(x: Any, labels: Any) -> Any:
            loss = loss_of(task.network, self._now, x, labels)
            gradients = loss.gradient(*self._now.values())
            pairs = list(zip(self._now.values(), gradients, strict=True))
            moved = [p.assign(p - task.rate * g) for p, g in pairs]
            return loss.realize(*moved)

        self._step = load().TinyJit(step)

    def run(self, order: Array) -> list[float]:
        """Train one step for each row of image numbers; the losses."""
        losses = []
        for chosen in order:
            x, y = _here(self._images[chosen]), _here(self._labels[chosen].astype(np.int32))
            losses.append(self._step(x, y).item())
        return losses

    def parameters(self) -> dict[str, Array]:
        """The parameters now."""
        return {
            path: np.array(a.numpy()).reshape(self._shapes[path]) for path, a in self._now.items()
        }

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters, in the same memory: the jitted step is bound to it."""
        for path, tensor in self._now.items():
            tensor.assign(_here(np.atleast_1d(parameters[path]))).realize()

    def facts(self) -> dict[str, object]:
        """How it computes."""
        return {
            "precision": "float32",
            "layout": "channels first",
            "mode": "TinyJit, a call for each step",
            "version": version("tinygrad"),
            "first_layer_data_gradient": False,
        }


def _here(array: Array) -> Any:
    return Tensor(np.array(array, order="C"), device=PLACE).realize()


def loss_of(network: nn.Sequential, parameters: Any, x: Any, labels: Any) -> Any:
    """The mean cross-entropy, with that of auxiliary heads."""

    def loss(out: Any) -> Any:
        return -(out.log_softmax(axis=1) * labels.one_hot(out.shape[1])).sum(axis=1).mean()

    joins: dict[str, Any] = {
        "concat": lambda parts: parts[0].cat(*parts[1:], dim=1),
        "add": partial(reduce, add),
        "multiply": partial(reduce, mul),
    }
    return total_loss(network, parameters, x, layer, joins, loss)


def layer(this: nn.Layer, parameters: Mapping[str, Any], x: Any) -> Any:
    """One of pareo's layers."""
    w: Any = parameters.get("w")
    b: Any = parameters.get("b")
    match this:
        case nn.Conv():
            around = pair(this.padding)
            return x.conv2d(
                w, b, groups=this.groups, stride=pair(this.stride), dilation=pair(this.dilation),
                padding=around,
            )  # fmt: skip
        case nn.Subsample():
            count, channels, *size = x.shape
            one = x.reshape(count * channels, 1, *size)
            y = one.conv2d(w.reshape(1, 1, *w.shape), stride=pair(this.stride)) + b
            return y.reshape(count, channels, *y.shape[2:])
        case nn.MaxPool() | nn.AveragePool():
            how: dict[str, Any] = {"padding": pair(this.padding), "ceil_mode": this.ceil}
            if isinstance(this, nn.MaxPool):
                return x.max_pool2d(pair(this.size), _stride(this), **how)
            how["count_include_pad"] = this.counts_padding
            return x.avg_pool2d(pair(this.size), _stride(this), **how)
        case nn.GlobalAveragePool():
            return x.mean(axis=(2, 3), keepdim=True)
        case nn.Dense():
            return x @ w if b is None else x @ w + b
        case nn.Flatten():
            return x.flatten(1)
        case nn.ReLU():
            return x.relu()
        case nn.Sigmoid():
            return x.sigmoid()
        case nn.Tanh():
            return x.tanh()
        case nn.GELU(approximate=True):
            return x.gelu()
        case nn.SiLU():
            return x.silu()
        case nn.Identity():
            return x
    raise unknown(this)


def _stride(this: Any) -> tuple[int, int]:
    return pair(this.size if this.stride is None else this.stride)
