"""Memory of a block: a value takes the first gap that is large enough, until its last reader."""


class Arena:
    """Places in memory of so many floats.

    >>> arena = Arena(100)
    >>> arena.take(60), arena.take(30), arena.take(30)
    (0, 60, None)
    >>> arena.free(0)
    >>> arena.take(30), arena.most
    (0, 92)
    """

    ALIGNED = 4  # floats

    def __init__(self, size: int) -> None:
        self._size, self.most = size, 0
        self._taken: dict[int, int] = {}  # end by start

    def take(self, count: int) -> int | None:
        """The start of a free place, or None where there is none."""
        count = -(-count // self.ALIGNED) * self.ALIGNED
        start = 0
        for begin, end in sorted(self._taken.items()):
            if begin - start >= count:
                break
            start = end
        if start + count > self._size:
            return None
        self._taken[start] = start + count
        self.most = max(self.most, start + count)
        return start

    def free(self, start: int) -> None:
        """Give a place back."""
        del self._taken[start]
