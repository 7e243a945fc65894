"""Code that several tasks have in common, as functions of its pointers: equal layers share it.

Smaller code is faster: what does not fit the cache of instructions is read again in each step.
"""

import re
from collections import Counter
from collections.abc import Iterable

NAMES = re.compile(r"\b([pr])\d+\b")  # of pointers, and of results that follow from others
FUNCTION = """
template <{types}> __device__ __noinline__ void {name}(int tile, {given})
{{
    extern __shared__ __align__(16) float room[];
    {assumed}
    {code}
}}"""


class Functions:
    """The functions of the tasks with this code.

    >>> some = Functions(["p1[tile] = p3[0];", "p4[tile] = p1[0];", "p4[tile] = 0;"])
    >>> some.called("p7[tile] = p9[0];"), some.called("p7[tile] = 0;")
    ('task_0(tile, p7, p9);', 'p7[tile] = 0;')
    """

    def __init__(self, codes: Iterable[str]) -> None:
        counts = Counter(_renamed(code)[0] for code in codes)
        found = [code for code, count in counts.items() if count > 1 and "step" not in code]
        self._names = {code: f"task_{n}" for n, code in enumerate(found)}

    def called(self, code: str) -> str:
        """A call of the code's function, or the code itself if it has none."""
        same, pointers = _renamed(code)
        if same not in self._names:
            return code
        return f"{self._names[same]}({', '.join(['tile', *pointers])});"

    @property
    def text(self) -> str:
        """Their definitions."""
        return "".join(self._definition(name, code) for code, name in self._names.items())

    def _definition(self, name: str, code: str) -> str:
        pointers = _renamed(code)[1]
        types = ", ".join(f"class T{n}" for n in range(len(pointers)))
        given = ", ".join(f"T{n}* {pointer}" for n, pointer in enumerate(pointers))
        assumed = " ".join(f"assume_global({pointer});" for pointer in pointers)
        return FUNCTION.format(types=types, name=name, given=given, assumed=assumed, code=code)


def _renamed(code: str) -> tuple[str, list[str]]:
    """The code with names in the order in which it has them, and its pointers in that order."""
    new: dict[str, str] = {}
    for found in NAMES.finditer(code):
        kind = found[1]
        new.setdefault(found[0], f"{kind}{sum(name[0] == kind for name in new)}")
    renamed = NAMES.sub(lambda found: new[found[0]], code)
    return renamed, [name for name in new if name[0] == "p"]
