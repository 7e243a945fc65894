"""The type of arrays whose library only a device knows."""

from typing import Any, TypeAlias

# NumPy's on the CPU, CuPy's on a GPU. The two have no common base class, and CuPy has no types.
Array: TypeAlias = Any
