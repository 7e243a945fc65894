"""CuPy, or None where it is not installed: other modules can be imported and tested without it."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

cupy: Any = import_module("cupy") if find_spec("cupy") else None
