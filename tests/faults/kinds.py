"""All kinds of faults."""

from faults import files, lab, training

KINDS = (*files.KINDS, *training.KINDS, *lab.KINDS)
