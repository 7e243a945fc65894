"""All kinds of faults."""

from faults import files, lab, load, networks, structure, threads, training

MODULES = files, structure, networks, training, lab, threads, load
KINDS = tuple(kind for module in MODULES for kind in module.KINDS)
