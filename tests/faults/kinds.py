"""All kinds of faults."""

from faults import files, training

KINDS = (*files.KINDS, *training.KINDS)
