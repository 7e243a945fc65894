"""Time per image and memory against the batch size, for any network and contestants."""

from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.settings import Settings, batch_sizes

__all__ = ["Settings", "Sweep", "batch_sizes"]
