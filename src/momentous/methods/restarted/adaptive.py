"""AdaRAGD and AdaRHB: the paper's adaptive radius where anything is given, the free one where
nothing is."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, ClassVar, Self

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.rule import Ask, Goal, Sums, Vectors
from momentous.core.status import Ending, Status
from momentous.methods.restarted.adaptive_radius import AdaptiveRadius
from momentous.methods.restarted.fixed_radius import HEAVY_BALL, NESTEROV
from momentous.methods.restarted.free_momentum import FreeHeavyBall, FreeNesterov
from momentous.methods.restarted.free_radius import FreeRadius
from momentous.methods.restarted.on_faces import OnFaces


@dataclasses.dataclass(frozen=True)
class Adaptive(AdaptiveRadius):
    """The paper's rule where any of its parameters is given, the free one where nothing is."""

    free: ClassVar[FreeRadius]
    takes_bounds = True

    by_paper: bool = False

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """The algorithm of the paper, also where nothing is given."""
        return cls(by_paper=True, **parameters)

    def in_box(self) -> OnFaces:
        return OnFaces(self)

    @property
    def is_free(self) -> bool:
        """Is nothing given?"""
        return all(getattr(self, f.name) == f.default for f in dataclasses.fields(self))

    @cached_property
    def _rule(self) -> Any:
        """The one that runs."""
        return self.free if self.is_free else super()

    def begin(self, m: Machine, here: Sample, goal: Goal) -> Any:
        return self._rule.begin(m, here, goal)

    def ask(self, m: Machine, memory: Any) -> Ask:
        return self._rule.ask(m, memory)  # type: ignore[no-any-return]

    def tell(self, m: Machine, memory: Any, here: Sample, made: Vectors, sums: Sums) -> Any:
        return self._rule.tell(m, memory, here, made, sums)

    def move(self, m: Machine, memory: Any, here: Sample, goal: Goal) -> Any:
        return self._rule.move(m, memory, here, goal)

    def ending(self, memory: Any, shown: Sample, status: Status) -> Ending:
        return self._rule.ending(memory, shown, status)  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class AdaRAGD(Adaptive):
    """Adaptively restarted accelerated gradient descent, Ada-RAGD-NC: Algorithm 2 of Li & Lin [1]_.

    :class:`RAGD` with a wide radius: an epoch ends when
    ``k * sum_{t<k} |x^{t+1} - x^t|^2 > max(B, B0)^2`` or k > K.  B0 starts large and shrinks by c0
    at every restart.  If the epoch did not lower f by gamma eps^(3/2)/sqrt(rho'), it is discarded:
    back to its start, B0 shrinks by c1 more, and (Remark 2) eta by c2 while rho' grows by c2^2,
    which leaves theta and K as they are.  Once B0 <= B the method is RAGD; the first epoch of K
    iterations without restart ends it, with the average or the last iterate as output.  One
    gradient per iteration, one value per restart.

    *Nothing given*: another radius, in which neither eps nor L nor rho stands.  An epoch with
    momentum k/(k + 1) ends when k^(5/2) rho' S^(1/2) > 64/eta, S the sum of the squared steps, or
    early, when a step leads uphill and the epoch has paid for itself.  docs/adaptive.md has the
    rules for eta and rho', and the proof: O(eps^(-2)) gradients with a constant made of the run's
    own steps, and O(eps^(-7/4)) where Q_+, the largest eta^2 rho' of the run, stays bounded as eps
    falls; that it does is not proven, nor is a bound on the steps before the run.  One gradient per
    iteration, one more whenever k has grown fourfold, one value per end of an epoch.
    Scaling f, or x where |x0| > 1, changes nothing.

    :meth:`paper` is Algorithm 2 even so: the step size comes from one extra gradient, eta = 1/L
    with L = |grad f(x0 - t g/|g|) - g|/t; theta = 0.01; eps = tol; rho' = theta^4/(eps eta^2);
    B0 = 100 |g| eta/theta; accepted restarts multiply eta by ``growth``; an epoch that completes
    above tol lowers eps to a tenth.  No theorem of the paper covers it: theirs have
    theta = 4 (eps rho eta^2)^(1/4), four times as large as this theta for this rho'.

    *L and rho given*: Theorem 2 as it stands, O(eps^(-7/4)) gradients, no growth, no backoff.

    *step_size, hessian_lipschitz (rho') and eps given*: Remark 2, with
    theta = min(0.01, (eps rho' eta^2)^(1/4)).  (The paper's experiments have ``initial_radius=100``
    and ``momentum=1 - 0.005 (eps rho' eta^2)^(1/4)``.)

    With bounds the method runs on faces of the box, and starts again where the face changes:
    `OnFaces` has what is proven of that.

    The decrease test knows rounding: where the required decrease is within a few units of rounding
    of f, and so is the change, it counts as a decrease if the gradient fell.

    Parameters
    ----------
    step_size, gradient_lipschitz : float, optional
        eta to begin with, or L for eta = 1/(4L).
    hessian_lipschitz : float, optional
        rho (with ``gradient_lipschitz``) or the initial guess rho'.
    eps : float, optional
        The eps of the theorem; by default tol (divided by 82 where L and rho are given).
    momentum, radius, epoch_length, initial_radius : optional
        1 - theta, B, K and B0 by hand.
    decrease : float
        gamma.
    radius_shrink, failure_shrink, backoff : float, optional
        c0 > 1, by default 1 + 0.001 t in epoch t, as in the paper's section 5.1; c1 >= c2; and c2
        of Remark 2, by default 2, and 1 (off) where L and rho are given.
    step_size_min, hessian_lipschitz_max : float
        Caps on eta and rho' in Remark 2.
    growth : float, optional
        Factor on eta at accepted restarts (1/growth^2 on rho'); by default 1.2 where the step size
        is found by the probe, otherwise 1.  Not in the paper.
    by_paper : bool
        Algorithm 2 even if nothing else is given; see :meth:`paper`.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "ada-ragd"
    summary = "restarted accelerated gradient descent, adaptive radius"
    guarantee = (
        "with L, rho: gradient of O(eps) in O(eps^-7/4) gradients [Thm 2]; "
        "with nothing: O(eps^-2), and O(eps^-7/4) where the run's Q_+ stays bounded"
    )
    cost = "1 gradient; 1 value per restart"
    scheme = NESTEROV
    free = FreeRadius(FreeNesterov())


@dataclasses.dataclass(frozen=True)
class AdaRHB(Adaptive):
    """Adaptively restarted heavy ball, Ada-RHB-NC: Algorithm 4 of Li & Lin [1]_.

    The heavy ball of :class:`momentous.RHB` under the rules of :class:`AdaRAGD`, whose parameters
    it shares; the decrease is tested at z^k, where the next epoch starts (Theorem 5).  One gradient
    per iteration, one value per restart.  With nothing given it has the rule of :class:`AdaRAGD`
    with nothing given, and starts epochs at x^k or, after a step that leads uphill, before it;
    :meth:`paper` is Algorithm 4 even so.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "ada-rhb"
    summary = "restarted heavy ball, adaptive radius"
    guarantee = (
        "with L, rho: gradient of O(eps) in O(eps^-7/4) gradients [Thm 5]; "
        "with nothing: O(eps^-2), and O(eps^-7/4) where the run's Q_+ stays bounded"
    )
    cost = "1 gradient; 1 value per restart"
    scheme = HEAVY_BALL
    free = FreeRadius(FreeHeavyBall())
