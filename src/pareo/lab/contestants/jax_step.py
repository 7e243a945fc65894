"""JAX: one jitted call for every step, or one `lax.scan` over all steps of a chunk."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from pareo import nn
from pareo.lab.contestants import Array, Task, Trainer, Window, pair, total_loss, unknown

jax: Any  # imported by `load`, when needed
jnp: Any
lax: Any

Size = int | Sequence[int]
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of images with channels last, or first


def build(task: Task, scan: bool = False, last: bool = False) -> Trainer:
    """The task in JAX on the CPU, even if JAX has a GPU; with channels last if asked."""
    load().config.update("jax_platforms", "cpu")
    return JaxTrainer(task, scan, last)


def load(**_: object) -> Any:
    """Import JAX for this module, and return it."""
    global jax, jnp, lax
    jax, jnp, lax = (import_module(name) for name in ("jax", "jax.numpy", "jax.lax"))
    return jax


def step_bytes() -> int | None:
    """Arguments, results and temporaries of the largest step compiled; None if unknown.

    Arguments are the parameters and all data. What is donated is counted once.
    """
    found = []
    for executable in jax.local_devices()[0].client.live_executables():
        if any(module.name.startswith("jit_step") for module in executable.hlo_modules()):
            stats = executable.get_compiled_memory_stats()
            own = (
                stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
            )
            found.append(int(own - stats.alias_size_in_bytes))
    return max(found, default=None)


class JaxTrainer:
    """The task as a jitted function whose parameters are donated, hence replaced in place."""

    def __init__(self, task: Task, scan: bool, last: bool = False, half: bool = False) -> None:
        """`half` multiplies in bfloat16; parameters stay float32."""
        images, labels = task.data()
        self._last = last and images.ndim == 4
        if self._last:
            images = np.ascontiguousarray(images.transpose(LAST))
        self._data = jnp.asarray(images), jnp.asarray(labels)
        self._parameters = {path: jnp.array(a) for path, a in task.parameters().items()}
        self._scan = scan

        def step(parameters: Any, chosen: Array, data: Any) -> Any:
            x, labels = (a.at[chosen].get(mode="promise_in_bounds") for a in data)
            of = partial(loss_of, task.network, last=self._last, half=half)
            loss, gradients = jax.value_and_grad(of)(parameters, x, labels)
            moved = jax.tree.map(lambda p, g: p - task.rate * g, parameters, gradients)
            return moved, loss

        def steps(parameters: Any, order: Any, data: Any) -> Any:
            return lax.scan(lambda now, chosen: step(now, chosen, data), parameters, order)

        self._step = jax.jit(steps if scan else step, donate_argnums=0)

    def run(self, order: Array) -> Array:
        """Train one step for each row of image numbers; the losses."""
        order = order.astype(np.int32)
        losses: Any = []
        if self._scan:
            self._parameters, losses = self._step(self._parameters, order, self._data)
        else:
            for chosen in order:
                self._parameters, loss = self._step(self._parameters, chosen, self._data)
                losses.append(loss)
        jax.block_until_ready((self._parameters, losses))
        return losses

    def parameters(self) -> dict[str, Array]:
        """The parameters now."""
        return {path: np.array(a) for path, a in self._parameters.items()}

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters."""
        self._parameters = {path: jnp.array(a) for path, a in parameters.items()}

    def facts(self) -> dict[str, object]:
        """How it computes."""
        mode = "jit, lax.scan over steps" if self._scan else "jit, a call for each step"
        return {
            "precision": "float32",
            "layout": "channels last" if self._last else "channels first",
            "mode": mode,
            "version": jax.__version__,
            "first_layer_data_gradient": False,
        }


def loss_of(
    network: nn.Sequential,
    parameters: Mapping[str, Array],
    x: Array,
    labels: Array,
    last: bool = False,
    half: bool = False,
) -> Array:
    """The mean cross-entropy, with that of auxiliary heads."""
    if half:
        parameters, x = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (parameters, x))
    axis = -1 if last else 1
    join = partial(jnp.concatenate, axis=axis)

    def loss(out: Array) -> Array:
        # A product with ones and zeros: its gradient is no scatter, which is slow on a CPU.
        chances = jax.nn.log_softmax(out.astype(jnp.float32))
        return -jnp.mean(jnp.sum(chances * jax.nn.one_hot(labels, out.shape[1]), 1))

    return total_loss(network, parameters, x, partial(layer, last=last), join, loss)


def layer(this: nn.Layer, w: Array, b: Array, x: Array, last: bool = False) -> Array:
    """One of pareo's layers, on images with channels first or last."""
    match this:
        case nn.Conv():
            bias = b if last else b[:, None, None]
            return conv(x, w, this.stride, this.padding, this.groups, last) + bias
        case nn.Subsample():
            if last:
                return subsample(x.transpose(FIRST), w, b, pair(this.stride)).transpose(LAST)
            return subsample(x, w, b, pair(this.stride))
        case nn.MaxPool():
            return windows(x, Window.of(this, sides(x, last)), -jnp.inf, lax.max, last)
        case nn.AveragePool():
            window = Window.of(this, sides(x, last))
            counts = window.counts[..., None] if last else window.counts
            return windows(x, window, 0.0, lax.add, last) / counts
        case nn.Lrn():
            before = this.size // 2
            size, padding = [1] * 4, [(0, 0)] * 4
            axis = 3 if last else 1
            size[axis], padding[axis] = this.size, (before, this.size - 1 - before)
            sums = lax.reduce_window(x * x, 0.0, lax.add, size, (1, 1, 1, 1), padding)
            return x / (this.k + this.alpha / this.size * sums) ** this.beta
        case nn.Dense():
            return x @ w + b
        case nn.Flatten():
            x = x.transpose(FIRST) if last and x.ndim == 4 else x  # as weights expect them
            return x.reshape(x.shape[0], -1)
        case nn.Sigmoid():
            return jax.nn.sigmoid(x)
        case nn.Tanh():
            return jnp.tanh(x)
        case nn.ReLU():
            return jax.nn.relu(x)
        case nn.Softmax():
            return jax.nn.softmax(x, axis=1)
    raise unknown(this)


def sides(x: Array, last: bool) -> tuple[int, int]:
    """Height and width of images."""
    height, width = x.shape[1:3] if last else x.shape[2:]
    return height, width


def conv(
    x: Array, w: Array, stride: Size, padding: Size, groups: int = 1, last: bool = False
) -> Array:
    """A convolution without bias."""
    images = "NHWC" if last else "NCHW"
    return lax.conv_general_dilated(
        x, w, pair(stride), [(p, p) for p in pair(padding)],
        dimension_numbers=(images, "OIHW", images), feature_group_count=groups,
    )  # fmt: skip


def windows(
    x: Array, window: Window, start: float, combine: Callable[..., Array], last: bool = False
) -> Array:
    """Every window of every channel, combined to one number."""

    def placed(sides: Any, other: Any) -> tuple[Any, ...]:
        return (other, *sides, other) if last else (other, other, *sides)

    return lax.reduce_window(
        x, start, combine, placed(window.size, 1), placed(window.stride, 1),
        placed(window.padding, (0, 0)),
    )  # fmt: skip


def subsample(x: Array, w: Array, b: Array, stride: tuple[int, int]) -> Array:
    """One filter over every channel; a plain product if windows do not overlap.

    That product is ten times as fast as the convolution here.
    """
    n, channels, height, width = x.shape
    kh, kw = w.shape
    if stride != (kh, kw):
        planes = conv(x.reshape(-1, 1, height, width), w[None, None], stride, 0)
        return planes.reshape(n, channels, *planes.shape[2:]) + b
    rows, columns = height // kh, width // kw
    tiles = x[:, :, : rows * kh, : columns * kw].reshape(n, channels, rows, kh, columns, kw)
    return jnp.einsum("ncyuxv,uv->ncyx", tiles, w) + b
