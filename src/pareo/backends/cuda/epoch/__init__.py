"""Whole epochs of training in one launch, for networks that a multiprocessor can hold."""

from pareo.backends.cuda.epoch.loops import loop

__all__ = ["loop"]
