"""All kinds of faults."""

from faults import files, lab, load, threads, training

KINDS = (*files.KINDS, *training.KINDS, *lab.KINDS, *threads.KINDS, *load.KINDS)
