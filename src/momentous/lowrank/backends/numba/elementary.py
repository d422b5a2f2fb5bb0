"""exp and log1p without branches and calls, so that loops over entries can be vectorised with them.

Both are right to 1e-15, relatively.  Polynomials are nearly minimax (`mpmath.chebyfit`), highest
power first.  This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

import math

import numpy as np

from momentous.lowrank.backends.numba.compiler import compiled_kernel

ROUNDER = 1.5 * 2.0**52  # a float64 of this size has no binary places: adding it rounds
LOG2_E = 1.0 / math.log(2.0)
# log(2) in two parts (Cody & Waite): whole multiples of the first up to 2^11 are exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")
LOWEST, HIGHEST = -708.0, 709.0  # exponents whose powers are normal numbers; of less, that of this
MANTISSA, EXPONENT = (1 << 52) - 1, 52  # of a float64: the bits of the one, the place of the other
ONE = 1023 << EXPONENT  # the bits of 1.0
SQRT2 = math.sqrt(2.0)


@compiled_kernel("contract", inline=True)  # the order of operations matters in it
def exp(x: float) -> float:
    """``e^x = 2^n e^r`` with |r| <= log(2)/2."""
    within = LOWEST if x < LOWEST else HIGHEST if x > HIGHEST else x
    rounded = within * LOG2_E + ROUNDER
    n = rounded - ROUNDER
    r = (within - n * LN2_HIGH) - n * LN2_LOW
    p = 2.5110049204818658e-08
    p = p * r + 2.763265472252779e-07
    p = p * r + 2.755724088722987e-06
    p = p * r + 2.4801485441561313e-05
    p = p * r + 0.00019841269890076403
    p = p * r + 0.0013888888952352863
    p = p * r + 0.008333333333319589
    p = p * r + 0.04166666666648795
    p = p * r + 0.1666666666666668
    p = p * r + 0.5000000000000019
    p = p * r + 1.0
    p = p * r + 1.0
    # The lowest bits of the rounded sum are n: moved into the exponent they make the power, without
    # a conversion to an integer, which few machines have for vectors.
    power = np.int64((np.float64(rounded).view(np.int64) << EXPONENT) + ONE).view(np.float64)
    return np.inf if x > HIGHEST else p * power


@compiled_kernel("contract", inline=True)
def log1p(x: float) -> float:
    """``log(1 + x) = n log(2) + 2 atanh(f / (2 + f))`` with 1 + f from sqrt(1/2) to sqrt(2)."""
    y = 1.0 + x
    bits = np.float64(y).view(np.int64)
    m = np.int64((bits & MANTISSA) | ONE).view(np.float64)  # from 1 to 2
    # The exponent as a number, by the way of the bits of ROUNDER again.
    biased = np.int64((bits >> EXPONENT) + np.float64(ROUNDER).view(np.int64)).view(np.float64)
    n = biased - (ROUNDER + 1023.0)
    halved = m > SQRT2
    m, n = (0.5 * m, n + 1.0) if halved else (m, n)
    f = x if n == 0.0 else m - 1.0  # of a small x no bit is lost
    s = f / (2.0 + f)
    t = s * s
    p = 0.07405641283874514
    p = p * t + 0.0765618886791573
    p = p * t + 0.0909181864974045
    p = p * t + 0.11111098476681508
    p = p * t + 0.1428571438080474
    p = p * t + 0.19999999999649035
    p = p * t + 0.33333333333333826
    p = p * t + 1.0
    found = n * LN2_HIGH + (2.0 * s * p + n * LN2_LOW)
    outside = -np.inf if y == 0.0 else np.nan if y < 0.0 else y
    return found if 0.0 < y < np.inf else outside
