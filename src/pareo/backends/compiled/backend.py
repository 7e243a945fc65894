"""The table of the `compiled` device, which the family modules fill."""

from pareo.backends.base import Backend

backend = Backend("compiled")

# Waking a worker costs some 30 microseconds; a stretch of this many cheap elements takes as long.
GRAIN = 1 << 16
