"""All kinds of faults."""

from faults import files

KINDS = files.KINDS
