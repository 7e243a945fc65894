"""The order of a table's rows: which are one instruction, and where workers wait."""

from collections.abc import Callable, Iterable, Iterator

from pareo.backends.compiled.loops.matrices import interpreter as machine
from pareo.backends.compiled.loops.matrices.interpreter import BY_COLUMNS
from pareo.backends.compiled.loops.matrices.rows import ALL, Row

Place = tuple[str, int, int]  # of a value in memory: whose it is, where it begins and ends
PlaceOf = Callable[[int], Place]
Use = tuple[Place, str, bool]  # a place, a worker's part of it, and whether it is written


def with_fused_updates(rows: Iterable[Row], place: PlaceOf) -> Iterator[Row]:
    """The rows; the gradient of a layer's input and its weights' update as one where possible.

    The two are neighbours, and both read the weights and the gradient of the layer's result.
    """
    rest = iter(rows)
    row = next(rest, None)
    while row is not None:
        following = next(rest, None)
        if following is not None and _are_backward(row, following, place):
            is_packed = row.opcode == machine.PACKED_BACKWARD
            opcode = machine.PACKED_BACKWARD if is_packed else machine.SMALL_BACKWARD
            out, d, w = row.values[:3]
            x, updated = following.values[3 if is_packed else 1], following.writes[0][0]
            own = row.writes[0][1]
            yield Row(
                opcode, (out, d, w, x), row.sizes, [(d, ALL), (w, ALL), (x, own)],
                [(out, own), (updated, ALL)], BY_COLUMNS, rate=following.rate,
            )  # fmt: skip
            following = next(rest, None)
        else:
            yield row
        row = following


def _are_backward(row: Row, following: Row, place: PlaceOf) -> bool:
    """Whether two rows are the gradient of a layer's input, and the update of its weights."""
    if row.opcode == following.opcode == machine.PACKED_BACKWARD:
        is_pair = row.rate < 0 <= following.rate
        return is_pair and row.values[1:3] == following.values[1:3]
    return (
        row.opcode == machine.SMALL_TRANSPOSED
        and following.opcode == machine.SMALL_UPDATE
        and row.values[1] == following.values[2]
        and place(row.values[2]) == place(following.values[0])
    )


def set_barriers(rows: list[Row], images: tuple[Place, str], place: PlaceOf) -> None:
    """Mark the rows before which all workers must have finished what came before.

    images: where they are gathered, and the part that a worker gathers.

    Two rows may run at the same time if they have no memory in common that one of them writes, or
    if each worker uses the same part of it in both.
    """
    since: list[Use] = [(*images, True)]
    for row in rows:
        uses: list[Use] = [(place(n), part, False) for n, part in row.reads]
        uses += [(place(n), part, True) for n, part in row.writes]
        if any(_conflict(one, other) for one in uses for other in since):
            row.barrier = True
            since = []
        since += uses


def _conflict(one: Use, other: Use) -> bool:
    """Whether two uses of memory must not happen at the same time."""
    (space, low, high), part, writes = one
    (other_space, other_low, other_high), other_part, other_writes = other
    if space != other_space or not (writes or other_writes):
        return False
    if high <= other_low or other_high <= low:
        return False
    same = one[0] == other[0] and part == other_part and part != ALL
    return not same
