"""Making a program that fails smaller, as long as it fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzzing.recipe import Line, Recipe
from fuzzing.reference import interpret


def shrunk(recipe: Recipe, fails: Callable[[Recipe], bool], tries: int = 200) -> Recipe:
    """A smaller recipe that still fails: fewer results, updates and lines."""
    going = True
    while going and tries:
        going = False
        for smaller in _smaller(recipe):
            tries -= 1
            if fails(smaller):
                recipe, going = smaller, True
                break
            if not tries:
                break
    return recipe


def _smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with one thing less, the largest steps first."""
    pruned = recipe.pruned()
    if pruned != recipe and _lines(pruned) < _lines(recipe):
        yield pruned
    if recipe.nesting is not None:
        yield replace(recipe, nesting=None)
    for place in range(len(recipe.outputs)):
        if len(recipe.outputs) > 1:
            yield _without_output(recipe, place)
    for place in range(len(recipe.outputs)):
        yield from _earlier(recipe, place)
    for place in recipe.updates:
        yield replace(recipe, updates={r: n for r, n in recipe.updates.items() if r != place})
    values = _values(recipe)
    for place in reversed(range(len(recipe.lines))):
        if recipe.lines[place].name not in ("argument", "gone"):
            yield _given(recipe, place, values)


def _lines(recipe: Recipe) -> int:
    return sum(line.name != "gone" for line in recipe.lines)


def _without_output(recipe: Recipe, place: int) -> Recipe:
    outputs = recipe.outputs[:place] + recipe.outputs[place + 1 :]
    updates = {r - (r > place): n for r, n in recipe.updates.items() if r != place}
    return replace(recipe, outputs=outputs, updates=updates).pruned()


def _earlier(recipe: Recipe, place: int) -> Iterator[Recipe]:
    """What a result is made of in its place, where that leaves fewer lines."""
    updates = {r: n for r, n in recipe.updates.items() if r != place}
    for number, line in recipe.numbered:
        if not number <= recipe.outputs[place] < number + line.results:
            continue
        for operand in line.operands:
            if isinstance(operand, int):
                outputs = (*recipe.outputs[:place], operand, *recipe.outputs[place + 1 :])
                smaller = replace(recipe, outputs=outputs, updates=updates).pruned()
                if _lines(smaller) < _lines(recipe):
                    yield smaller


def _values(recipe: Recipe) -> dict[int, Any]:
    """What every value is, in float64."""
    made = tuple(
        number + place
        for number, line in recipe.numbered
        if line.name != "gone"
        for place in range(line.results)
    )
    program = replace(recipe, outputs=made, wrt=(), updates={}, nesting=None).program("float64")
    return dict(zip(made, interpret(program, list(recipe.arguments.values())), strict=True))


def _given(recipe: Recipe, place: int, values: dict[int, Any]) -> Recipe:
    """The recipe with a line's values given as arguments, and whatever only led to them gone."""
    number, line = recipe.numbered[place]
    new = tuple(
        Line("argument", array=_exact(values[number + result])) for result in range(line.results)
    )
    return replace(recipe, lines=recipe.lines[:place] + new + recipe.lines[place + 1 :]).pruned()


def _exact(array: Any) -> Any:
    """The numbers as float32 holds them."""
    return array.astype("float32").astype("float64") if array.dtype.kind == "f" else array
