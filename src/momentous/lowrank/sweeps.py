"""Sweeps over both factors, alternately, as descent maps: least squares, and Newton for one bit."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from momentous.lowrank.data.ratings import Compressed, Floats, Ratings
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.row_solves import RowSolver
from momentous.lowrank.start import balanced

Factor = Literal["U", "V"]


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
        ratings = self.objective.ratings
        self._solvers: dict[Factor, RowSolver] = {
            "U": self._solver(ratings.by_row),
            "V": self._solver(ratings.by_col),
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.objective!r}>"

    def _solver(self, groups: Compressed) -> RowSolver:
        own = self.objective
        weights = np.full((groups.starts.size - 1, own.rank), own.ridge, own.dtype)
        return RowSolver(groups, weights, own.threads, own.compiled, self.loss)

    def _factor(self, factor: Any, name: Factor) -> Floats:
        checked: Floats = np.ascontiguousarray(factor, self.objective.dtype)
        shape = (self.objective.ratings.shape["UV".index(name)], self.objective.rank)
        if checked.shape != shape:
            raise ValueError(f"{name} must be of shape {shape}, not {checked.shape}")
        return checked

    def _value(self, told: float, *penalised: Floats) -> float:
        """F of a sum of losses, with the penalty of these factors."""
        ridge, count = self.objective.ridge, self.objective.ratings.nnz
        if ridge:
            squares = (np.sum(np.square(factor, dtype=np.float64)) for factor in penalised)
            told += 0.5 * ridge * float(sum(squares))
        return told / count


def better_determined(groups: tuple[Compressed, Compressed], rank: int) -> int:
    """The side, 0 or 1, with fewer rows of less than 2 r entries; of equals the smaller one."""
    few = [int(np.count_nonzero(np.diff(side.starts) < 2 * rank)) for side in groups]
    if few[0] == few[1]:
        few = [side.starts.size for side in groups]
    return 0 if few[0] < few[1] else 1


class ALSSweep(_Sweep):
    """Alternating least squares, x = (U, V) -> (U*(V), V*(U*(V))): a map for the squared loss.

    U*(V) minimises F(., V) = (1/2N) (sum_{ij} (u_i.v_j - X_ij)^2 + ridge (|U|^2 + |V|^2)): one
    r x r system for every row; V*(U) likewise.  The value that comes with the map is that of
    (U*(V), V), for free.

    U*(V) is a function of V, so it is V alone that carries momentum.  Where a row has fewer entries
    than the rank and there is no ridge, it is the shortest of its many solutions; where factors
    have become nearly dependent, rounding can make that one worse than the row of U in x, and then
    the row moves from there as little as possible.  So F does not rise, up to the rounding of its
    sums.

    Which factor comes first makes no difference to the plain iteration, but it does to the
    accelerated one: rows that hardly more entries than unknowns determine jump from sweep to
    sweep, and momentum must not follow them.  On the MovieLens-1M twin, where users have 20
    ratings or more and some items have one, momentum in U halves the number of sweeps
    (`benchmarks/sweeps.py`).

    A row without entries is zero.  Sums are in double precision.

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
        The factor that the other one is a function of, and that carries the momentum.  By default
        the one with fewer rows of less than 2 r entries; of equals the smaller factor.
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
        state: Factor | None = None,
        compiled: bool | None = None,
    ):
        super().__init__(ratings, rank, ridge, threads, dtype, compiled=compiled)
        if state not in ("U", "V", None):
            raise ValueError(f"state={state!r} must be 'U', 'V' or None")
        groups = self.objective.ratings.by_row, self.objective.ratings.by_col
        by_default: Factor = "V" if better_determined(groups, rank) else "U"
        self.state: Factor = state or by_default

    def __call__(self, x: Any) -> tuple[Floats, float]:
        """The map, for ``accelerate(..., value=True)``: both factors after it, and F before.

        F is taken at the factor ``state`` of x and the best other factor for it.
        """
        U, V = self.objective.split(x)
        if self.state == "U":
            V, value = self.columns(U, V)
            U, _ = self.rows(V, U)
        else:
            U, value = self.rows(V, U)
            V, _ = self.columns(U, V)
        return self.objective.join(U, V), value

    def start(self, V: Any = None) -> Floats:
        """Both factors for a V, by default that of the truncated SVD."""
        if V is None:
            V = self.objective.split(self.objective.start())[1]
        return self.objective.join(self.rows(V)[0], V)

    def rows(self, V: Any, U: Any = None) -> tuple[Floats, float]:
        """U*(V), no worse than U up to the rounding of sums, and F there."""
        return self._solved("U", self._factor(V, "V"), U)

    def columns(self, U: Any, V: Any = None) -> tuple[Floats, float]:
        """V*(U), no worse than V up to the rounding of sums, and F there."""
        return self._solved("V", self._factor(U, "U"), V)

    def factors(self, x: Any) -> tuple[Floats, Floats]:
        """(U, V), balanced, of x; F there is what came with x from the map.

        (Balanced in between, they would turn under the momentum, which would then lead nowhere.)
        """
        U, V = self.objective.split(x)
        if self.state == "U":
            return balanced(U, self.columns(U, V)[0])
        return balanced(self.rows(V, U)[0], V)

    def _solved(self, name: Factor, fixed: Floats, current: Any) -> tuple[Floats, float]:
        before = None if current is None else self._factor(current, name)
        factor, told = self._solvers[name](fixed, None, before)
        return factor, self._value(told, fixed)


class MMSweep(_Sweep):
    """Newton's steps for the logistic loss, in turn: x = (U, V) -> a step for U, then one for V.

    F(U, V) = (1/N) sum_{ij} log(1 + exp(-y_ij u_i.v_j)) + (ridge/2N) (|U|^2 + |V|^2).  A half step
    is one of Newton's method for every row of U, for fixed V, cut short where it would go too far
    for a surrogate of F that lies above it (majorise-minimise; see :class:`RowSolver` for the bound
    that says so), then one for every row of V at the new U.  So F never rises; the state, and the
    momentum, is in both factors; F at x falls out of the first half step.

    Parameters
    ----------
    ratings : Ratings
        Labels +1 and -1, as ``ratings.signs()`` makes them.
    rank, ridge, threads, dtype, compiled
        As for :class:`ALSSweep`.
    """

    loss = "logistic"

    def __call__(self, x: Any) -> tuple[Floats, float]:
        """(both factors after a sweep, F(x)): the map, for ``accelerate(..., value=True)``."""
        U, V = self.objective.split(x)
        U_next, value = self.rows(U, V)
        V_next, _ = self._solvers["V"](U_next, None, V, telling=False)
        return self.objective.join(U_next, V_next), value

    def start(self) -> Floats:
        """The balanced factors of the truncated SVD of the labels."""
        return self.objective.start()

    def rows(self, U: Any, V: Any) -> tuple[Floats, float]:
        """U after half a step from (U, V), and F(U, V) before it."""
        return self._solved("U", self._factor(U, "U"), self._factor(V, "V"))

    def columns(self, U: Any, V: Any) -> tuple[Floats, float]:
        """V after half a step from (U, V), and F(U, V) before it."""
        return self._solved("V", self._factor(V, "V"), self._factor(U, "U"))

    def factors(self, x: Any) -> tuple[Floats, Floats]:
        """The balanced factors of U V'."""
        return balanced(*self.objective.split(x))

    def _solved(self, name: Factor, current: Floats, fixed: Floats) -> tuple[Floats, float]:
        factor, told = self._solvers[name](fixed, None, current)
        return factor, self._value(told, current, fixed)
