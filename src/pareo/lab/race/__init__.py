"""`pareo race`: one network, trained by every contestant in turn."""

from pareo.lab.race.engine import Race, Rules, task_for

__all__ = ["Race", "Rules", "task_for"]
