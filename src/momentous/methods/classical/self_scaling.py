"""Self-scaled quasi-Newton updates: by how much H grows before it takes a pair, and how it bends.

With s a step along -H g, y the change of the gradient, b = <s, Bs>/<s, y> and h = <y, Hy>/<s, y>,

    H+ = (1/tau) (H - Hy (Hy)'/<y, Hy> + phi v v') + s s'/<s, y>,
    v = sqrt(<y, Hy>) (s/<s, y> - Hy/<y, Hy>).

tau = phi = 1 is BFGS.  b > 1 says that B curves more along s than f does: then H is multiplied by
1/tau = b first (SSBFGS [1]_).  SSBroyden [2]_ takes another member of Broyden's family, too.

.. [1] M. Al-Baali, "Numerical experience with a class of self-scaling quasi-Newton algorithms",
   J. Optim. Theory Appl. 96 (1998); M. Al-Baali, H. Khalfan, "Wide interval for efficient
   self-scaling quasi-Newton algorithms", Optim. Methods Softw. 20 (2005).
.. [2] M. Al-Baali, E. Spedicato, F. Maggioni, "Broyden's quasi-Newton methods for a nonlinear
   system of equations and unconstrained optimization: a review and open problems", Optim. Methods
   Softw. 29 (2014); J. F. Urban, P. Stefanou, J. A. Pons, "Unveiling the optimization process of
   physics informed neural networks", J. Comput. Phys. 523 (2025).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from momentous.core.machine import Arithmetic, BoxMachine
from momentous.core.oracle import Sample
from momentous.core.space import Array
from momentous.methods.search.wolfe import Line

UPDATES = ("ssbroyden", "ssbfgs", "bfgs")
# What keeps H positive definite where rounding does not: of h b - 1 >= 0, and of tau and rho- > 0.
LEAST_ANGLE, LEAST_SCALE = 1e-12, 1e-10


@dataclasses.dataclass(frozen=True)
class SelfScaling:
    """An update of this family, after so many pairs of plain BFGS.

    Self-scaling only lets H grow.  A start whose scale is poor has to be mended before: from the
    first pair on, SSBroyden is at 571 on a stiff problem where it ends at 1e-4 after 50 plain pairs
    (benchmarks/networks.py has problems of this kind).
    """

    update: str
    plain_pairs: int

    def scales(self, m: Any, count: Any, is_newton: Any) -> Any:
        """Is this a pair to scale by?  ``count`` are those before it; ``is_newton``: was its step
        one along -H g?"""
        if self.update == "bfgs" or m.penalty is not None:
            return False
        return is_newton & (count >= self.plain_pairs)

    def factors(self, m: Arithmetic, dimension: int, b: Any, h: Any) -> tuple[Any, Any]:
        """tau and phi."""
        b = m.where(b > 0.0, b, 1.0)
        most = m.minimum(1.0, 1.0 / b)
        if self.update != "ssbroyden":
            return m.maximum(most, LEAST_SCALE), 1.0
        a = m.maximum(h * b - 1.0, LEAST_ANGLE)
        low = m.minimum(1.0, h * (1.0 - m.sqrt(a / (1.0 + a))))  # rho-
        low = m.maximum(low, LEAST_SCALE)
        theta = m.minimum(1.0 / low, (1.0 - b) / b)
        theta = m.maximum((low - 1.0) / a, theta)
        sigma = m.maximum(1.0 + theta * a, LEAST_SCALE)
        width = m.power(sigma, 1.0 / (1.0 - dimension)) if dimension > 1 else 1.0
        grows = theta > 0.0
        shrunk = most * m.minimum(width, 1.0 / m.where(grows, theta, 1.0))
        tau = m.where(grows, shrunk, m.minimum(most * width, sigma))
        return m.maximum(tau, LEAST_SCALE), (1.0 - theta) / sigma


def is_newton(m: BoxMachine, here: Sample, line: Line) -> Any:
    """Is the direction -H g itself?  In a box where no variable ends at a bound: else the model has
    held some, or the step was cut off."""
    if m.box is None:
        return True
    box = m.box
    return m.dot(_at_bounds, line.direction, here.point, box.lower, box.upper) == 0.0


def _at_bounds(xp: Any, d: Array, x: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    ends = xp.astype((x + d <= lower) | (x + d >= upper), d.dtype)
    return ends, ends
