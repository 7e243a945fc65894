"""JAX: one jitted call for every step, or one `lax.scan` over all steps of a chunk."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.lab.contestants import Array, Task, Trainer, jax_layers, jax_operators
from pareo.lab.contestants.losses import loss_in
from pareo.lab.contestants.own_layers import functions_in

jax: Any  # imported by `load`, when needed
jnp: Any


def build(task: Task, scan: bool = False, last: bool = False) -> Trainer:
    """The task in JAX on the CPU, even if JAX has a GPU; with channels last if asked."""
    load().config.update("jax_platforms", "cpu")
    return JaxTrainer(task, scan, last)


def load(**_: object) -> Any:
    """Import JAX for this module, and return it."""
    global jax, jnp
    jax = jax_layers.load()
    jnp = jax.numpy
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

    _now: Any  # parameters that are trained, and running statistics

    def __init__(self, task: Task, scan: bool, last: bool = False, half: bool = False) -> None:
        """`half` multiplies in bfloat16; parameters stay float32."""
        images, labels = task.data()
        self._last = last and images.ndim == 4
        if self._last:
            images = np.ascontiguousarray(images.transpose(jax_layers.LAST))
        self._data = jnp.asarray(images), jnp.asarray(labels)
        self._paths = task.network.state  # of running statistics
        self.load(task.parameters())
        self._scan = scan
        how = task, jax_operators.load(), jnp.asarray
        mean_loss, own = loss_in(*how), functions_in(*how)

        def of(trained: Any, state: Any, x: Array, labels: Array) -> Any:
            return jax_layers.loss_and_state(
                task.network, trained, state, x, lambda out: mean_loss(out, labels), self._last,
                half, own,
            )  # fmt: skip

        with_gradients = jax.value_and_grad(of, has_aux=True)

        def step(now: Any, chosen: Array, data: Any) -> Any:
            x, labels = (a.at[chosen].get(mode="promise_in_bounds") for a in data)
            trained, state = now
            (loss, state), gradients = with_gradients(trained, state, x, labels)
            moved = jax.tree.map(lambda p, g: p - task.rate * g, trained, gradients)
            return (moved, state), loss

        def steps(now: Any, order: Any, data: Any) -> Any:
            return jax.lax.scan(lambda now, chosen: step(now, chosen, data), now, order)

        self._step = jax.jit(steps if scan else step, donate_argnums=0)

    def run(self, order: Array) -> Array:
        """Train one step for each row of image numbers; the losses."""
        order = order.astype(np.int32)
        losses: Any = []
        if self._scan:
            self._now, losses = self._step(self._now, order, self._data)
        else:
            for chosen in order:
                self._now, loss = self._step(self._now, chosen, self._data)
                losses.append(loss)
        jax.block_until_ready((self._now, losses))
        return losses

    def parameters(self) -> dict[str, Array]:
        """The parameters now, with running statistics."""
        trained, state = self._now
        return {path: np.array(a) for path, a in {**trained, **state}.items()}

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters."""
        here = {path: jnp.array(a) for path, a in parameters.items()}
        state = {path: here.pop(path) for path in self._paths}
        self._now = here, state

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
