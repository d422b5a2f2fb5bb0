"""exp and log1p without branches and calls, so that loops over entries can be vectorised with them.

Both are right to 1e-15, relatively.  Polynomials are nearly minimax (`mpmath.chebyfit`), and added
up in pairs (Estrin's scheme): a chain of as many products as powers would be waited for, which on
machines with 16 registers is most of the time.  This file needs numba, so is itself imported only
where it is used.
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
EXPONENT = np.uint64(52)  # where it begins in the bits of a float64; below it is the mantissa
MANTISSA = np.uint64((1 << 52) - 1)
ONE = np.uint64(1023 << 52)  # the bits of 1.0,
HALF_SQRT2 = np.float64(math.sqrt(0.5)).view(np.uint64)  # of the least mantissa below,
WHOLE = np.float64(2.0**52).view(np.uint64)  # and of a number to which small integers are added


@compiled_kernel("contract", inline=True)  # the order of operations matters in it
def exp(x: float) -> float:
    """``e^x = 2^n e^r`` with |r| <= log(2)/2."""
    within = LOWEST if x < LOWEST else HIGHEST if x > HIGHEST else x
    rounded = within * LOG2_E + ROUNDER
    n = rounded - ROUNDER
    r = (within - n * LN2_HIGH) - n * LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    p = (1.0 + r) + r2 * (0.5000000000000019 + 0.1666666666666668 * r)
    q = (0.04166666666648795 + 0.008333333333319589 * r) + r2 * (
        0.0013888888952352863 + 0.00019841269890076403 * r
    )
    last = (2.4801485441561313e-05 + 2.755724088722987e-06 * r) + r2 * (
        2.763265472252779e-07 + 2.5110049204818658e-08 * r
    )
    p += r4 * (q + r4 * last)
    # The lowest bits of the rounded sum are n: moved into the exponent they make the power, without
    # a conversion to an integer, which few machines have for vectors.
    power = np.uint64((np.float64(rounded).view(np.uint64) << EXPONENT) + ONE).view(np.float64)
    return np.inf if x > HIGHEST else p * power


@compiled_kernel("contract", inline=True)
def log1p(x: float) -> float:
    """``log(1 + x) = n log(2) + 2 atanh(f / (2 + f))`` with 1 + f from sqrt(1/2) to sqrt(2); for
    x <= -1 it is -inf."""
    y = 1.0 + x
    bits = np.uint64(np.float64(y).view(np.uint64) - HALF_SQRT2 + ONE)
    m = np.uint64((bits & MANTISSA) + HALF_SQRT2).view(np.float64)
    n = np.uint64((bits >> EXPONENT) | WHOLE).view(np.float64) - (2.0**52 + 1023.0)
    f = x if n == 0.0 else m - 1.0  # of a small x no bit is lost
    s = f / (2.0 + f)
    t = s * s
    t2 = t * t
    p = (1.0 + 0.33333333333333826 * t) + t2 * (0.19999999999649035 + 0.1428571438080474 * t)
    q = (0.11111098476681508 + 0.0909181864974045 * t) + t2 * (
        0.0765618886791573 + 0.07405641283874514 * t
    )
    found: float = n * LN2_HIGH + (2.0 * s * (p + t2 * t2 * q) + n * LN2_LOW)
    found = found if y < np.inf else y
    return -np.inf if y <= 0.0 else found
