"""Random programs: idioms that fusions look for, any other operator, gradients and updates."""

import fuzzing.idioms_today  # noqa: F401  its idioms enter the list
import numpy as np
from fuzzing.idioms import IDIOMS, descend
from fuzzing.recipe import Recipe
from fuzzing.writer import Writer

from pareo import op


def drawn(seed: int) -> Recipe:
    """The random program of a seed, of 5 to 40 operators before it is differentiated."""
    w = Writer(seed)
    for _ in range(w.d.whole(1, 3)):
        w.fresh(w.d.shape((0, 4), least=1, most=4))
    goal = w.d.whole(5, 36)
    derivatives = w.d.one_of(0, 0, 1, 2)
    parts = sorted(w.d.whole(1, goal) for _ in range(derivatives))
    while sum(line.name in op.registry for line in w.lines) < goal:
        if parts and sum(line.name in op.registry for line in w.lines) >= parts[0]:
            parts.pop(0)
            derive(w)
        elif w.d.often(0.25):
            w.any_operator()
        else:
            w.d.one_of(*IDIOMS)(w)
    whole = w.d.often(0.1) and differentiated(w)
    return whole or finished(w, seed)


def number_of(w: Writer) -> int | None:
    """A number that depends on many values, to be differentiated."""
    value = w.pick(lambda array: array.size > 0)
    if value is None:
        return None
    total = w.call(w.d.one_of("sum", "mean"), value)
    if total is not None and w.d.flag():
        other = w.pick(lambda array: array.size > 0)
        more = None if other is None else w.call("mean", other)
        total = total if more is None else w.call("add", total, more)
    return total


def _arguments(w: Writer) -> list[int]:
    recipe = Recipe(tuple(w.lines), ())
    return [n for n, array in recipe.arguments.items() if array.dtype.kind == "f"]


def derive(w: Writer) -> None:
    """Gradients of a number, and steps down them."""
    loss, places = number_of(w), _arguments(w)
    if loss is None or not places:
        return
    some = w.d._random.permutation(places)[: w.d.whole(1, 3)]
    wrt = tuple(int(number) for number in some)
    first = w.gradient(loss, wrt)
    if first is None:
        return
    for place, argument in enumerate(wrt):
        if w.d.often(0.5):
            rate = w.fresh((), 0.05, 0.5)
            step = w.call("scale", rate, first + place)
            if step is not None:
                w.call("sub", argument, step)
        elif w.d.often(0.3):
            descend(w)


def differentiated(w: Writer) -> Recipe | None:
    """The program of one number, handed to `differentiate`."""
    loss, places = number_of(w), _arguments(w)
    if loss is None or not places:
        return None
    wrt = tuple(places[: w.d.whole(1, 3)])
    if w.gradient(loss, wrt) is None:
        return None
    del w.lines[-1]
    return Recipe(tuple(w.lines), (loss,), wrt=wrt).pruned()


def finished(w: Writer, seed: int) -> Recipe:
    """The results, with what is odd about them, and the arguments that some replace."""
    recipe = Recipe(tuple(w.lines), ())
    arguments = list(recipe.arguments)
    count = len(w.values)
    read = {n for line in w.lines for n in line.operands if isinstance(n, int)}
    unread = [n for n in range(count) if n not in read and n not in arguments]
    outputs = [n for n in unread if w.d.often(0.7)] or [count - 1]
    shown = [n for n in range(count) if n not in w.hidden]
    outputs += [w.d.one_of(*shown) for _ in range(w.d.whole(0, 3))]
    if arguments and w.d.often(0.2):
        outputs.append(w.d.one_of(*arguments))
    if w.d.often(0.1):
        outputs.append(w.d.one_of(*outputs))
    updates: dict[int, int] = {}
    if w.d.often(0.6):
        outputs += _replacing(w, arguments)
        updates = _updates(w, outputs, arguments)
    nesting = seed if w.d.flag() else None
    return Recipe(tuple(w.lines), tuple(outputs), updates, nesting)


def _fits(w: Writer, one: int, other: int) -> bool:
    a, b = w.values[one], w.values[other]
    return a.shape == b.shape and a.dtype == b.dtype


def _replacing(w: Writer, arguments: list[int]) -> list[int]:
    """Values that can replace arguments: made of them or of others, or other arguments."""
    found = []
    for argument in arguments:
        fitting = [n for n in range(len(w.values)) if _fits(w, n, argument) and n != argument]
        if fitting and w.d.flag():
            found.append(w.d.one_of(*(fitting if w.d.flag() else fitting[-3:])))
    return found[:4]


def _updates(w: Writer, outputs: list[int], arguments: list[int]) -> dict[int, int]:
    updates: dict[int, int] = {}
    for place in np.random.default_rng(w.d.whole(0, 999)).permutation(len(outputs)):
        fitting = [
            argument
            for argument in arguments
            if argument not in updates.values() and _fits(w, argument, outputs[place])
        ]
        if fitting and w.d.often(0.8):
            updates[int(place)] = w.d.one_of(*fitting)
    return updates
