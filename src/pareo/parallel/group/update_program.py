"""Programs that update some of the parameters: pieces of the vector, and rows of matrices.

Weight decay applies to the start of the vector and not to its rest (see `GradientLayout`). So a
shard of the vector is at most two pieces, each with one decay, and every element is updated by the
same operations as in a step of one worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.parallel.group.shared_programs import GradientLayout
from pareo.program import Program, remove_common, remove_dead, trace
from pareo.spec import Spec
from pareo.training.recipe import AVERAGE, Recipe

Interval = tuple[int, int]  # start and end


@dataclass(frozen=True)
class Piece:
    """Some parameters that are updated as one array.

    part:   the elements of the vector, or the rows of the matrix
    path:   of the matrix; None for elements of the vector
    decay:  their weight decay
    """

    part: Interval
    spec: Spec
    path: str | None
    decay: float


Pieces = Mapping[str, Piece]


def pieces_of(
    layout: GradientLayout, recipe: Recipe, elements: Interval, rows: Mapping[str, Interval]
) -> dict[str, Piece]:
    """The pieces of a shard: elements of the vector, and rows of each factored matrix."""
    split, found = layout.decaying_length, {}
    for name, lo, hi, decay in (
        (":decaying", elements[0], min(elements[1], split), recipe.decay),
        (":other", max(elements[0], split), elements[1], 0.0),
    ):
        if hi > lo:
            found[name] = Piece((lo, hi), Spec((hi - lo,), layout.dtype), None, decay)
    for path, (lo, hi) in rows.items():
        spec = Spec((hi - lo, layout.factored[path].shape[1]), layout.dtype)
        decay = recipe.decay if path in layout.decaying else 0.0
        found[path] = Piece((lo, hi), spec, path, decay)
    return found


def slot_names(layout: GradientLayout, recipe: Recipe, pieces: Pieces, keeps: bool) -> list[str]:
    """The slots of some pieces, as SLOT.PIECE; with `keeps`, also the averages of what is kept."""
    found = [f"{slot}.{name}" for slot in recipe.optimizer.slots for name in pieces]
    if recipe.average is not None:
        found += [f"{AVERAGE}.{name}" for name in (*pieces, *(layout.kept if keeps else ()))]
    return found


def update_program(
    layout: GradientLayout, recipe: Recipe, pieces: Pieces, batch: int, keeps: bool = False
) -> Program:
    """The program that updates one worker's pieces of the parameters.

    It maps (parameters, slots, kept, gradients, factors, numbers, norm) to (parameters, slots), all
    by the names of the pieces. `gradients` are those of the batch; if nothing is clipped, those of
    matrices are left out, and computed from `factors`: inputs and output gradients. `norm` is that
    of all gradients of all workers, if the recipe clips them. With `keeps`, `kept` are the arrays
    that no gradient moves, whose averages are moved here.
    """
    declared = {name: piece.spec for name, piece in pieces.items()}
    matrices = [name for name, piece in pieces.items() if piece.path is not None]
    kept = layout.kept if keeps and recipe.average is not None else {}
    clips = recipe.clip is not None
    given = {name: spec for name, spec in declared.items() if clips or name not in matrices}
    every = {**declared, **kept}
    slots = {
        name: every[name.partition(".")[2]]
        for name in slot_names(layout, recipe, pieces, bool(kept))
    }

    def update(
        parameters: Any, slots: Any, kept: Any, gradients: Any, factors: Any, numbers: Any,
        norm: Any,
    ) -> Any:  # fmt: skip
        found = dict(gradients) if clips else {**gradients, **_products(pieces, factors)}
        if clips:
            factor = op.clip(op.div(recipe.clip, op.add(norm[0], 1e-6)), 0.0, 1.0)
            found = {name: op.scale(factor, gradient) for name, gradient in found.items()}
        moved: dict[str, Any] = {}
        changed: dict[str, Any] = {}
        for name, parameter in parameters.items():
            own = {slot: slots[f"{slot}.{name}"] for slot in recipe.optimizer.slots}
            moved[name], new = recipe.optimizer.update(
                parameter, found[name], own, numbers, pieces[name].decay
            )
            changed |= {f"{slot}.{name}": array for slot, array in new.items()}
        if recipe.average is not None:
            for name, array in {**moved, **kept}.items():
                old = op.scale(recipe.average, slots[f"{AVERAGE}.{name}"])
                changed[f"{AVERAGE}.{name}"] = op.add(old, op.scale(1 - recipe.average, array))
        return moved, {name: changed[name] for name in slots}

    scalar = Spec((), layout.dtype)
    program = trace(
        update, declared, slots, kept, given,
        {} if clips else factor_specs(layout, pieces, batch),
        (scalar,) * recipe.optimizer.count, (scalar,) * clips,
    )  # fmt: skip
    return remove_dead(remove_common(program))


def norm_program(layout: GradientLayout, pieces: Pieces, batch: int) -> Program:
    """The program from (gradients, factors) to (norm of all of these, gradients of matrices)."""
    given = {name: piece.spec for name, piece in pieces.items() if piece.path is None}

    def norm(gradients: Any, factors: Any) -> Any:
        products = _products(pieces, factors)
        return op.norm([*gradients.values(), *products.values()]), products

    program = trace(norm, given, factor_specs(layout, pieces, batch))
    return remove_dead(remove_common(program))


def factor_specs(
    layout: GradientLayout, pieces: Pieces, batch: int
) -> dict[str, tuple[Spec, Spec]]:
    """The factors of each matrix of which some rows are updated."""
    return {
        name: (
            Spec((batch, layout.factored[piece.path].shape[0]), layout.dtype),
            Spec((batch, layout.factored[piece.path].shape[1]), layout.dtype),
        )
        for name, piece in pieces.items()
        if piece.path is not None
    }


def _products(pieces: Pieces, factors: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """The gradients of rows of matrices, from their factors."""
    found = {}
    for name, (inputs, output_gradients) in factors.items():
        part = op.part(inputs, 1, pieces[name].part)
        found[name] = op.dot(op.transpose(part), output_gradients)
    return found
