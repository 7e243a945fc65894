"""The memory of a group's values: which floats are free."""

ALIGN = 16  # floats


def _rounded(floats: int) -> int:
    return -(-max(1, floats) // ALIGN) * ALIGN


class Memory:
    """Floats from an address on, which are given to values and taken back.

    >>> memory = Memory("base")
    >>> memory.take(20), memory.take(1)
    (0, 32)
    >>> memory.release(0, 20)
    >>> memory.take(3), memory.floats
    (0, 48)
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.floats = 0
        self._free: list[tuple[int, int]] = []

    def address(self, offset: int) -> str:
        return f"{self.base} + {4 * offset}"

    def take(self, floats: int) -> int:
        """The offset of that many floats, the first that are free."""
        floats = _rounded(floats)
        for at, (offset, room) in enumerate(self._free):
            if room >= floats:
                self._free[at : at + 1] = [(offset + floats, room - floats)] * (room > floats)
                return offset
        offset = self.floats
        if self._free and sum(self._free[-1]) == self.floats:
            offset = self._free.pop()[0]
        self.floats = offset + floats
        return offset

    def keep(self, floats: int) -> int:
        """The offset of that many floats that no value had before, nor will have."""
        offset = self.floats
        self.floats += _rounded(floats)
        return offset

    def release(self, offset: int, floats: int) -> None:
        """Take floats back."""
        pieces = sorted([*self._free, (offset, _rounded(floats))])
        self._free = [pieces[0]]
        for offset, room in pieces[1:]:
            if sum(self._free[-1]) == offset:
                self._free[-1] = (self._free[-1][0], self._free[-1][1] + room)
            else:
                self._free.append((offset, room))
