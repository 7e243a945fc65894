"""Where parameters and gradients lie while workers train, and how a worker moves its part of them.

Parameters whose gradients travel whole lie side by side in one vector, 'p'; matrices whose
gradients travel as factors lie each for itself, as 'p.PATH'. Velocities are 'v' likewise. What
came into a factored layer is 'x.PATH', its errors 'd.PATH', a row for each image of the batch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.parallel.group.shared_memory import views
from pareo.parallel.group.shared_programs import Layout, update_program
from pareo.spec import Spec
from pareo.training.settings import Settings

Named = Callable[[str], Any]  # from a name as above to the array


def specs(layout: Layout, momentum: float, batch: int) -> dict[str, Spec]:
    """All of these arrays, by name."""
    found = {}
    for kind in "pv" if momentum else "p":
        found[kind] = Spec((layout.length,), layout.dtype)
        found |= {f"{kind}.{path}": spec for path, spec in layout.factors.items()}
    for path, spec in layout.factors.items():
        found[f"x.{path}"] = Spec((batch, spec.shape[0]), layout.dtype)
        found[f"d.{path}"] = Spec((batch, spec.shape[1]), layout.dtype)
    return found


def by_path(named: Named, layout: Layout, kind: str) -> dict[str, Any]:
    """All parameters ('p') or velocities ('v'), in the network's order."""
    found = whole(named(kind), layout)
    found |= {path: named(f"{kind}.{path}") for path in layout.factors}
    return {path: found[path] for path in layout.paths}


def whole(vector: Any, layout: Layout) -> dict[str, Any]:
    """The arrays in a vector of everything that travels whole."""
    return views(vector.view(np.uint8), layout.whole) if layout.length else {}


def rows_of(named: Named, layout: Layout, lo: int, hi: int) -> list[Any]:
    """Where some rows of a batch write their factors: what came in, then the errors."""
    return [named(f"{kind}.{path}")[lo:hi] for kind in "xd" for path in layout.factors]


class Descent:
    """Moves one part of the parameters by a whole batch's gradients.

    between: which elements of the vector; their gradients are expected in `total`
    rows:    which rows of each factored matrix
    """

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        device: Device,
        batch: int,
        named: Named,
        between: tuple[int, int],
        rows: Mapping[str, tuple[int, int]],
    ) -> None:
        lo, hi = between
        rows = {path: part for path, part in rows.items() if part[1] > part[0]}
        program = update_program(layout, hi - lo, rows, batch, settings)
        self._moved = [
            {
                **({"": named(kind)[lo:hi]} if hi > lo else {}),
                **{path: named(f"{kind}.{path}")[slice(*part)] for path, part in rows.items()},
            }
            for kind in ("pv" if settings.momentum else "p")
        ]
        count = sum(map(len, self._moved))
        self._run = program.compile(device, {k: k for k in range(count)})
        self._factors = [{path: named(f"{k}.{path}")[:batch] for path in rows} for k in "xd"]
        self._kind = np.dtype(layout.dtype).type
        self.total = np.zeros(hi - lo, layout.dtype)

    def move(self, rate: float) -> None:
        """One step down."""
        self._go(self._moved, rate)

    def warm(self) -> None:
        """Compile machine code, on copies."""
        self._go([{path: a.copy() for path, a in arrays.items()} for arrays in self._moved], 0.0)

    def _go(self, moved: list[dict[str, Any]], rate: float) -> None:
        parameters, velocities = (*moved, {})[:2]
        self._run(parameters, velocities, self.total, *self._factors, self._kind(rate))
