"""Self-scaled Broyden methods with the whole matrix: for functions whose gradients are dear."""

from __future__ import annotations

import dataclasses

from momentous.core.machine import Machine
from momentous.methods.checks import check
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.dense import Dense
from momentous.methods.classical.lbfgs import LBFGS, QuasiNewton
from momentous.methods.classical.self_scaling import UPDATES, SelfScaling


@dataclasses.dataclass(frozen=True)
class SelfScaledBroyden(QuasiNewton):
    """Self-scaled Broyden's method with the whole matrix H (Al-Baali [1]_, Urban et al. [2]_).

    The direction is -H g, and the line search is that of `LBFGS`.  With a step s, the change y of
    the gradient along it, b = <s, Bs>/<s, y> and h = <y, Hy>/<s, y>, B the inverse of H,

        H+ = (1/tau) (H - Hy (Hy)'/<y, Hy> + phi v v') + s s'/<s, y>,
        v = sqrt(<y, Hy>) (s/<s, y> - Hy/<y, Hy>).

    SSBFGS has tau = min(1, 1/b) and phi = 1, BFGS tau = phi = 1.  SSBroyden chooses both by b and
    h.  The first pair scales the unit matrix to <s, y>/<y, y>.

    On physics-informed networks and other small networks it reaches losses that are orders of
    magnitude below those of `LBFGS` after as many gradients.  It keeps n^2 numbers, in double
    precision whatever the precision of x (in JAX, if double precision is switched on), reads
    them once and changes them once per iteration: with n = 12,737 that is 1.3 GB.

    After a failed search H is kept for one step along the gradient; after a second one in a row its
    scale is corrected by such a step, and only after a third it begins anew.

    In a box (``bounds=``) pairs of steps that end at a bound are those of plain BFGS, and with a
    simple term (``penalty=``) all pairs.  Variables that are spread over ranks are refused.

    No guarantee for nonconvex functions: ``Safeguarded(SelfScaledBroyden())`` has one, and is what
    "auto" is in `momentous.torch`.

    Parameters
    ----------
    update : str
        "ssbroyden", "ssbfgs" or "bfgs".
    plain_pairs : int
        So many pairs at the beginning, and after a new one, are those of BFGS: scaling only lets H
        grow, and a start whose scale is poor has to be mended before.
    max_trials : int
        The most trials of a line search.
    sufficient_decrease, curvature : float
        c1 and c2 of the weak Wolfe conditions, 0 < c1 < c2 < 1 and c1 < 1/2.

    References
    ----------
    .. [1] M. Al-Baali, E. Spedicato, F. Maggioni, "Broyden's Quasi-Newton Methods for a Nonlinear
       System of Equations and Unconstrained Optimization: a Review and Open Problems", Optim.
       Methods Softw. 29 (2014).
    .. [2] J. F. Urban, P. Stefanou, J. A. Pons, "Unveiling the Optimization Process of Physics
       Informed Neural Networks: How Accurate and Competitive Can PINNs Be?", J. Comput. Phys. 523
       (2025).
    """

    name = "ssbroyden"
    summary = "self-scaled Broyden's method with the whole matrix, for networks and PINNs"
    cost = "1 value and 1 gradient per trial (about 1), and two passes over n^2 numbers"

    update: str = "ssbroyden"
    plain_pairs: int = LBFGS_CONSTANTS.plain_pairs
    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    max_trials: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "update", self.update in UPDATES, f"must be one of {', '.join(UPDATES)}")
        whole = isinstance(self.plain_pairs, int) and self.plain_pairs >= 0
        check(self, "plain_pairs", whole, "must be a whole number >= 0")

    def _scaling(self) -> SelfScaling:
        return SelfScaling(self.update, self.plain_pairs)

    def _no_pairs(self, m: Machine) -> Dense:
        return Dense.unknown(m)


def fast_for_costly_gradients(dimension: int, nbytes: int, matrix_bytes: float) -> QuasiNewton:
    """What "auto" runs where a gradient costs many passes over its numbers: a function of these
    alone, so that runs can be had again."""
    c, plain = LBFGS_CONSTANTS, LBFGS()
    if dimension > c.matrix_dimension and matrix_bytes > 0:
        if 8 * dimension**2 <= matrix_bytes:
            return SelfScaledBroyden()
        if 2 * nbytes * c.self_scaled_memory <= c.long_memory_bytes:
            return LBFGS(memory=c.self_scaled_memory, scaling="self")
    return plain.for_costly_gradients(dimension, nbytes)
