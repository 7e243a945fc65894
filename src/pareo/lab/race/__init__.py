"""`pareo race`: one network, trained by every contestant in turn."""

from pareo.lab.experiment.tasks import task_for
from pareo.lab.race.engine import Race, Rules

__all__ = ["Race", "Rules", "task_for"]
