"""Fits with learned priors: half sweeps for means, variances and priors, and the free energy.

See `momentous.lowrank.priors` for what is learned.  With N entries (or the sum of their weights),
noise of variance s, and ``p_ik = prior_k c_i^g``, every half sweep lowers the free energy

    ``N/2 log(2 pi s) + E/(2 s) + 1/2 sum over rows with entries, features of
    (p_ik (u_ik^2 + S_ik) - log(p_ik S_ik) - 1)``

where E is the expected sum of squared errors, ``residual^2 + sum_k (u_ik^2 S_jk + S_ik v_jk^2 +
S_ik S_jk)`` and the variances of both biases, summed over the entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.api import accelerate
from momentous.core.loop import IntermediateResult
from momentous.core.result import Result
from momentous.core.status import Ending, Status
from momentous.core.stopping import Criterion, Progress
from momentous.io.types import Matrix
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.objective import COLS, ROWS, LowRankObjective
from momentous.lowrank.priors import (
    LearnedPriors,
    PartnerSums,
    PredictionVariance,
    calibration_of,
    growth_of,
    precisions,
)

# Sweeps with a fixed ridge before the first prior: from random factors all features die.
PLAIN_SWEEPS = 5
# kappa: so much of a feature's variance enters its first prior.  With 1 features of sparse data
# overfit, with 0 too many of others die; the more features there are, the less of each: 0.1 up to
# rank 64, then 6.4 over the rank (benchmarks/held_out.py --real).  A bias counts whole.
FIRST_SHARE, SHARED = 0.1, 6.4
# The first noise, relative to the mean squared residual: entries are fitted better than others.
FIRST_NOISE = 1.1
# The noise rises as features shrink to what is certain of them.  A fit ends when it rises by no
# more than so many `tol` in each of two sweeps, but not before so many sweeps: from then on
# features take up noise, and while the free energy still falls, errors on other entries rise.
SETTLED, LEAST_SWEEPS = 20.0, 10
CALIBRATED = 20_000  # entries that the standard deviations of predictions are calibrated on
TINY = 1e-300
COUNT = 2.0**-30  # of a sweep in x, whose changes are reported


class Learned(NamedTuple):
    """A point of a fit with learned priors."""

    means: tuple[Floats, Floats]  # the parameters (P, Q)
    variances: tuple[Floats, Floats]
    priors: tuple[Matrix, Matrix]  # of rows and columns, as NumPy arrays: one per parameter
    noises: tuple[float, float, float]  # now, and before each of the last two sweeps
    error: float  # E/N
    sweeps: int = 0  # that led here


class FreeEnergy(LowRankObjective):
    """The objective of fits with learned priors, per entry.

    A point x is one flat vector: the parameters (P, Q) as of a `LowRankObjective`, their variances,
    the logarithms of noises, error and priors, and the number of sweeps.  On ranks each has the
    parts of its rows and columns, and all of the numbers that follow.  A half sweep over rows sends
    two numbers more per parameter of a column (all_gather), and one over columns three more
    (reduce_scatter of the sums, all_gather of the ridges).

    Parameters
    ----------
    fixed : LowRankObjective
        Of the squared loss, with the ridge to begin with.
    """

    def __init__(self, fixed: LowRankObjective):
        self.__dict__.update(fixed.__dict__)  # the entries are shared
        self.fixed = fixed
        biases, (low, high) = self.penalty.biases, self.ratings.whole.value_range
        self._held = (biases and not self.penalty.row_biases, False)
        # A share of what is fitted, or the rounding of the ratings.
        largest = max(abs(low), abs(high)) or 1.0
        spread, rounding = max(high - self.mean, self.mean - low), float(np.finfo(self.dtype).eps)
        self._least_noise = rounding * max(spread**2, rounding * largest**2)

    @property
    def dimension(self) -> int:
        """Length of x."""
        return 2 * self.fixed.dimension + 5 + 2 * self.width

    def _parts(self, x: Floats) -> tuple[Floats, Floats]:
        return self.fixed._parts(x[: self.fixed.dimension])

    # --- points -----------------------------------------------------------------------------------

    def join(self, P: ArrayLike, Q: ArrayLike) -> Floats:
        """The point of ``fixed`` that has these parameters: of starts, which have no variances."""
        return self.fixed.join(P, Q)

    def pack(self, point: Learned) -> Floats:
        """The flat vector."""
        xp, limits = self.backend.xp, np.finfo(self.dtype)
        numbers = np.concatenate([point.noises, [point.error], *point.priors])
        tail = np.log(np.clip(numbers, float(limits.tiny), float(limits.max) ** 0.75))
        tail = np.append(tail, COUNT * point.sweeps)
        parts = [each.ravel() for each in (*point.means, *point.variances)]
        x: Floats = xp.concatenate([*parts, xp.asarray(tail.astype(self.dtype))])
        return x

    def unpack(self, x: ArrayLike) -> Learned:
        """The point that a flat vector stands for."""
        flat, end = self._check_point(x), 2 * self.fixed.dimension
        means, variances = self._parts(flat), self._parts(flat[self.fixed.dimension : end])
        tail = np.asarray(self.backend.to_host(flat[end:]), np.float64)
        noises, error, priors = np.split(np.exp(tail[:-1]), [3, 4])
        now, before, first = noises.tolist()
        both = priors[: self.width], priors[self.width :]
        return Learned(
            means, variances, both, (now, before, first), error.item(), round(tail[-1] / COUNT)
        )

    def value(self, x: ArrayLike, *, balance: float | None = None) -> float:
        """The free energy at x, per entry."""
        point = self.unpack(x)
        total = sum(self._divergence(point, which) for which in (ROWS, COLS))
        noise = point.noises[0]
        spread = math.log(2.0 * math.pi * noise) + point.error / noise
        return 0.5 * (spread + self.ranks.sum(total) / self.weight)

    def _divergence(self, point: Learned, which: int) -> float:
        """The sum of ``p (u^2 + S) - log(p S) - 1`` over this rank's part of a side."""
        xp, there, free = self.backend.xp, self._with_entries[which], self._free(which)
        growth = self._growth(which)[there]
        prior, S = point.priors[which][:free], point.variances[which][there, :free]
        sums = self._growing_sums(which, point.means[which], point.variances[which])[:free]
        logarithms = float(xp.sum(xp.log(S), dtype=np.float64))
        logarithms += self.rank * float(xp.log(growth).sum()) + len(S) * float(np.log(prior).sum())
        return float(prior @ sums) - logarithms - free * len(S)

    def _free(self, which: int) -> int:
        """The parameters of a row that are not held."""
        return self.width - self._held[which]

    @cached_property
    def _with_entries(self) -> list[Any]:
        """The rows and the columns that have entries, as indices."""
        flags = [counts > 0 for counts in self._counts_on_device]
        return [slice(None) if bool(each.all()) else each for each in flags]

    def _precision(self, which: int, prior: Matrix) -> Matrix:
        xp, counts = self.backend.xp, self._counts_on_device[which]
        # On a device all that is as large as a factor is in its precision: it takes as long as it
        # has bytes.
        dtype = np.float64 if xp is np else self.dtype
        return precisions(xp.asarray(prior, dtype), counts.astype(dtype), self.penalty.biases)

    def _growth(self, which: int) -> Matrix:
        return growth_of(self._counts_on_device[which])

    def _growing_sums(self, which: int, means: Floats, variances: Floats) -> Matrix:
        """The sum of ``c^g (u^2 + S)`` over this rank's rows with entries, as a NumPy array."""
        there, squares = self._with_entries[which], means * means
        squares += variances
        squares = squares[there].astype(np.float64, copy=False)
        sums = self._growth(which)[there] @ squares
        if self.penalty.biases:
            sums[-1] = squares[:, -1].sum()
        on_host: Matrix = np.asarray(self.backend.to_host(sums))
        return on_host

    # --- half a sweep -----------------------------------------------------------------------------

    def partner_sums(self, which: int, means: Floats, variances: Floats) -> PartnerSums:
        """Over the partners of the rows (0) or columns (1), given the other side's numbers."""
        xp, r, w = self.backend.xp, self.rank, self.width
        numbers = xp.hstack([variances, means])
        numbers[:, w:] *= means
        if w > r:  # the partner of a bias is 1, and certain
            numbers[:, r], numbers[:, -1] = 0.0, 1.0
        if which == ROWS and self.ranks.size > 1:
            numbers = self.ranks.all_gather(numbers, self.ranks.shares(self.ratings.shape[1]))
        sums = self.side(which).partner_sums(numbers)
        if which == COLS and self.ranks.size > 1:
            sums = self.ranks.reduce_scatter(xp.ascontiguousarray(sums))
        return PartnerSums(sums[:, :w], sums[:, w:])

    def half(
        self, point: Learned, which: int, steps: int | None = None
    ) -> tuple[Learned, PartnerSums]:
        """New means, variances and a new prior of the rows (0) or columns (1).

        Means are exact for the others, or after so many ``steps`` of conjugate gradients.
        """
        own, other, noise = point.means[which], point.means[1 - which], point.noises[0]
        sums = self.partner_sums(which, other, point.variances[1 - which])
        precision, held = self._precision(which, point.priors[which]), self._held[which]
        weights = sums.weights(noise, precision, held)
        squares = None
        if steps is not None:  # the mean of the entries' squares: that of the rows' sums
            total = self.backend.to_host(sums.squares.sum(axis=0, dtype=np.float64))
            squares = self.ranks.all_reduce(np.asarray(total)) / self.weight
        found, _ = self.solve_side(
            which,
            own if which == ROWS else self.gathered(own),
            other if which == COLS else self.gathered(other),
            weights.astype(self.dtype, copy=False),
            with_value=False,
            steps=steps,
            squares=squares,
        )
        variances = sums.own_variances(noise, weights, held).astype(self.dtype, copy=False)
        prior = self._prior(which, found, variances)
        if which == ROWS:
            means, both = (found, other), (variances, point.variances[COLS])
            priors = prior, point.priors[COLS]
        else:
            means, both = (other, found), (point.variances[ROWS], variances)
            priors = point.priors[ROWS], prior
        return point._replace(means=means, variances=both, priors=priors), sums

    def _prior(self, which: int, means: Floats, variances: Floats) -> NDArray[np.float64]:
        """1 over the mean of ``c^g (u^2 + S)``, over all rows with entries."""
        sums = self._growing_sums(which, means, variances)
        rows = float((self._counts_on_device[which] > 0).sum())
        *total, rows = self.ranks.all_reduce(np.append(sums, rows)).tolist()
        prior: NDArray[np.float64] = rows / np.maximum(total, TINY)
        if self._held[which]:
            prior[-1] = 1.0
        return prior

    def with_noise(self, point: Learned, which: int, sums: PartnerSums) -> Learned:
        """The best noise after half a sweep of a side, whose sums over partners are given."""
        error = self._error(point, which, sums)
        noises = max(error, self._least_noise), *point.noises[:2]
        return point._replace(noises=noises, error=error, sweeps=point.sweeps + 1)

    def _error(self, point: Learned, which: int, sums: PartnerSums) -> float:
        """E/N."""
        xp, u, S = self.backend.xp, point.means[which], point.variances[which]
        work = u * u
        work *= sums.variances
        total = xp.sum(work, dtype=np.float64)
        work = sums.variances + sums.squares
        work *= S
        total += xp.sum(work, dtype=np.float64)
        if self.penalty.biases:
            total += point.variances[1 - which][:, -1] @ self._counts_on_device[1 - which]
        own = 2.0 * self.losses(*point.means) + float(total)
        return self.ranks.sum(own) / self.weight

    # --- where to begin ---------------------------------------------------------------------------

    def begin(self, x: Floats) -> Floats:
        """The point for parameters that were fitted with the fixed ridge, as ``fixed`` has them.

        Principal axes, sides of rows of equal size, and the first prior.
        """
        r, (P, Q) = self.rank, self.fixed.factors(x)
        m, n = self.ratings.whole.shape
        U, V = self.balanced(P[:, :r], Q[:, :r])
        scale = (m / n) ** 0.25
        P[:, :r], Q[:, :r] = U * scale, V / scale
        asarray = self.backend.asarray
        means = asarray(P, self.dtype), asarray(Q[self.items], self.dtype)
        residual = 2.0 * self.ranks.sum(self.losses(*means)) / self.weight
        noise = max(FIRST_NOISE * residual, self._least_noise)
        share = np.append(np.full(r, min(FIRST_SHARE, SHARED / r)), np.ones(self.width - r))
        shares = self.backend.xp.asarray(share)

        def first(which: int) -> tuple[Floats, Matrix]:
            nothing = self.backend.xp.zeros_like(means[1 - which])
            squares = self.partner_sums(which, means[1 - which], nothing)
            held, fixed = self._held[which], self.fixed.weights[which].astype(np.float64)
            before = squares.own_variances(noise, fixed, held)
            prior = self._prior(which, means[which], shares * before)
            weights = squares.weights(noise, self._precision(which, prior), held)
            return squares.own_variances(noise, weights, held).astype(self.dtype, copy=False), prior

        (S, row_prior), (T, col_prior) = first(ROWS), first(COLS)
        self.fixed.__dict__.pop("weights", None)  # as large as the factors, and not needed again
        return self.point_of(means, (S, T), (row_prior, col_prior), noise)

    def point_of(
        self,
        means: tuple[Floats, Floats],
        variances: tuple[Floats, Floats],
        priors: tuple[Matrix, Matrix],
        noise: float,
    ) -> Floats:
        """The flat vector of these; the error is computed."""
        point = Learned(means, variances, priors, (noise, noise, noise), 0.0)
        sums = self.partner_sums(COLS, means[ROWS], variances[ROWS])
        return self.pack(point._replace(error=self._error(point, COLS, sums)))

    def point_of_model(self, x: Floats, learned: LearnedPriors) -> Floats:
        """The flat vector for parameters as ``fixed`` has them, and what is known of them."""
        rows, cols = (self.backend.asarray(each, self.dtype) for each in learned.variances)
        return self.point_of(self.fixed.split(x), (rows, cols), learned.priors, learned.noise)

    # --- what a model keeps -----------------------------------------------------------------------

    def learned_priors(self, x: Floats) -> LearnedPriors:
        """With NumPy arrays; on ranks those of this rank's rows and of all columns."""
        point, to_host, ranks = self.unpack(x), self.backend.to_host, self.ranks
        cols = point.variances[COLS]
        if ranks.size > 1:
            shares = ranks.shares(self.ratings.shape[1])
            cols = ranks.all_gather(self.backend.xp.ascontiguousarray(cols), shares)
        variances = np.array(to_host(point.variances[ROWS])), np.array(to_host(cols))
        biases = self.penalty.biases, self.penalty.row_biases
        found = LearnedPriors(point.noises[0], point.priors, variances, *biases)
        return found._replace(calibration=self._calibration(found, *self.factors(x)))

    def _calibration(self, found: LearnedPriors, P: Floats, Q: Floats) -> float:
        """On some of the entries of each rank, evenly spread."""
        ratings, count = self.ratings, self.ratings.nnz
        some = np.unique(np.linspace(0, count - 1, min(count, CALIBRATED)).astype(np.int64))
        rows = np.searchsorted(ratings.by_row.starts, some, side="right") - 1
        cols, values = ratings.cols[some], ratings.values[some].astype(np.float64)
        r, (S, T) = self.rank, found.variances
        u, v = (side[at].astype(np.float64) for side, at in ((P, rows), (Q, cols)))
        residuals = values - self.mean - np.einsum("ij,ij->i", u[:, :r], v[:, :r])
        if found.biases:
            residuals -= u[:, -1] + v[:, -1]
        variance = PredictionVariance.at((u, S[rows]), (v, T[cols]), found.biases)
        limits = ratings.whole.value_range
        weights = 1.0 if ratings.weights is None else ratings.weights[some].astype(np.float64)
        errors = variance.standardised_errors(residuals, values, found.noise, limits, weights)
        return calibration_of(self.ranks.all_gather(errors))


class LearnedSweep:
    """One sweep as a descent map: rows, columns, noise; x and images are points of a `FreeEnergy`.

    There is no momentum: the free energy falls for longer than predictions get better, so what
    would make it fall faster does not pay.

    Parameters
    ----------
    objective : FreeEnergy
    steps : int, optional
        Of conjugate gradients per row; by default rows are solved exactly.
    """

    def __init__(self, objective: FreeEnergy, steps: int | None = None):
        self.objective, self.steps = objective, steps
        self.last: Learned | None = None  # the point that the last sweep began at

    def __call__(self, x: Floats) -> tuple[Floats, float]:
        """(the next point, the free energy at this one), for ``accelerate(..., value=True)``."""
        objective = self.objective
        self.last = point = objective.unpack(x)
        for which in (ROWS, COLS):
            point, sums = objective.half(point, which, self.steps)
        return objective.pack(objective.with_noise(point, COLS, sums)), objective.value(x)

    def run(
        self,
        x: Floats,
        tol: float,
        callback: Callable[[IntermediateResult], object],
        **options: Any,
    ) -> tuple[Floats, Result]:
        """Sweeps from a point, until the noise has settled: the last point, and the result."""
        result = accelerate(
            self,
            x,
            value=True,
            tol=0.0,
            restart="always",
            secants=0,
            stop=Settled(SETTLED * tol, self),
            callback=callback,
            ranks=self.objective.layout,
            interrupts="return",
            **options,
        )
        return result.x if result.image is None else result.image, result


@dataclass(frozen=True)
class Settled(Criterion):
    """After some sweeps, the last two raised the noise by no more than this each, relatively."""

    tol: float
    sweep: LearnedSweep = field(repr=False)  # whose points know the noise

    def check(self, progress: Progress) -> Ending | None:
        last = self.sweep.last
        if last is None or last.sweeps < LEAST_SWEEPS:
            return None
        now, before, first = last.noises
        rises = now - before, before - first
        if not (self.tol > 0.0 and max(rises) <= self.tol * now):
            return None
        message = (
            f"two sweeps raised the variance of the noise, {now:.4g}, by no more than "
            f"{self.tol:.2g} each, relatively"
        )
        return Ending(Status.CONVERGED, message, {"noise": now, "tol": self.tol})
