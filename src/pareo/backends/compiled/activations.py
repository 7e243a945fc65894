"""Scalar functions that the kernels call, written so that loops around them vectorise.

float32 goes through polynomials fitted for this file (the largest relative error of each fit is
6e-9, a tenth of a rounding step of float32); float64 goes through the C library.
"""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

F = np.float32
NONE, SIGMOID, TANH, RELU = 0, 1, 2, 3
ACTIVATIONS = {"none": NONE, "sigmoid": SIGMOID, "tanh": TANH, "relu": RELU}

LOG2_E = F(1.4426950408889634)
# ln 2 in two parts, so that subtracting a multiple of it loses nothing.
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)
# Added to a number below 2**22, this leaves the nearest whole number in the lowest bits.
ROUNDER = F(1.5 * 2**23)
ROUNDER_BITS, ONE_BITS = np.int32(ROUNDER.view(np.int32)), np.int32(127 << 23)
# e**r = 1 + r + r**2 * E(r) for |r| up to half of ln 2.
E0, E1, E2, E3, E4 = (
    F(0.49999994), F(0.166665196), F(0.0416684002), F(0.00836885069), F(0.00138143206)
)  # fmt: skip


def exponential(x: Any) -> Any:
    """e to the power of x."""
    return math.exp(x)


@overload(exponential, jit_options={"fastmath": {"contract"}})
def _exponential(x: Any) -> Any:
    if x == types.float32:

        def single(x: Any) -> Any:
            # Beyond 89 the result is infinite, below -105 it rounds to zero; NaN passes both.
            bounded = F(89) if x > F(89) else x
            bounded = F(-105) if bounded < F(-105) else bounded
            rounded = bounded * LOG2_E + ROUNDER
            power = rounded - ROUNDER
            r = bounded - power * LN2_HIGH
            r = r - power * LN2_LOW
            # In pairs rather than one after the other, so that the steps overlap.
            z = r * r
            p = F(1) + (r + z * ((E0 + r * E1) + z * ((E2 + r * E3) + z * E4)))
            # Two factors, because 2 to the power alone may be too large or too small to hold.
            whole = np.int32(np.float32(rounded).view(np.int32) - ROUNDER_BITS)
            half = np.int32(whole >> np.int32(1))
            first = np.int32((half << np.int32(23)) + ONE_BITS).view(F)
            second = np.int32(((whole - half) << np.int32(23)) + ONE_BITS).view(F)
            return p * first * second

        return single

    def double(x: Any) -> Any:
        return math.exp(x)

    return double


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + math.exp(-x))


@overload(logistic, jit_options={"fastmath": {"contract"}})
def _logistic(x: Any) -> Any:
    if x == types.float32:

        def single(x: Any) -> Any:
            # As above, but one factor will do: what it cannot hold is lost beside the 1 anyway,
            # and above 88.4 it is infinite, as exp(-x) is in float32 from 88.7 on.
            bounded = F(89) if x < F(-89) else -x
            bounded = F(-87) if bounded < F(-87) else bounded
            rounded = bounded * LOG2_E + ROUNDER
            power = rounded - ROUNDER
            r = bounded - power * LN2_HIGH
            r = r - power * LN2_LOW
            z = r * r
            p = F(1) + (r + z * ((E0 + r * E1) + z * ((E2 + r * E3) + z * E4)))
            factor = np.int32((np.float32(rounded).view(np.int32) << np.int32(23)) + ONE_BITS).view(
                F
            )
            return F(1) / (F(1) + p * factor)

        return single

    def double(x: Any) -> Any:
        return 1.0 / (1.0 + math.exp(-x))

    return double


# tanh(x) = x + x**3 * T(x**2) up to here; the exponential takes over beyond.
SMALL = F(0.64)
T0, T1, T2, T3, T4 = (
    F(-0.333332688), F(0.133310929), F(-0.053709656), F(0.02053882), F(-0.00559101626)
)  # fmt: skip


def hyperbolic(x: Any) -> Any:
    """Hyperbolic tangent of x."""
    return math.tanh(x)


@overload(hyperbolic, jit_options={"fastmath": {"contract"}})
def _hyperbolic(x: Any) -> Any:
    if x == types.float32:

        def single(x: Any) -> Any:
            size = abs(x)
            z = x * x
            near = x + x * z * (T0 + z * (T1 + z * (T2 + z * (T3 + z * T4))))
            far = F(1) - F(2) / (exponential(size + size) + F(1))
            far = -far if x < F(0) else far
            return near if size < SMALL else far

        return single

    def double(x: Any) -> Any:
        return math.tanh(x)

    return double
