"""JAX: one jitted call for every step, or one `lax.scan` over all steps of a chunk."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from pareo import nn
from pareo.lab.contestants import Task, Trainer, Window, forward, pair, unknown

jax: Any  # imported by `build`, hence only where it is asked for
jnp: Any
lax: Any

CHANNELS_FIRST = ("NCHW", "OIHW", "NCHW")


def build(task: Task, scan: bool = False) -> Trainer:
    """The task in JAX, on the CPU where it has a GPU, too."""
    load().config.update("jax_platforms", "cpu")
    return JaxTrainer(task, scan)


def load() -> Any:
    """Import JAX for this module; the same."""
    global jax, jnp, lax
    jax, jnp, lax = (import_module(name) for name in ("jax", "jax.numpy", "jax.lax"))
    return jax


class JaxTrainer:
    """The task as a jitted function whose parameters are donated, hence replaced in place."""

    def __init__(self, task: Task, scan: bool, half: bool = False) -> None:
        """`half` multiplies in bfloat16; parameters stay float32."""
        self._data = tuple(jnp.asarray(a) for a in task.data())
        self._parameters = {path: jnp.array(a) for path, a in task.parameters().items()}
        self._scan = scan

        def step(parameters: Any, chosen: Any, data: Any) -> Any:
            x, labels = (a.at[chosen].get(mode="promise_in_bounds") for a in data)
            loss, gradients = jax.value_and_grad(partial(loss_of, task.network, half=half))(
                parameters, x, labels
            )
            moved = jax.tree.map(lambda p, g: p - task.rate * g, parameters, gradients)
            return moved, loss

        def steps(parameters: Any, order: Any, data: Any) -> Any:
            return lax.scan(lambda now, chosen: step(now, chosen, data), parameters, order)

        self._step = jax.jit(steps if scan else step, donate_argnums=0)

    def run(self, order: Any) -> Any:
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

    def parameters(self) -> dict[str, Any]:
        """The parameters now."""
        return {path: np.array(a) for path, a in self._parameters.items()}

    def load(self, parameters: dict[str, Any]) -> None:
        """Go on from other parameters."""
        self._parameters = {path: jnp.array(a) for path, a in parameters.items()}

    def facts(self) -> dict[str, Any]:
        """How it computes."""
        mode = "jit, lax.scan over steps" if self._scan else "jit, a call for each step"
        return {
            "precision": "float32",
            "layout": "channels first",
            "mode": mode,
            "version": jax.__version__,
            "first_layer_data_gradient": False,
        }


def loss_of(
    network: nn.Sequential, parameters: Any, x: Any, labels: Any, half: bool = False
) -> Any:
    """The mean cross-entropy."""
    if half:
        parameters, x = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (parameters, x))
    out = forward(network, parameters, x, layer, lambda parts: jnp.concatenate(parts, axis=1))
    out = out.astype(jnp.float32)
    # A product with ones and zeros: its way back is no scatter, which is slow on a CPU.
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(out) * jax.nn.one_hot(labels, out.shape[1]), 1))


def layer(this: nn.Layer, w: Any, b: Any, x: Any) -> Any:
    """One layer of pareo's."""
    match this:
        case nn.Conv():
            return conv(x, w, this.stride, this.padding, this.groups) + b[:, None, None]
        case nn.Subsample():
            return subsample(x, w, b, pair(this.stride))
        case nn.MaxPool():
            return windows(x, Window.of(this, x.shape[2:]), -jnp.inf, lax.max)
        case nn.AveragePool():
            window = Window.of(this, x.shape[2:])
            return windows(x, window, 0.0, lax.add) / window.counts
        case nn.Lrn():
            before = this.size // 2
            sums = lax.reduce_window(
                x * x, 0.0, lax.add, (1, this.size, 1, 1), (1, 1, 1, 1),
                ((0, 0), (before, this.size - 1 - before), (0, 0), (0, 0)),
            )  # fmt: skip
            return x / (this.k + this.alpha / this.size * sums) ** this.beta
        case nn.Dense():
            return x @ w + b
        case nn.Flatten():
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


def conv(x: Any, w: Any, stride: Any, padding: Any, groups: int = 1) -> Any:
    """A convolution without bias."""
    sides = [(p, p) for p in pair(padding)]
    return lax.conv_general_dilated(
        x, w, pair(stride), sides, dimension_numbers=CHANNELS_FIRST, feature_group_count=groups
    )


def windows(x: Any, window: Window, start: float, combine: Any) -> Any:
    """Every window of every channel, combined to one number."""
    return lax.reduce_window(
        x, start, combine, (1, 1, *window.size), (1, 1, *window.stride),
        ((0, 0), (0, 0), *window.padding),
    )  # fmt: skip


def subsample(x: Any, w: Any, b: Any, stride: tuple[int, int]) -> Any:
    """One filter over every channel; as a plain product where windows do not overlap.

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
