"""Saddles and minima that are narrow, far from the origin, or both, made by a seed.

    python tests/certify/narrow_points.py 1000

counts what `certify` says of so many of each without `rho`, as they are and with one variable in
units of 1e-6 to 1e6.
"""

import collections
import math
import sys
from collections.abc import Iterable

import numpy as np

from momentous.certify import Verdict, certify

# Slopes along one direction, with f'' = 1 at 0 and nothing like it beyond a length of about 1.
SHAPES = {
    "gaussian": lambda t: t * np.exp(-t * t / 2.0),
    "cosine": np.sin,
    "tanh": np.tanh,
    "log": lambda t: t / (1.0 + t * t),
    "bowl": lambda t: t,
    # A dent in a bowl: seen from afar it curves the other way.
    "dent": lambda t: 2.0 * t * np.exp(-t * t / 2.0) - t,
}


def narrow_point(seed: int, sign: float, in_units: bool = False):
    """The slope of a function, a stationary point of it, and the smallest eigenvalue there.

    The width is from 1e-3 to 1e3, the distance from the origin up to 1e10 in all coordinates but
    one or, rotated, in all; 2 to 20 variables; ``sign`` is that of the eigenvalue of the narrow
    direction, the others are positive.  ``in_units``: one variable, any of them, is measured in
    units of 1e-6 to 1e6, which changes eigenvalues, but not their signs: the smallest is not
    known then, and infinity is returned.
    """
    rng = np.random.default_rng([seed, int(sign < 0)])
    d = int(rng.integers(2, 21))
    shape = SHAPES[sorted(SHAPES)[seed % len(SHAPES)]]
    width, offset = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-2, 10)
    others = 10.0 ** rng.uniform(-1, 1, d - 1)
    curvature = sign * 10.0 ** rng.uniform(-1, 1)
    centre = offset * rng.standard_normal(d)
    rotated = rng.random() < 0.5
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0] if rotated else np.eye(d)
    if not rotated:
        centre[0] = 0.0

    def slope(x):
        z = Q.T @ (x - centre)
        parts = np.concatenate([[curvature * width * shape(z[0] / width)], others * z[1:]])
        return 0.0, Q @ parts

    if not in_units:
        return slope, centre, min(curvature, others.min())
    units = np.ones(d)
    units[rng.integers(d)] = 10.0 ** rng.uniform(-6, 6)
    return lambda y: (0.0, units * slope(units * y)[1]), centre / units, math.inf


def verdicts(seeds: Iterable[int], sign: float, in_units: bool = False) -> collections.Counter:
    """How often each verdict is given, and how often an eigenvalue is below its lower bound."""
    seen = collections.Counter()
    for seed in seeds:
        slope, x, lowest = narrow_point(seed, sign, in_units)
        found = certify(slope, x, jac=True, eps=1e-6)
        seen[found.verdict] += 1
        settled = found.verdict in (Verdict.SECOND_ORDER, Verdict.SADDLE)
        seen["bound too high"] += int(settled and found.lower_bound > lowest)
    return seen


if __name__ == "__main__":
    count = int(sys.argv[1])
    for in_units in (False, True):
        for sign, name in ((-1.0, "saddles"), (1.0, "minima")):
            words = ", one variable in other units" if in_units else ""
            seen = verdicts(range(count), sign, in_units)
            false = seen[Verdict.SECOND_ORDER if sign < 0.0 else Verdict.SADDLE]
            print(f"{count} {name}{words}: {false} false;", dict(seen))
