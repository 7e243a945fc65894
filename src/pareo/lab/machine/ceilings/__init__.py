"""What this machine can do at most, measured once and kept: `pareo ceilings`.

Every share of a limit in pareo is a share of one of these. `limits` gives the two that a floor
needs, `ceilings_of` all of them.
"""

from pareo.lab.machine.ceilings.measuring import Limits, ceilings_of, limits
from pareo.lab.machine.ceilings.model import Ceilings, Limit, Probe

__all__ = ["Ceilings", "Limit", "Limits", "Probe", "ceilings_of", "limits"]
