"""Sweeps over both factors, alternately, as descent maps for `momentous.accelerate`."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from momentous.api import accelerate
from momentous.core.result import Result
from momentous.lowrank.backends.base import Backend
from momentous.lowrank.backends.sums import DAMPING
from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.factors import balanced, least_penalty
from momentous.lowrank.objective import LowRankObjective

Factor = Literal["U", "V"]
ROWS, COLS = 0, 1
# Of conjugate gradients per row and half sweep.  One step is cheaper, but with a ridge of 1 it can
# need twice the sweeps of exact ones; two need 1.1 to 1.2 times as many: benchmarks/sweeps.py.
STEPS = 2


def automatic_steps(objective: LowRankObjective) -> int | None:
    """Steps of conjugate gradients that a sweep is fastest with; None: exact solutions."""
    return STEPS if objective.rank > objective.backend.exact_up_to else None


class Sweep:
    """One round of half steps as a descent map: new rows for these columns, then new columns.

    Quadratic losses (alternating least squares): the best rows are a function of the columns, so
    that one side alone carries the momentum.  It is the side with fewer rows of hardly more entries
    than parameters, which jump from sweep to sweep.  Without a ridge (or with one that is hardly
    any) entries may not determine the best other side: then that of the sweep before goes along in
    the state, (P, Q), and no row gets worse than it was there, however near to singular its system
    is.

    Half steps alone are slow to agree on the scale of the factors under a ridge: where one side is
    too small the other has to be too large, and each is the best for the other.  `least_penalty`
    settles that between the half steps.  It leaves the predictions as they are, so this remains a
    descent map.  On the MovieLens 1M twin (`benchmarks/peers.py`, rank 10, no biases) F after 5
    sweeps is 0.5029 in place of 0.5289 with ridge 10, and 0.7393 in place of 0.8618 with a ridge of
    0.1 per entry; the least are 0.5016 and 0.7385.

    Other losses: each half step is one of Newton's, cut short where it would go too far, or one
    for a parabola above the loss (see `Side.solve_rows`), and the state is (P, Q).

    With ``steps`` half steps are not exact: so many steps of conjugate gradients per row, from
    where it is, in the coordinates of `LowRankObjective.principal_axes`.  They never raise F
    either; the state is (P, Q) for every loss.  A step reads the r features of each entry twice,
    where the exact solution makes r^2/2 products of them.  In a result a sweep counts as one map
    either way.

    Parameters
    ----------
    objective : LowRankObjective
        What is lowered, without its balance term: that can be had at the end.
    state : "U" or "V", optional
        The side that carries the momentum of a quadratic loss, if not the one above.
    rescale : bool
        False: no `least_penalty`, and the state is always (P, Q).
    steps : int, optional
        Steps of conjugate gradients per row; by default rows are solved exactly.

    Examples
    --------
    >>> from momentous import accelerate
    >>> from momentous.lowrank import LowRankObjective, Ratings, Sweep
    >>> ratings = Ratings([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [1.0, 2.0, 2.0, 4.0, 3.0])
    >>> sweep = Sweep(LowRankObjective(ratings, rank=1, ridge=1e-6))
    >>> result = accelerate(sweep, sweep.begin(sweep.objective.start()), value=True, tol=1e-9)
    >>> float(sweep.objective.predict(sweep.point(result.x), 2, 1).round(3))
    6.0
    """

    def __init__(
        self,
        objective: LowRankObjective,
        *,
        state: Factor | None = None,
        rescale: bool = True,
        steps: int | None = None,
    ):
        if state not in ("U", "V", None):
            raise ValueError(f"state={state!r} must be 'U', 'V' or None")
        if steps is not None:
            check_number("steps", steps, 1, whole=True)
        self.objective, self.steps = objective, steps
        quadratic = objective.loss.quadratic
        self._exact = quadratic and steps is None
        self._one_sided = self._exact and rescale and objective.ridge > DAMPING
        self._rescales = quadratic and rescale and objective.ridge > 0.0
        self.side = better_determined(objective) if state is None else "UV".index(state)
        self._last: _Round | None = None  # for those who look on, and for the end

    @property
    def state(self) -> Factor:
        """The factor that the other one is a function of, and that carries the momentum."""
        return "V" if self.side == COLS else "U"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.objective!r}>"

    def begin(self, x: Floats) -> Floats:
        """What the map takes, from a point; for quadratic losses by its columns."""
        if not self._exact:
            return x
        P, Q = self.objective.split(x)
        if self._one_sided:
            return Q.copy() if self.side == COLS else self.objective.half_sweep(ROWS, None, Q)[0]
        if self.side == COLS:
            return x
        return self.objective.join(self.objective.half_sweep(ROWS, P, Q)[0], Q)

    def point(self, state: Floats) -> Floats:
        """The point that a state stands for."""
        if not self._exact:
            return state
        last, (own, before) = self._last, self._own_and_other(state)
        if last is not None and last.state is state:
            other = last.other
        else:
            other, _ = self.objective.half_sweep(1 - self.side, before, own)
        return self.objective.join(*self._in_order(own, other))

    def point_after(self, state: Floats, image: Floats) -> Floats:
        """The point after a sweep from this state; its rows are the best for its columns."""
        if not self._exact or self.side == COLS:
            return self.point(image)
        if self._last is None or self._last.state is not state:
            self(state)
        assert self._last is not None
        return self.objective.join(self._last.image, self._last.rescaled)

    def __call__(self, state: Floats) -> tuple[Floats, float]:
        """(the next state, F at this one), for ``accelerate(..., value=True)``.

        For quadratic losses that is F at the side that carries the momentum, with the best other
        side for it.
        """
        objective = self.objective
        own, before = self._own_and_other(state)
        other, value = objective.half_sweep(1 - self.side, before, own, steps=self.steps)
        value = value / objective.weight + objective.penalty_of(own, self.side)
        if before is not None and not self._exact:  # these are the losses before the half step
            value += objective.penalty_of(before, 1 - self.side)
        both = self._rescale(*self._in_order(own, other))
        rescaled, current = both[1 - self.side], None if self._one_sided else both[self.side]
        image, _ = objective.half_sweep(
            self.side, current, rescaled, with_value=False, steps=self.steps
        )
        if self._exact:
            self._last = _Round(state, other, rescaled, image)
        if self._one_sided:
            return image, value
        return objective.join(*self._in_order(image, rescaled)), value

    def run(self, x: Floats, **options: Any) -> tuple[Floats, Result]:
        """`momentous.accelerate` from a point: the point after the last sweep, and the result."""
        result = accelerate(
            self,
            self.begin(x),
            value=True,
            tol=0.0,
            ranks=self.objective.layout,
            interrupts="return",
            **options,
        )
        # The image of the last point is no higher, and known unless an interrupt came in between.
        if result.image is None:
            return self.point(result.x), result
        return self.point_after(result.x, result.image), result

    def _own_and_other(self, state: Floats) -> tuple[Floats, Floats | None]:
        """The side that the map goes by, and the other one, where it is in the state."""
        if self._one_sided:
            return state, None
        return self._in_order(*self.objective.split(state))

    def _in_order(self, one: Floats, other: Floats) -> tuple[Floats, Floats]:
        """(P, Q) of the side that the map goes by and the other one; or these of (P, Q)."""
        return (one, other) if self.side == ROWS else (other, one)

    def _rescale(self, P: Floats, Q: Floats) -> tuple[Floats, Floats]:
        """The same predictions under the least penalty of the factors."""
        if not self._rescales:
            return P, Q
        backend, r = self.objective.backend, self.objective.rank
        weights = (weights[:, 0] for weights in self.objective.weights)
        U, V = least_penalty(
            P[:, :r],
            Q[:, :r],
            *weights,
            gram=self.objective.gram,
            asarray=backend.xp.asarray,
        )
        return backend.xp.hstack([U, P[:, r:]]), backend.xp.hstack([V, Q[:, r:]])


class _Round(NamedTuple):
    """What a sweep of a quadratic loss found."""

    state: Floats
    other: Floats  # the other side, the best for the state
    rescaled: Floats  # the same, rescaled
    image: Floats  # the best for that


def better_determined(objective: LowRankObjective) -> int:
    """The side, 0 or 1, with fewer rows of less than 2 r entries; of equals the smaller one."""
    counts = [objective.counts(which) for which in (ROWS, COLS)]
    few = [objective.ranks.sum(int(np.count_nonzero(side < 2 * objective.rank))) for side in counts]
    if few[0] == few[1]:
        few = [objective.ranks.sum(side.size) for side in counts]
    return 0 if few[0] < few[1] else 1


class _PlainSweep(Sweep):
    """A sweep over bare factors (U, V), without biases and rescaling."""

    loss: str

    def __init__(
        self,
        ratings: Ratings,
        rank: int,
        ridge: float = 0.0,
        threads: int | None = None,
        dtype: DTypeLike | None = None,
        *,
        state: Factor | None = None,
        backend: str | Backend = "auto",
        device: str = "cpu",
    ):
        objective = LowRankObjective(
            ratings, rank, self.loss, 0.0, ridge, dtype, threads, backend=backend, device=device
        )
        super().__init__(objective, state=state, rescale=False)

    def start(self) -> Floats:
        """The balanced factors of the truncated SVD."""
        return self.objective.start()

    def factors(self, x: Floats) -> tuple[Floats, Floats]:
        """(U, V), balanced, of x; F there is what came with x from the map.

        (Balanced in between, they would turn under the momentum, which would then lead nowhere.)
        """
        to_host = self.objective.backend.to_host
        U, V = map(to_host, self.objective.split(self.point(x)))
        return balanced(U, V)


class ALSSweep(_PlainSweep):
    """Alternating least squares, x = (U, V) -> (U*(V), V*(U*(V))): a map for the squared loss.

    U*(V) minimises F(., V) = (1/2N) (sum_{ij} (u_i.v_j - X_ij)^2 + ridge (|U|^2 + |V|^2)): one
    r x r system for every row; V*(U) likewise.  The value that comes with the map is that of
    (U*(V), V), for free.

    U*(V) is a function of V, so it is V alone that carries momentum.  Which factor comes first is
    the same to the plain iteration, but not to the accelerated one: on the MovieLens-1M twin, where
    users have 20 ratings or more and some items have one, momentum in U halves the number of sweeps
    (`benchmarks/sweeps.py`).  What happens to rows with fewer entries than the rank, and to factors
    that are nearly dependent, `Side.solve_rows` says.

    Parameters
    ----------
    ratings, rank, threads, dtype, backend, device
        As for `LowRankObjective`, which is the attribute ``objective``; the result does not depend
        on the number of threads.
    ridge : float
        Weight of the squared factors.
    state : "U" or "V", optional
        As for `Sweep`.

    References
    ----------
    .. [1] Y. Koren, R. Bell, C. Volinsky, "Matrix factorization techniques for recommender
       systems", Computer 42 (2009).

    Examples
    --------
    >>> from momentous import accelerate
    >>> from momentous.lowrank import ALSSweep, Ratings
    >>> ratings = Ratings([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [1.0, 2.0, 2.0, 4.0, 3.0])
    >>> sweep = ALSSweep(ratings, rank=1)
    >>> result = accelerate(sweep, sweep.start(), value=True)
    >>> U, V = sweep.factors(result.x)
    >>> float((U @ V.T)[2, 1].round(4))
    6.0
    """

    loss = "squared"

    def start(self, V: ArrayLike | None = None) -> Floats:
        """Both factors for a V, by default that of the truncated SVD."""
        objective = self.objective
        nothing = objective.backend.xp.zeros((objective.ratings.shape[0], objective.rank))
        x = objective.start() if V is None else objective.join(nothing, V)
        known = objective.split(x)[1]
        return objective.join(objective.half_sweep(ROWS, None, known)[0], known)


class MMSweep(_PlainSweep):
    """Newton's steps for the logistic loss, in turn: x = (U, V) -> a step for U, then one for V.

    F(U, V) = (1/N) sum_{ij} log(1 + exp(-y_ij u_i.v_j)) + (ridge/2N) (|U|^2 + |V|^2).  A half step
    is one of Newton's method for every row of U, for fixed V, cut short where it would go too far
    for a surrogate of F that lies above it (majorise-minimise; see `Side.solve_rows` for the bound
    that says so), then one for every row of V at the new U.  So F never rises; the state, and the
    momentum, is in both factors; F at x falls out of the first half step.

    Parameters as for `ALSSweep`; the ratings are labels +1 and -1, as ``ratings.signs()`` makes
    them.
    """

    loss = "logistic"
