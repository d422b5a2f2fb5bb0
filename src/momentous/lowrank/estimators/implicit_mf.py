"""Implicit feedback: who used what, and how often, turned into recommendations."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from momentous.lowrank.data.ids import require_unmasked
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import Pairs, count_pairs
from momentous.lowrank.estimators.base import BaseCompletion, Weights, holds_values
from momentous.lowrank.losses import Implicit
from momentous.lowrank.losses.implicit import ALPHA


@dataclass(eq=False, repr=False)
class ImplicitMF(BaseCompletion):
    """Scores from pairs of ids that were seen together: confidence-weighted squares [1]_.

    Minimised is ``sum c_ij (p_ij - u_i . v_j)^2 + ridge (|U|^2 + |V|^2)`` over all pairs, with
    p = 1 and ``c = 1 + alpha y`` where something was observed, and p = 0 and c = 1 elsewhere.  A
    sweep costs one pass over the observed pairs and one small system per row; it is accelerated by
    restarted momentum like those of the other estimators.

    X as for `MatrixCompletion`; y are counts, durations, or ratings of 0 or more; without y every
    time that a pair comes counts 1.  A ``sample_weight`` multiplies what an observation counts:
    ``c = 1 + alpha weight y``.  A pair of weight 0 has been observed still, with the confidence of
    a pair that has not.

    Parameters
    ----------
    rank : int
        Number of factors (r).
    alpha : float
        How much more an observation counts than its absence.
    ridge : float, optional
        Weight of the squared factors; by default 20 times the mean of ``alpha y``.
    weighting : float, optional
        The ridge of a row with c entries is ``ridge * c ** weighting``; by default 0.
    unobserved_weight : float, optional
        iALS as published [2]_, with this weight a0 of all pairs, observed or not: minimised is
        ``sum_S (z - 1)^2 + a0 sum z^2 + ridge sum_i (c_i + a0 n)^weighting |u_i|^2`` (and the same
        for columns), with z = u_i . v_j and S the observed pairs.  Then alpha is 1/a0; ridge and
        weighting are the paper's lambda and nu (1).  By default lambda is ``0.05 / (1 + a0/d)``,
        with d the share of all pairs that was observed: at the mean row that is a ridge of 0.05 per
        entry, whatever a0 is.  Factors are sqrt(1 + a0) times those of the paper, for scores near
        1 where something was observed.  The paper's runs
        are plain sweeps: ``solver="sweep", max_iterations=16, start_scale=0.1/sqrt(rank)``.
    solver, tol and all others
        As for `MatrixCompletion`; the held-out error is the root mean square of ``1 - score``.

    Attributes
    ----------
    objective_ : float
        The sum above over 2 N, N the number of observed pairs; the others as for
        `MatrixCompletion`.

    References
    ----------
    .. [1] Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit feedback datasets",
       ICDM 2008.
    .. [2] S. Rendle, W. Krichene, L. Zhang, Y. Koren, "Revisiting the performance of iALS on item
       recommendation benchmarks", RecSys 2022.

    Examples
    --------
    >>> from momentous.lowrank import ImplicitMF
    >>> plays = [["ann", "x"], ["ann", "y"], ["bob", "x"], ["bob", "y"], ["bob", "z"], ["eve", "w"]]
    >>> fitted = ImplicitMF(rank=2, ridge=0.1).fit(plays)
    >>> fitted.recommend("ann", n=1).items.tolist()
    ['z']
    >>> fitted.similar_items("x", n=1).ids.tolist()
    ['y']
    """

    _loss = "implicit"
    _least_weight = 0.0

    alpha: float = ALPHA
    ridge: float | Literal["path"] | None = None
    _: KW_ONLY
    weighting: float | None = None
    unobserved_weight: float | None = None

    def _loss_object(self) -> Implicit:
        weight = self.unobserved_weight
        if weight and self.alpha not in (ALPHA, 1.0 / weight):
            raise ValueError(
                f"alpha={self.alpha!r} and unobserved_weight={weight!r} say the same thing twice: "
                "the latter makes alpha 1/unobserved_weight; leave one of them out"
            )
        return Implicit(1.0 / weight if weight else self.alpha)

    def _ratings_of(self, X: Pairs, y: ArrayLike | None, weights: Weights = None) -> Ratings:
        if y is None and not holds_values(X):
            return count_pairs(X, weights, self.dtype)
        if weights is not None:
            y = weights * require_unmasked(y, "ratings", np.float64)
        return super()._ratings_of(X, y)
