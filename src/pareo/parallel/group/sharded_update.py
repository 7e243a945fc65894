"""Where parameters and gradients lie while workers train, and how a worker updates its shard.

Parameters whose gradients are exchanged whole lie in one vector, named 'p'. A matrix whose gradient
is exchanged as two factors has an array of its own, 'p.PATH'. Velocities are 'v' and 'v.PATH'. The
inputs of a factored layer are 'x.PATH' and its output gradients 'd.PATH', with a row for each image
of the batch.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pareo.device import Device
from pareo.parallel.group.shared_memory import views
from pareo.parallel.group.shared_programs import GradientLayout, update_program
from pareo.spec import Spec
from pareo.training.settings import Settings

ArrayByName = Callable[[str], np.ndarray]  # from a name as above to the array
Interval = tuple[int, int]  # start and end


def specs(layout: GradientLayout, momentum: float, batch: int) -> dict[str, Spec]:
    """The specs of all of these arrays, by name."""
    found = {}
    for kind in "pv" if momentum else "p":
        found[kind] = Spec((layout.length,), layout.dtype)
        found |= {f"{kind}.{path}": spec for path, spec in layout.factored.items()}
    for path, spec in layout.factored.items():
        found[f"x.{path}"] = Spec((batch, spec.shape[0]), layout.dtype)
        found[f"d.{path}"] = Spec((batch, spec.shape[1]), layout.dtype)
    return found


def by_path(named: ArrayByName, layout: GradientLayout, kind: str) -> dict[str, np.ndarray]:
    """All parameters ('p') or velocities ('v'), in the network's order."""
    found = vector_views(named(kind), layout)
    found |= {path: named(f"{kind}.{path}") for path in layout.factored}
    return {path: found[path] for path in layout.paths}


def vector_views(vector: np.ndarray, layout: GradientLayout) -> dict[str, np.ndarray]:
    """Views of the arrays that lie in a vector, by path."""
    return views(vector.view(np.uint8), layout.whole) if layout.length else {}


def factor_rows(named: ArrayByName, layout: GradientLayout, lo: int, hi: int) -> list[np.ndarray]:
    """Where rows lo to hi of a batch write their factors: all inputs, then all output gradients."""
    return [named(f"{kind}.{path}")[lo:hi] for kind in "xd" for path in layout.factored]


class ShardedUpdate:
    """Updates one shard of the parameters from a whole batch's gradients.

    elements: the shard of the vector; the sum of its gradients is expected in `total`
    rows:     the shard of each factored matrix
    """

    def __init__(
        self,
        layout: GradientLayout,
        settings: Settings,
        device: Device,
        batch: int,
        named: ArrayByName,
        elements: Interval,
        rows: Mapping[str, Interval],
    ) -> None:
        lo, hi = elements
        rows = {path: part for path, part in rows.items() if part[1] > part[0]}
        program = update_program(layout, hi - lo, rows, batch, settings)
        self._state = [
            {
                **({"": named(kind)[lo:hi]} if hi > lo else {}),
                **{path: named(f"{kind}.{path}")[slice(*part)] for path, part in rows.items()},
            }
            for kind in ("pv" if settings.momentum else "p")
        ]
        count = sum(map(len, self._state))
        self._run = program.compile(device, {k: k for k in range(count)})
        self._factors = [{path: named(f"{k}.{path}")[:batch] for path in rows} for k in "xd"]
        self._scalar = np.dtype(layout.dtype).type
        self.total = np.zeros(hi - lo, layout.dtype)

    def step(self, rate: float) -> None:
        """One step of gradient descent."""
        self._update(self._state, rate)

    def warm_up(self) -> None:
        """Compile the machine code, by a step on copies."""
        self._update([{path: a.copy() for path, a in arrays.items()} for arrays in self._state], 0)

    def _update(self, state: list[dict[str, np.ndarray]], rate: float) -> None:
        parameters, velocities = (*state, {})[:2]
        self._run(parameters, velocities, self.total, *self._factors, self._scalar(rate))


def full_update(
    layout: GradientLayout, settings: Settings, device: Device, batch: int, named: ArrayByName
) -> ShardedUpdate:
    """The update of a worker that owns all parameters in a layout."""
    rows = {path: (0, spec.shape[0]) for path, spec in layout.factored.items()}
    return ShardedUpdate(layout, settings, device, batch, named, (0, layout.length), rows)
