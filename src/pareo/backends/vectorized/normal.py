"""The normal distribution function, which NumPy does not have.

With z = abs(a) / sqrt(2) and t = 1 - 6 / (z + 3), the function (1 + 2 z) exp(z * z) erfc(z) is
smooth for t from -1 to 1. It is approximated by Chebyshev polynomials, whose coefficients were
computed with 50 digits (the way of M. M. Shepherd and J. G. Laframboise, Mathematics of Computation
36, 1981), written here as a polynomial of t.
"""

import numpy as np

from pareo.backends.vectorized.table import Array
from pareo.operators.activation import HALF_ROOT

# From the constant on. The first leaves 5e-9 of the function, the second 3e-16.
SHORT = (
    1.25300805637, -0.1356210694, -0.0475621569275, 0.129644114344, -0.119275275282,
    0.0683165677711, -0.0237635764395, 0.00249911686961, 0.00187507912377, -0.000726453679034,
    -9.25451668692e-5, 7.73102422408e-5,
)  # fmt: skip
LONG = (
    1.253008058269729547, -0.1356211061245757503, -0.04756229435342037908, 0.1296451587022834667,
    -0.1192736634167600231, 0.06830802735638397023, -0.02377051489153007522,
    0.002529391667205172308, 0.0018886900977441495, -0.0007798312797290158471,
    -0.0001051583129781312818, 0.0001250953107625453404, 4.944124342223659851e-6,
    -0.00002008999783328427662, -7.187883834404266654e-7, 3.454294770277737898e-6,
    3.366979080640759584e-7, -5.963983625522740535e-7, -1.205414228648937891e-7,
    8.765881411730558432e-8, 2.784388126550222063e-8, -7.641962892589974848e-9,
    -3.181354143496927326e-9,
)  # fmt: skip


def distribution(out: Array, a: Array, power: Array, z: Array, t: Array) -> None:
    """The share of the normal distribution below a; `power` becomes exp(-a * a / 2)."""
    first, *others = reversed(SHORT if a.dtype == np.float32 else LONG)
    np.abs(a, out=z)
    np.multiply(z, HALF_ROOT, out=z)
    np.add(z, 3, out=t)
    np.divide(-6, t, out=t)
    np.add(t, 1, out=t)
    np.multiply(t, first, out=out)
    for factor in others[:-1]:
        np.add(out, factor, out=out)
        np.multiply(out, t, out=out)
    np.add(out, others[-1], out=out)
    np.square(a, out=power)
    np.multiply(power, -0.5, out=power)
    np.exp(power, out=power)
    np.multiply(out, power, out=out)
    np.add(z, 0.5, out=z)
    np.multiply(z, 4, out=z)  # 2 + 4 z: half of the function
    np.divide(out, z, out=out)
    np.copysign(out, a, out=out)
    np.copysign(0.5, a, out=t)  # where a is positive, 1 minus what was found; no bit is lost
    np.add(t, 0.5, out=t)
    np.subtract(t, out, out=out)
