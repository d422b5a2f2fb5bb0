"""Problems with bounds that the tests of bounds share."""

import itertools
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

TAKE_BOUNDS = ("auto", "lbfgs", "ssbroyden", "gd", "ada-ragd", "ada-rhb")


@dataclass
class Boxed:
    """f = x'Qx/2 + c'x + a sum cos x in any library, in a box; it counts points outside."""

    Q: Any
    c: Any
    waves: float
    lower: Any
    upper: Any
    start: Any
    calls: int = 0
    outside: int = 0

    def both(self, x):
        xp = array_api_compat.array_namespace(x)
        Q, c = (xp.asarray(a, dtype=x.dtype) for a in (self.Q, self.c))
        self.calls += 1
        host = np.asarray(x, dtype=np.float64)
        inside = (host >= self.lower) & (host <= self.upper)
        self.outside += not inside.all()
        product = xp.matmul(Q, x)
        value = xp.sum(product * x) / 2 + xp.sum(c * x) + self.waves * xp.sum(xp.cos(x))
        return value, product + c - self.waves * xp.sin(x)

    def value(self, x):
        return self.both(x)[0]

    @property
    def bounds(self):
        return list(zip(self.lower, self.upper, strict=True))

    def stationarity(self, x):
        """The largest entry of x - P(x - g), in extended precision."""
        x, Q = np.asarray(x, np.longdouble), self.Q.astype(np.longdouble)
        g = Q @ x + self.c - self.waves * np.sin(x)
        return float(np.max(np.abs(x - np.clip(x - g, self.lower, self.upper)), initial=0.0))


def random_box(seed, most=12, waves=True):
    """A nonconvex function in a box with sides from 1e-8 to infinity, and some fixed variables."""
    r = np.random.default_rng(seed)
    d = int(r.integers(1, most + 1))
    A = r.standard_normal((d, d))
    Q = A @ A.T / d + 0.1 * np.eye(d)
    if waves and r.random() < 0.5:
        Q = (A + A.T) / 2 + (1.0 - np.linalg.eigvalsh((A + A.T) / 2)[0]) * np.eye(d)
    center, side = r.standard_normal(d), 10.0 ** r.uniform(-8, 1, d)
    lower, upper = center - side * r.random(d), center + side * r.random(d)
    kind = r.random(d)
    lower[kind < 0.25] = -np.inf
    upper[(kind > 0.15) & (kind < 0.4)] = np.inf
    fixed = kind > 0.93
    lower[fixed] = upper[fixed] = center[fixed]
    start = np.clip(center + r.standard_normal(d), lower, upper)
    if r.random() < 0.3:  # a corner
        start = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, start))
    c = 2.0 * r.standard_normal(d)
    return Boxed(Q, c, float(3.0 * r.random() * waves), lower, upper, start)


def solved_by_faces(problem):
    """The least value of a convex quadratic in a box: of all faces whose minimum is inside."""
    Q, c, low, up = problem.Q, problem.c, problem.lower, problem.upper
    best = np.inf
    sides = [
        [0] + [-1] * int(np.isfinite(a)) + [1] * int(np.isfinite(b))
        for a, b in zip(low, up, strict=True)
    ]
    for face in itertools.product(*sides):
        face = np.array(face)
        x, free = np.where(face < 0, low, np.where(face > 0, up, 0.0)), face == 0
        rhs = -c[free] - Q[np.ix_(free, ~free)] @ x[~free]
        x[free] = np.linalg.solve(Q[np.ix_(free, free)], rhs)
        if (x >= low - 1e-12).all() and (x <= up + 1e-12).all():
            best = min(best, x @ Q @ x / 2 + c @ x)
    return best
