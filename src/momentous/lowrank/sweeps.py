"""Sweeps over both factors, alternately, as descent maps: least squares, and majorised logistic."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np

from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.plain_sweep import HalfStep, plain_half_step
from momentous.lowrank.ratings import Compressed, Floats, Ratings
from momentous.lowrank.start import balanced


class _Sweep:
    """What the two sweeps share: the objective that they lower, and half a sweep."""

    loss: Literal["squared", "logistic"]

    def __init__(
        self,
        ratings: Ratings,
        rank: int,
        ridge: float = 0.0,
        threads: int | None = None,
        dtype: Any = None,
        *,
        compiled: bool | None = None,
    ):
        # A sweep takes no notice of the balance of the factors; that can be had at the end.
        self.objective = LowRankObjective(
            ratings, rank, self.loss, 0.0, ridge, dtype, threads, compiled=compiled
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.objective!r}>"

    def _half(
        self, side: Compressed, fixed: Floats, current: Floats | None, ridge: float
    ) -> HalfStep:
        objective = self.objective
        if not objective.compiled:
            return plain_half_step(side, fixed, current, ridge)
        kernels = import_module("momentous.lowrank.sweep_kernels")
        half: HalfStep = kernels.compiled_half_step(side, fixed, current, ridge, objective.threads)
        return half

    def _factor(self, factor: Any, name: Literal["U", "V"]) -> Floats:
        checked: Floats = np.ascontiguousarray(factor, self.objective.dtype)
        shape = (self.objective.ratings.shape["UV".index(name)], self.objective.rank)
        if checked.shape != shape:
            raise ValueError(f"{name} must be of shape {shape}, not {checked.shape}")
        return checked


class ALSSweep(_Sweep):
    """Alternating least squares, V -> V*(U*(V)): a descent map for the squared loss.

    U*(V) minimises F(., V) = (1/2N) (sum_{ij} (u_i.v_j - X_ij)^2 + ridge (|U|^2 + |V|^2)): one
    r x r system for every row; V*(U) likewise.  One factor is a function of the other here, so
    only one is the state and carries momentum.  The value comes for free: with b_i the right-hand
    sides, F(U*(V), V) = (|X|^2 - sum_i b_i.u_i + ridge |V|^2)/(2N).

    Which factor is the state makes no difference to the plain iteration, but it does to the
    accelerated one: rows that hardly more entries than unknowns determine jump from sweep to
    sweep, and momentum must not follow them.  On the MovieLens-1M twin, where users have 20
    ratings or more and some items have one, U as the state halves the number of sweeps
    (`benchmarks/sweeps.py`).

    Where a row has fewer entries than the rank and there is no ridge, the shortest of its many
    solutions is taken; a row without entries is zero.  Sums are in double precision.

    Parameters
    ----------
    ratings : Ratings
    rank : int
    ridge : float
        Weight of the squared factors.
    threads : int, optional
        By default as many as this process may use; the result does not depend on it.
    dtype : float32 or float64, optional
        What the factors are stored in; by default that of the ratings.
    state : "U" or "V", optional
        The factor that is the state.  By default the one with fewer rows of less than 2 r entries;
        of equals the smaller factor.
    compiled : bool, optional
        By numba where it is installed; False: by NumPy and SciPy, in one thread.

    Attributes
    ----------
    objective : LowRankObjective
        F, as a function of x = (U, V).
    state : "U" or "V"

    References
    ----------
    .. [1] Y. Koren, R. Bell, C. Volinsky, "Matrix factorization techniques for recommender
       systems", Computer 42 (2009).

    Examples
    --------
    >>> from momentous import accelerate
    >>> from momentous.lowrank import Ratings
    >>> from momentous.lowrank.sweeps import ALSSweep
    >>> ratings = Ratings([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [1.0, 2.0, 2.0, 4.0, 3.0])
    >>> sweep = ALSSweep(ratings, rank=1)
    >>> result = accelerate(sweep, sweep.start(), value=True)
    >>> U, V = sweep.factors(result.x)
    >>> float((U @ V.T)[2, 1].round(4))
    6.0
    """

    loss = "squared"

    def __init__(
        self,
        ratings: Ratings,
        rank: int,
        ridge: float = 0.0,
        threads: int | None = None,
        dtype: Any = None,
        *,
        state: Literal["U", "V"] | None = None,
        compiled: bool | None = None,
    ):
        super().__init__(ratings, rank, ridge, threads, dtype, compiled=compiled)
        if state not in ("U", "V", None):
            raise ValueError(f"state={state!r} must be 'U', 'V' or None")
        self.state: Literal["U", "V"] = state or self._better_determined()
        values = self.objective.ratings.values
        self._square = float(np.sum(np.square(values, dtype=np.float64)))

    def _better_determined(self) -> Literal["U", "V"]:
        ratings, few = self.objective.ratings, 2 * self.objective.rank
        jumping = [
            int(np.count_nonzero(np.diff(side.starts) < few))
            for side in (ratings.by_row, ratings.by_col)
        ]
        if jumping[0] != jumping[1]:
            return "U" if jumping[0] < jumping[1] else "V"
        return "U" if ratings.shape[0] < ratings.shape[1] else "V"

    def __call__(self, factor: Any) -> tuple[Floats, float]:
        """The map, for ``accelerate(..., value=True)``: the state after a sweep, and F before it.

        F is taken at the state that is given and the best other factor for it.
        """
        other, value = self.columns(factor) if self.state == "U" else self.rows(factor)
        return (self.rows(other) if self.state == "U" else self.columns(other))[0], value

    def start(self) -> Floats:
        """V of the truncated SVD; where U is the state, U*(V) for it."""
        V = self.objective.split(self.objective.start())[1].copy()
        return V if self.state == "V" else self.rows(V)[0]

    def rows(self, V: Any) -> tuple[Floats, float]:
        """U*(V) and F there."""
        return self._solved(self.objective.ratings.by_row, self._factor(V, "V"))

    def columns(self, U: Any) -> tuple[Floats, float]:
        """V*(U) and F there."""
        return self._solved(self.objective.ratings.by_col, self._factor(U, "U"))

    def factors(self, factor: Any) -> tuple[Floats, Floats]:
        """(U, V), balanced, of a state.

        (Balanced in between, they would turn under the momentum, which would then lead nowhere.)
        """
        if self.state == "U":
            return balanced(self._factor(factor, "U"), self.columns(factor)[0])
        return balanced(self.rows(factor)[0], self._factor(factor, "V"))

    def _solved(self, side: Compressed, fixed: Floats) -> tuple[Floats, float]:
        ridge, count = self.objective.ridge, self.objective.ratings.nnz
        half = self._half(side, fixed, None, ridge)
        penalty = ridge * float(np.sum(np.square(fixed, dtype=np.float64))) if ridge else 0.0
        return half.factor, (self._square - half.explained + penalty) / (2 * count)


class MMSweep(_Sweep):
    """Majorise-minimise for the logistic loss: x = (U, V) -> both factors solved for in turn.

    F(U, V) = (1/N) sum_{ij} log(1 + exp(-y_ij u_i.v_j)) + (ridge/2N) (|U|^2 + |V|^2).  The loss
    has curvature at most 1/4, so at the prediction z the parabola (1/8)(. - t)^2 with
    t = z + 4 y sigmoid(-y z) lies above it, up to a constant (Boehning & Lindsay [1]_).  A half
    step is one of least squares with these targets: for U at (U, V), then for V at the new U.  So
    the state, and the momentum, is in both factors; F at x falls out of the first half step.

    Parameters
    ----------
    ratings : Ratings
        Labels +1 and -1, as ``ratings.signs()`` makes them.
    rank, ridge, threads, dtype, compiled
        As for :class:`ALSSweep`.

    References
    ----------
    .. [1] D. Boehning, B. Lindsay, "Monotonicity of quadratic-approximation algorithms", Ann. Inst.
       Statist. Math. 40 (1988).
    """

    loss = "logistic"

    def __call__(self, x: Any) -> tuple[Floats, float]:
        """(both factors after a sweep, F(x)): the map, for ``accelerate(..., value=True)``."""
        U, V = self.objective.split(x)
        U_next, value = self.rows(U, V)
        return self.objective.join(U_next, self.columns(U_next, V)[0]), value

    def start(self) -> Floats:
        """The balanced factors of the truncated SVD of the labels."""
        return self.objective.start()

    def rows(self, U: Any, V: Any) -> tuple[Floats, float]:
        """U after half a step from (U, V), and F(U, V) before it."""
        U, V = self._factor(U, "U"), self._factor(V, "V")
        return self._solved(self.objective.ratings.by_row, U, V)

    def columns(self, U: Any, V: Any) -> tuple[Floats, float]:
        """V after half a step from (U, V), and F(U, V) before it."""
        U, V = self._factor(U, "U"), self._factor(V, "V")
        return self._solved(self.objective.ratings.by_col, V, U)

    def factors(self, x: Any) -> tuple[Floats, Floats]:
        """The balanced factors of U V'."""
        return balanced(*self.objective.split(x))

    def _solved(self, side: Compressed, current: Floats, fixed: Floats) -> tuple[Floats, float]:
        ridge, count = self.objective.ridge, self.objective.ratings.nnz
        # (1/8) sum (u.v - t)^2 + (ridge/2) |u|^2, times 8.
        half = self._half(side, fixed, current, 4.0 * ridge)
        penalty = 0.0
        if ridge:
            squares = (np.sum(np.square(factor, dtype=np.float64)) for factor in (current, fixed))
            penalty = 0.5 * ridge * float(sum(squares))
        return half.factor, (half.losses + penalty) / count
