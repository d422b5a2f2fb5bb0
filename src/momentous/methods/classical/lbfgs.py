"""L-BFGS, step by step and on any array."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from typing import Any

from momentous.core.machine import Host, Machine
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT
from momentous.core.record import record
from momentous.core.rule import Ask, Goal, Outcome, Rule, Sums, Vectors
from momentous.core.space import Space, to_numpy
from momentous.core.status import Ending, EventKind, Status
from momentous.methods.checks import check
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.curvature import Curvature, FusedLine
from momentous.methods.classical.matrix import Matrix
from momentous.methods.classical.pairs import Pairs
from momentous.methods.classical.self_scaling import SelfScaling
from momentous.methods.endings import zero_gradient
from momentous.methods.search.rounding import Rounding
from momentous.methods.search.wolfe import (
    FAILED,
    FOUND,
    LOOK,
    NEW,
    SEARCHING,
    TRIAL,
    Line,
    Search,
    Wolfe,
)

WHOLE = "must be a whole number >= 1"


def default_memory(dimension: float) -> int:
    """Pairs to keep for so many variables: a function of nothing else, so that runs can be had
    again."""
    c = LBFGS_CONSTANTS
    least = next(pairs for size, pairs in c.least_memory if dimension <= size)
    return max(least, int(min(c.most_memory, c.memory_entries / dimension)))


@record
class LBFGSMemory:
    """The iterate, what is known of the curvature, and the search that is under way."""

    current: Sample
    there: Sample  # the trial that the search takes, if it has found one
    held: Sample  # the trial that waits for its gradient or for a look at the noise
    curvature: Curvature  # changed by `write` alone
    rounding: Rounding  # how noisy values are
    search: Search
    outcome: Outcome
    verdict: int = SEARCHING  # on the search, after the last evaluation
    corrects: bool = True  # until a search fails: are pairs corrected by values?


class QuasiNewton(Rule[LBFGSMemory]):
    """A way along -H g or, with bounds or a simple term, to where the model that H makes is least,
    and a weak Wolfe line search along it: what H is, a store of curvature says."""

    takes_bounds = takes_penalty = True
    ends_at_noise = True
    guarantee = "none"
    work = GRADIENT

    sufficient_decrease: float
    curvature: float
    max_trials: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "max_trials", isinstance(self.max_trials, int) and self.max_trials >= 1, WHOLE)
        c1, c2 = self.sufficient_decrease, self.curvature
        if not (0 < c1 < 0.5 and c1 < c2 < 1):
            raise ValueError(
                f"{type(self).__name__}: sufficient_decrease={c1!r} (c1) and curvature={c2!r} (c2) "
                "must satisfy 0 < c1 < 1/2 and c1 < c2 < 1"
            )

    @abc.abstractmethod
    def _no_pairs(self, m: Machine) -> Curvature:
        """The store before the first step."""

    def _corrects(self, m: Machine) -> bool:
        """Is what a pair says corrected by values?"""
        return False

    def _scaling(self) -> SelfScaling | None:
        """How H is scaled before it takes a pair, if it is."""
        return None

    @functools.cached_property
    def _wolfe(self) -> Wolfe:
        return Wolfe(self.sufficient_decrease, self.curvature, self.max_trials)

    def begin(self, m: Machine, here: Sample, goal: Goal) -> LBFGSMemory:
        curvature: Curvature = self._no_pairs(m)
        if not isinstance(m, Host):
            curvature = curvature.without_pairs_at(m, here)
        rounding, outcome = Rounding.at(m, here.value), Outcome(0.0, m.no_events)
        corrects = self._corrects(m)
        return LBFGSMemory(here, here, here, curvature, rounding, NEW, outcome, corrects=corrects)

    def move(self, m: Machine, memory: LBFGSMemory, here: Sample, goal: Goal) -> LBFGSMemory:
        """With the pairs: they are still what is known of the curvature."""
        curvature, outcome = memory.curvature.at(m, here), Outcome(0.0, m.no_events)
        return LBFGSMemory(
            here, here, here, curvature, memory.rounding, NEW, outcome, corrects=memory.corrects
        )

    def ask(self, m: Machine, memory: LBFGSMemory) -> Ask:
        here, search, c1 = memory.current, memory.search, self.sufficient_decrease
        line: Line | FusedLine = memory.curvature.line(m, here)
        if memory.held.gradient is not None:
            return line.ask(m, here, search, c1)
        # Values come alone, and this one waits for its gradient, or for a look at the noise.
        ask = line.ask_gradient(memory.held)
        return m.case(ask, (search.phase == LOOK, lambda: line.ask(m, here, search, c1)))

    def tell(
        self, m: Machine, memory: LBFGSMemory, here: Sample, made: Vectors, sums: Sums
    ) -> LBFGSMemory:
        current, search = memory.current, memory.search
        line = memory.curvature.line(m, current)
        t = m.where(search.trials == 0, line.first, search.t)
        slope = line.slope_at(m, here, t, made, sums)
        passes = self._wolfe.passes(m, search, current, line, t, here, slope)

        def accept() -> LBFGSMemory:
            return LBFGSMemory(
                current, here, current, memory.curvature, memory.rounding, NEW,
                Outcome(t, m.no_events), FOUND, memory.corrects,
            )  # fmt: skip

        return m.usually(
            memory,
            passes & line.descends & (search.phase == TRIAL),
            accept,
            lambda: self._search(m, memory, line, t, here, made, sums),
        )

    def _search(
        self, m: Machine, memory: LBFGSMemory, line: Any, t: Any, here: Sample, made: Vectors,
        sums: Sums,
    ) -> LBFGSMemory:  # fmt: skip
        current, before = memory.current, memory.search
        looks = before.phase == LOOK
        search, rounding = m.case(
            (before, memory.rounding),
            (looks, lambda: before.looked(m, memory.rounding, current, here.value)),
        )
        there = m.choose(looks, memory.held, here)
        slope = line.slope_at(m, there, t, made, sums)
        end_slope = math.nan if memory.held.gradient is None else slope

        def judge() -> Search:
            return self._wolfe.tell(m, search, rounding, current, line, t, there, slope, end_slope)

        after = m.case(search, (search.phase == TRIAL, judge))
        verdict, takes = after.verdict, after.taken == t
        waits = after.phase == LOOK
        if there.gradient is None:  # it may be wanted
            waits = waits | ((verdict == SEARCHING) & (after.trials == before.trials))
        known = LBFGSMemory(
            current, m.choose(takes, there, memory.there), m.choose(waits, there, current),
            memory.curvature, rounding, after,
            Outcome(after.taken, m.no_events, takes & m.no(looks), verdict != SEARCHING),
            verdict, memory.corrects,
        )  # fmt: skip
        return m.case(
            known,
            (verdict == FOUND, lambda: m.but(known, search=NEW)),
            (verdict == FAILED, lambda: self._failed(m, known)),
        )

    def _failed(self, m: Machine, memory: LBFGSMemory) -> LBFGSMemory:
        """No way along that direction: drop the pairs, or what else the store of them does; without
        pairs there is no way at all."""
        curvature, zero = memory.curvature, memory.current.grad_norm == 0.0

        def recover() -> LBFGSMemory:
            event = m.event(EventKind.RESTART, curvature.count, curvature.forgets)
            # Values that cancel are noisier than they look: they may have spoilt the pairs.
            return m.but(memory, search=NEW, outcome=Outcome(0.0, event, False), corrects=False)

        def end() -> LBFGSMemory:
            status = m.where(zero, int(Status.COMPLETED), int(Status.NO_PROGRESS))
            outcome = Outcome(0.0, m.no_events, False, status=status)
            return m.but(memory, outcome=outcome, verdict=SEARCHING)  # with its pairs

        return m.case(memory, (curvature.can_recover & m.no(zero), recover), otherwise=end)

    def write(self, m: Machine, memory: LBFGSMemory) -> LBFGSMemory:
        """With the step that the search has found."""
        here, rounding = memory.current, memory.rounding
        moved, failed = memory.verdict == FOUND, memory.verdict == FAILED
        there = m.choose(moved, memory.there, here)

        def noise() -> Any:
            found = rounding.between(m, here.value, there.value)
            return m.where(memory.corrects, found, math.inf)

        scaling = self._scaling()
        curvature = memory.curvature.after(m, moved, failed, here, there, noise, scaling)
        if curvature is memory.curvature:
            return memory
        return LBFGSMemory(
            there, memory.there, memory.held, curvature, rounding, memory.search, memory.outcome,
            SEARCHING, memory.corrects,
        )  # fmt: skip

    def accepted(self, memory: LBFGSMemory) -> Sample:
        return memory.current

    def noise(self, memory: LBFGSMemory) -> Any:
        return memory.rounding.seen

    def ending(self, memory: LBFGSMemory, shown: Sample, status: Status) -> Ending:
        if status is Status.COMPLETED:
            return zero_gradient(0.0)
        norm, seen = memory.current.grad_norm, memory.search.seen(self.max_trials)
        return Ending(
            status,
            f"no step along the gradient, of norm {norm:.3g}, is accepted: {seen}",
            {"grad_norm": norm, "trials": self.max_trials},
        )

    def inverse_hessian(self, space: Space, memory: LBFGSMemory) -> object:
        """H, for vectors on the host: what has stayed on a device is not kept for this."""
        curvature = memory.curvature
        if space.is_part or space.penalty is not None or not curvature.is_at_hand(space):
            return None
        here, held = memory.current, None
        if space.box is not None:
            sides = space.box.sides(space, here.point, here.gradient)
            held = to_numpy(sides).reshape(-1) != 0.0
        from momentous.methods.classical.inverse_hessian import InverseHessian  # and scipy.sparse

        return InverseHessian(curvature, space.size, held)


@dataclasses.dataclass(frozen=True)
class LBFGS(QuasiNewton):
    """Limited-memory BFGS with a weak Wolfe line search (Nocedal [1]_, Liu & Nocedal [2]_).

    The direction is -H g, with H the BFGS update of (<s, y>/<y, y>) I of the newest pair by all
    pairs that are kept, in compact form [3]_; up to 128 variables these are all pairs of the run,
    and H is kept as a matrix.  What a pair says of the curvature along its step is corrected by
    the values [6]_, unless a ``memory`` of more than 40 is asked for.
    A step length t is sought with f(x + t d) <= f(x) + c1 t <g, d> and
    <grad f(x + t d), d> >= c2 <g, d>, by a bracket as in [4]_
    whose trials are interpolated rather than bisected.  The first trial is 1, in the first
    iteration a step as long as a tenth of |x|, but no less than 0.1 and no more than 1.  Where
    values cannot tell, within their noise, the first condition is replaced by
    <grad f(x + t d), d> <= (2 c1 - 1) <g, d>, its equivalent for a quadratic [5]_.  A search that
    runs out of trials takes the last that lowered f; one that
    has none drops the pairs and goes on with the gradient; if that fails too, the run ends.

    In a box (``bounds=``) the model of the function is minimised over it, and the search goes along
    the projected ray: see `momentous.methods.classical.box_model`.  Without pairs the first trial
    is P(x - g) itself, if there each variable arrives at a bound, or moves by at most 1 towards
    one.  With a simple term (``penalty=``) the model has it, too: see
    `momentous.methods.classical.prox_model`.

    No guarantee for nonconvex functions.  One value and one gradient per trial, seldom more than
    one trial per iteration.

    Parameters
    ----------
    memory : int, optional
        Pairs to keep.  By default all of them up to 128 variables, then 200, but no more than
        200,000 entries of s, and no fewer than 20 up to 50,000 variables and 10 beyond.  In
        `momentous.torch`, where a gradient costs more than pairs do, at least 100 beyond 128
        variables, or as many as take 1 GiB, if that is less.
    max_trials : int
        The most trials of a line search.
    sufficient_decrease, curvature : float
        c1 and c2, 0 < c1 < c2 < 1 and c1 < 1/2.
    scaling : str, optional
        With ``"self"`` H is scaled as in SSBFGS [7]_ after the first 50 pairs, where it says too
        little of a step.  Then ``memory`` is 300: with 100 what is learned is dropped too early.
        Networks get to losses that are orders of magnitude lower; `SelfScaledBroyden` gets
        further, where its matrix fits.

    References
    ----------
    .. [1] J. Nocedal, "Updating Quasi-Newton Matrices with Limited Storage", Math. Comp. 35 (1980).
    .. [2] D. C. Liu, J. Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization",
       Math. Programming 45 (1989).
    .. [3] R. H. Byrd, J. Nocedal, R. B. Schnabel, "Representations of Quasi-Newton Matrices and
       Their Use in Limited Memory Methods", Math. Programming 63 (1994).
    .. [4] A. S. Lewis, M. L. Overton, "Nonsmooth Optimization via Quasi-Newton Methods", Math.
       Programming 141 (2013): the weak Wolfe bisection.
    .. [5] W. W. Hager, H. Zhang, "A New Conjugate Gradient Method with Guaranteed Descent and an
       Efficient Line Search", SIAM J. Optim. 16 (2005): the approximate Wolfe conditions.
    .. [6] M. C. Biggs, "Minimization Algorithms Making Use of Non-quadratic Properties of the
       Objective Function", J. Inst. Maths Applics 8 (1971).
    .. [7] M. Al-Baali, "Numerical Experience with a Class of Self-Scaling Quasi-Newton Algorithms",
       J. Optim. Theory Appl. 96 (1998).
    """

    name = "lbfgs"
    summary = "limited-memory BFGS"
    cost = "1 value and 1 gradient per trial (about 1)"

    memory: int | None = None
    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    max_trials: int = 50
    scaling: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        memory, scaling = self.memory, self.scaling
        if memory is not None:
            check(self, "memory", isinstance(memory, int) and memory >= 1, WHOLE)
        check(self, "scaling", scaling in (None, "self"), "must be None or 'self'")

    def for_costly_gradients(self, dimension: int, nbytes: int, matrix_bytes: float = 0.0) -> LBFGS:
        is_chosen = self.memory is not None or self.scaling is not None
        if is_chosen or dimension <= LBFGS_CONSTANTS.matrix_dimension:
            return self
        c = LBFGS_CONSTANTS
        fit = min(c.long_memory, c.long_memory_bytes // (2 * nbytes))
        return dataclasses.replace(self, memory=max(fit, default_memory(dimension)))

    def _corrects(self, m: Machine) -> bool:
        short = self.memory is None or self.memory <= LBFGS_CONSTANTS.most_corrected_pairs
        return short if m.penalty is None else False  # with a term values are not of f alone

    def _scaling(self) -> SelfScaling | None:
        if self.scaling is None:
            return None
        c = LBFGS_CONSTANTS
        plain = min(c.plain_pairs, self.memory or c.self_scaled_memory)
        return SelfScaling("ssbfgs", plain)

    def _pairs_to_keep(self, dimension: int) -> int | None:
        """None: all of them, as a matrix."""
        if self.scaling is not None:
            return self.memory or LBFGS_CONSTANTS.self_scaled_memory
        if self.memory is None and dimension <= LBFGS_CONSTANTS.matrix_dimension:
            return None
        return self.memory or default_memory(dimension)

    def _no_pairs(self, m: Machine) -> Curvature:
        size, whole = m.dimension, not (isinstance(m, Host) and m.space.is_part)
        most = self._pairs_to_keep(size)
        if most is None and whole:
            return Matrix.unknown(m)
        return Pairs.unknown(m, default_memory(size) if most is None else most)
