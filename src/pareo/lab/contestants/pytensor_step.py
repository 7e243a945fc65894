"""PyTensor, Theano's successor: one compiled function, whose updates move the parameters.

PyTensor has no convolution of its own any more: here it is a product with the windows of images.
"""

from collections.abc import Mapping
from functools import partial, reduce
from importlib import import_module
from operator import add, mul
from typing import Any

import numpy as np

from pareo import nn
from pareo.lab.contestants import Array, Task, Trainer
from pareo.lab.contestants.layers import pair, total_loss, unknown

pytensor: Any  # imported by `load`, when needed
pt: Any


def build(task: Task, linker: str | None = None) -> Trainer:
    """The task in PyTensor; `linker` is the backend that compiles it: 'cvm' is C."""
    load()
    return PytensorTrainer(task, linker)


def load(**_: object) -> Any:
    """Import PyTensor for this module, and return it."""
    global pytensor, pt
    pytensor, pt = import_module("pytensor"), import_module("pytensor.tensor")
    pytensor.config.floatX = "float32"
    return pytensor


class PytensorTrainer:
    """The task as a function of image numbers; data and parameters are shared variables."""

    def __init__(self, task: Task, linker: str | None) -> None:
        if task.network.state:
            raise TypeError("this adapter has no running statistics")
        images, labels = task.data()
        x, y = pytensor.shared(images), pytensor.shared(labels.astype(np.int64))
        self._now = {path: pytensor.shared(a) for path, a in task.parameters().items()}
        chosen = pt.lvector("chosen")
        loss = loss_of(task.network, self._now, x[chosen], y[chosen], task.batch)
        gradients = pytensor.grad(loss, list(self._now.values()))
        rate = np.float32(task.rate)
        pairs = zip(self._now.values(), gradients, strict=True)
        moved = [(p, p - rate * g) for p, g in pairs]
        mode = pytensor.compile.mode.Mode(linker=linker) if linker else None
        self._step = pytensor.function([chosen], loss, updates=moved, mode=mode)
        self._linker = linker or f"linker {pytensor.config.linker}"
        if linker != "numba" and not pytensor.config.blas__ldflags:
            self._linker += ", without BLAS"  # as pip installs it

    def run(self, order: Array) -> list[float]:
        """Train one step for each row of image numbers; the losses."""
        return [float(self._step(chosen)) for chosen in order.astype(np.int64)]

    def parameters(self) -> dict[str, Array]:
        """The parameters now."""
        return {path: np.array(a.get_value()) for path, a in self._now.items()}

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters."""
        for path, shared in self._now.items():
            shared.set_value(np.array(parameters[path], np.float32))

    def facts(self) -> dict[str, object]:
        """How it computes."""
        return {
            "precision": "float32",
            "layout": "channels first",
            "mode": f"a compiled function for each step, {self._linker}",
            "version": pytensor.__version__,
            "first_layer_data_gradient": False,
        }


def loss_of(network: nn.Sequential, parameters: Any, x: Any, labels: Any, batch: int) -> Any:
    """The mean cross-entropy, with that of auxiliary heads."""
    shape = (batch, *network.inputs)

    def apply(this: nn.Layer, own: Mapping[str, Any], x: Any) -> Any:
        return layer(this, own, x)

    def loss(out: Any) -> Any:
        logs = pt.special.log_softmax(out, axis=1)
        return -logs[pt.arange(batch), labels].mean()

    joins: dict[str, Any] = {
        "concat": lambda parts: pt.concatenate(parts, axis=1),
        "add": partial(reduce, add),
        "multiply": partial(reduce, mul),
    }
    return total_loss(network, parameters, pt.specify_shape(x, shape), apply, joins, loss)


def layer(this: nn.Layer, parameters: Mapping[str, Any], x: Any) -> Any:
    """One of pareo's layers."""
    w: Any = parameters.get("w")
    b: Any = parameters.get("b")
    match this:
        case nn.Conv(groups=1, dilation=1):
            y = conv(x, w, pair(this.stride), pair(this.padding))
            return y if b is None else y + b[None, :, None, None]
        case nn.Subsample():
            found, shape = windows(x, pair(this.size), pair(this.stride))
            y = pt.tensordot(w.flatten(), found, axes=[[0], [0]]) + b  # places, images, channels
            return _image(y, shape)
        case nn.MaxPool(padding=0, ceil=False):
            found, shape = windows(x, pair(this.size), _stride(this))
            return _image(found.max(axis=0), shape)
        case nn.AveragePool(padding=0, ceil=False):
            found, shape = windows(x, pair(this.size), _stride(this))
            return _image(found.mean(axis=0), shape)
        case nn.GlobalAveragePool():
            return x.mean(axis=(2, 3), keepdims=True)
        case nn.Dense():
            return pt.dot(x, w) if b is None else pt.dot(x, w) + b
        case nn.Flatten():
            return x.flatten(2)
        case nn.ReLU():
            return pt.maximum(x, np.float32(0))
        case nn.Sigmoid():
            return pt.sigmoid(x)
        case nn.Tanh():
            return pt.tanh(x)
        case nn.Identity():
            return x
    raise unknown(this)


def _stride(this: Any) -> tuple[int, int]:
    return pair(this.size if this.stride is None else this.stride)


def windows(x: Any, size: tuple[int, int], stride: tuple[int, int]) -> tuple[Any, Any]:
    """The elements of all windows, as (place in the window, window, image, channel).

    Beside them, the shape of an image with one element for each window. All are chosen by one list
    of numbers: slices would give the compiler a graph as large as a window.
    """
    count, channels, height, width = x.type.shape
    sides = zip((height, width), size, stride, strict=True)
    rows, columns = ((pixels - window) // step + 1 for pixels, window, step in sides)
    down = np.arange(size[0])[:, None] + np.arange(rows) * stride[0]
    right = np.arange(size[1])[:, None] + np.arange(columns) * stride[1]
    places = down[:, None, :, None] * width + right[None, :, None, :]
    chosen = x.reshape((count * channels, height * width)).T[places.ravel()]
    windows = size[0] * size[1], rows * columns
    return chosen.reshape((*windows, count, channels)), (count, channels, rows, columns)


def _image(y: Any, shape: tuple[int, ...]) -> Any:
    """An image from (windows, images, channels)."""
    return y.transpose(1, 2, 0).reshape(shape)


def conv(x: Any, w: Any, stride: tuple[int, int], padding: tuple[int, int]) -> Any:
    """A convolution: the windows as rows of a matrix, times the filters."""
    if any(padding):
        count, channels, height, width = x.type.shape
        top, left = padding
        around = pt.zeros((count, channels, height + 2 * top, width + 2 * left), dtype="float32")
        x = pt.set_subtensor(around[:, :, top : top + height, left : left + width], x)
    filters, channels, *size = w.get_value(borrow=True).shape
    found, (count, _, rows, columns) = windows(x, (size[0], size[1]), stride)
    flat = w.reshape((filters, channels, size[0] * size[1]))
    y = pt.tensordot(flat, found, axes=[[1, 2], [3, 0]])  # filters, windows, images
    return y.transpose(2, 0, 1).reshape((count, filters, rows, columns))
