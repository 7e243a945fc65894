"""Where parameters and gradients lie while workers train, and how a worker updates its shard.

Parameters whose gradients are exchanged whole lie in one vector, named 'p'. A matrix whose gradient
is exchanged as two factors has an array of its own, 'p.PATH', and so has what no gradient moves:
state, and parameters that are not trained. The slots of the optimizer lie likewise, under their
own names: 'velocity' and 'velocity.PATH', for example. The inputs of a factored layer are 'x.PATH'
and its output gradients 'd.PATH', with a row for each image of the batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.parallel.group.shared_memory import SharedArrays, views
from pareo.parallel.group.shared_programs import GradientLayout
from pareo.parallel.group.update_program import (
    Interval,
    norm_program,
    pieces_of,
    slot_names,
    update_program,
)
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.spec import Spec
from pareo.training.recipe import AVERAGE, Recipe

ArrayByName = Callable[[str], np.ndarray]  # from a name as above to the array


def kinds(recipe: Recipe) -> tuple[str, ...]:
    """The names of the vectors: that of the parameters, and those of the slots.

    >>> from pareo.training.optimizers import Adam
    >>> kinds(Recipe(Adam()))
    ('p', 'first', 'second')
    """
    return ("p", *recipe.optimizer.slots, *([AVERAGE] if recipe.average is not None else []))


def specs(layout: GradientLayout, recipe: Recipe, batch: int) -> dict[str, Spec]:
    """The specs of all of these arrays, by name."""
    found = {}
    for kind in kinds(recipe):
        found[kind] = Spec((layout.length,), layout.dtype)
        alone = {**layout.factored, **(layout.kept if kind in ("p", AVERAGE) else {})}
        found |= {f"{kind}.{path}": spec for path, spec in alone.items()}
    for path, spec in layout.factored.items():
        found[f"x.{path}"] = Spec((batch, spec.shape[0]), layout.dtype)
        found[f"d.{path}"] = Spec((batch, spec.shape[1]), layout.dtype)
    return found


def by_path(named: ArrayByName, layout: GradientLayout, kind: str) -> dict[str, np.ndarray]:
    """All parameters ('p'), or the slots of one name, in the network's order."""
    found = vector_views(named(kind), layout)
    alone = {**layout.factored, **(layout.kept if kind in ("p", AVERAGE) else {})}
    found |= {path: named(f"{kind}.{path}") for path in alone}
    return {path: found[path] for path in layout.paths if path in found}


def slots_by_path(
    named: ArrayByName, layout: GradientLayout, recipe: Recipe
) -> dict[str, np.ndarray]:
    """All slots, as SLOT.PATH."""
    return {
        f"{kind}.{path}": array
        for kind in kinds(recipe)[1:]
        for path, array in by_path(named, layout, kind).items()
    }


def fill(
    named: ArrayByName, layout: GradientLayout, recipe: Recipe, start: Mapping[str, np.ndarray]
) -> None:
    """Write initial parameters; their average starts from them, and other slots from zero."""
    for kind in kinds(recipe):
        for path, array in by_path(named, layout, kind).items():
            array[...] = start[path] if kind in ("p", AVERAGE) else 0


def tested(named: ArrayByName, layout: GradientLayout, recipe: Recipe) -> dict[str, np.ndarray]:
    """The parameters to test: their average, if there is one."""
    return by_path(named, layout, "p" if recipe.average is None else AVERAGE)


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
    keeps:    whether it also moves the averages of what no gradient moves
    """

    def __init__(
        self,
        layout: GradientLayout,
        recipe: Recipe,
        device: Device,
        batch: int,
        named: ArrayByName,
        elements: Interval,
        rows: Mapping[str, Interval],
        keeps: bool = True,
    ) -> None:
        own = {path: part for path, part in rows.items() if part[1] > part[0]}
        pieces = pieces_of(layout, recipe, elements, own)
        self.total = np.zeros(elements[1] - elements[0], layout.dtype)
        self._scalar = np.dtype(layout.dtype).type
        keeps = keeps and recipe.average is not None

        def array(kind: str, name: str) -> np.ndarray:
            if name in layout.kept:
                return named(f"{kind}.{name}")
            piece = pieces[name]
            held = named(kind) if piece.path is None else named(f"{kind}.{piece.path}")
            return held[slice(*piece.part)]

        slots = slot_names(layout, recipe, pieces, keeps)
        self._parameters = {name: array("p", name) for name in pieces}
        self._slots = {name: array(*name.split(".", 1)) for name in slots}
        self._kept = {path: named(f"p.{path}") for path in (layout.kept if keeps else ())}
        self._parts = {
            name: slice(piece.part[0] - elements[0], piece.part[1] - elements[0])
            for name, piece in pieces.items()
            if piece.path is None
        }
        self._factors = {
            name: tuple(named(f"{k}.{piece.path}")[:batch] for k in "xd")
            for name, piece in pieces.items()
            if piece.path is not None
        }
        self._products: dict[str, np.ndarray] = {}
        self._to_host = device.backend.to_host
        program = update_program(layout, recipe, pieces, batch, keeps)
        self._run = program.compile(device, {k: k for k in range(len(pieces) + len(slots))})
        self._clips = recipe.clip is not None
        self._norm = (
            norm_program(layout, pieces, batch).compile(device) if self._clips and pieces else None
        )

    def norm(self, total: Any = None) -> float:
        """The norm of this shard's gradients; needed before `step` if the recipe clips them.

        `total` replaces that of this object, for example on another device.
        """
        if self._norm is None:
            return 0.0
        norm, products = self._norm(self._vector(total), self._factors)
        self._products = dict(products)
        return float(self._to_host(norm))

    def step(self, numbers: Sequence[float], norm: float = 0.0, total: Any = None) -> None:
        """One step of the optimizer, with its numbers and the norm of all workers' gradients."""
        self._update(self._parameters, self._slots, numbers, norm, total)

    def _vector(self, total: Any) -> dict[str, Any]:
        """The pieces of the vector of summed gradients."""
        held = self.total if total is None else total
        return {name: held[part] for name, part in self._parts.items()}

    def warm_up(self, numbers: Sequence[float]) -> None:
        """Compile the machine code, by a step on copies."""
        parameters, slots = (
            {name: array.copy() for name, array in arrays.items()}
            for arrays in (self._parameters, self._slots)
        )
        with np.errstate(all="ignore"):  # what the arrays hold is no gradient yet
            self._update(parameters, slots, numbers, self.norm(), None)

    def _update(
        self,
        parameters: dict[str, np.ndarray],
        slots: dict[str, np.ndarray],
        numbers: Sequence[float],
        norm: float,
        total: Any,
    ) -> None:
        scalars = tuple(map(self._scalar, numbers))
        gradients = self._vector(total)
        if self._clips:
            gradients |= self._products
            self._run(parameters, slots, self._kept, gradients, {}, scalars, (self._scalar(norm),))
        else:
            self._run(parameters, slots, self._kept, gradients, self._factors, scalars, ())


def full_update(
    layout: GradientLayout, recipe: Recipe, device: Device, batch: int, named: ArrayByName
) -> ShardedUpdate:
    """The update of a worker that owns all parameters in a layout."""
    rows = {path: (0, spec.shape[0]) for path, spec in layout.factored.items()}
    return ShardedUpdate(layout, recipe, device, batch, named, (0, layout.length), rows)


class NormExchange:
    """The norm of all workers' gradients, which is the same bits for all of them.

    There are two sets of norms, because a worker may be one step ahead of one that still reads.
    """

    def __init__(self, group: WorkerGroup, shared: SharedArrays, recipe: Recipe) -> None:
        self._group, self._clips = group, recipe.clip is not None
        self._norms = shared["norms"] if self._clips else np.zeros((2, 0))

    def __call__(self, number: int, updates: Sequence[ShardedUpdate]) -> float:
        """The norm in the step of this number; all workers must take part."""
        if not self._clips:
            return 0.0
        self._norms[number % 2, self._group.rank] = math.hypot(*[one.norm() for one in updates])
        self._group.barrier()
        return math.hypot(*self._norms[number % 2].tolist())

    @staticmethod
    def specs(recipe: Recipe, workers: int) -> dict[str, Spec]:
        """The array that the workers must share."""
        return {} if recipe.clip is None else {"norms": Spec((2, workers), "float64")}
