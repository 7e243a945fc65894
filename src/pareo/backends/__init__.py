"""Backends: what runs operators and programs, one package for each device."""

from pareo.backends.base import Backend, StepRunner, TrainingLoop

__all__ = ["Backend", "StepRunner", "TrainingLoop"]
