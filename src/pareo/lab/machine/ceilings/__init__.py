"""The limits of this machine, measured once and kept: `pareo ceilings`.

Every share of a limit that pareo shows is a share of one of these. `limits` returns the two that a
floor needs, `ceilings_of` all of them.
"""

from pareo.lab.machine.ceilings.measuring import Limits, ceilings_of, limits
from pareo.lab.machine.ceilings.model import Ceilings, Limit, Measured, Probe

__all__ = ["Ceilings", "Limit", "Limits", "Measured", "Probe", "ceilings_of", "limits"]
