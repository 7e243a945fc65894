"""Data parallelism: every batch of one network is split over workers."""

from pareo.parallel.data.training import fit

__all__ = ["fit"]
