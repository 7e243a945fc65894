"""The update of a population: one kind of optimizer, with each member's own numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.nn.layers import Parameter
from pareo.training.optimizers import SGD, Adam, Lion
from pareo.training.recipe import Recipe

Arrays = Mapping[str, Any]


class StackedUpdate:
    """Moves stacked parameters, whose first axis is that of the members.

    plain: whether gradients arrive as updates, multiplied by minus the rates
    """

    def __init__(self, recipes: Sequence[Recipe], dtype: Any) -> None:
        self._recipes, self._dtype = recipes, np.dtype(dtype)
        self._optimizers = [recipe.optimizer for recipe in recipes]
        moves = any(optimizer.slots for optimizer in self._optimizers)
        self.plain = not moves and recipes[0].clip is None

    def __call__(
        self,
        parameter: Any,
        gradient: Any,
        slots: Arrays,
        numbers: Sequence[Any],
        declared: Parameter,
    ) -> tuple[Any, dict[str, Any]]:
        """The new parameter and its new slots."""
        decays = np.array([recipe.decay_of(declared) for recipe in self._recipes], self._dtype)
        wide = [_beside(number, parameter) for number in numbers]
        decay = _beside(decays, parameter)
        first = self._optimizers[0]
        if isinstance(first, Adam):
            betas = [self._each(name, parameter) for name in ("beta1", "beta2", "epsilon")]
            moved, one, two = op.adam(
                parameter, gradient, slots["first"], slots["second"], *wide, *betas, decay,
                first.decoupled,
            )  # fmt: skip
            return moved, {"first": one, "second": two}
        if isinstance(first, Lion):
            betas = [self._each(name, parameter) for name in ("beta1", "beta2")]
            moved, velocity = op.lion(parameter, gradient, slots["velocity"], *wide, *betas, decay)
            return moved, {"velocity": velocity}
        if not isinstance(first, SGD):
            raise TypeError(f"no update of a population is known for {first!r}")
        if slots:
            moved, velocity = op.sgd(
                parameter, gradient, slots["velocity"], *wide, self._each("momentum", parameter),
                decay, first.nesterov,
            )  # fmt: skip
            return moved, {"velocity": velocity}
        if not self.plain:
            gradient = op.hadamard(op.scale(-1, wide[0]), gradient)
        if decays.any():
            stays = op.add(1, op.hadamard(op.scale(-1, wide[0]), decay))
            parameter = op.hadamard(stays, parameter)
        return op.add(parameter, gradient), {}

    def clipped(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """The gradients, those of each member scaled down where their norm is too large."""
        if self._recipes[0].clip is None:
            return gradients
        norms = []
        for member in range(len(self._recipes)):
            own = [op.part(array, 0, (member, member + 1)) for array in gradients.values()]
            norms.append(op.reshape(op.norm(own), (1,)))
        limits = np.array([recipe.clip for recipe in self._recipes], self._dtype)
        factors = op.clip(op.div(limits, op.add(op.concat(norms, axis=0), 1e-6)), 0.0, 1.0)
        return {
            path: op.hadamard(_beside(factors, array), array) for path, array in gradients.items()
        }

    def averaged(self, average: Any, new: Any) -> Any:
        """The moving average after a step."""
        shares = np.array([recipe.average for recipe in self._recipes], np.float64)
        stays, comes = (_beside(a.astype(self._dtype), new) for a in (shares, 1 - shares))
        return op.add(op.hadamard(stays, average), op.hadamard(comes, new))

    def _each(self, name: str, parameter: Any) -> Any:
        """A number of the optimizers, one for each member."""
        values = [getattr(optimizer, name) for optimizer in self._optimizers]
        return _beside(np.array(values, self._dtype), parameter)


def _beside(values: Any, parameter: Any) -> Any:
    """One number for each member, in a shape that broadcasts with a stacked parameter."""
    shape = (values.shape[0], *[1] * (parameter.ndim - 1))
    return values.reshape(shape) if isinstance(values, np.ndarray) else op.reshape(values, shape)
