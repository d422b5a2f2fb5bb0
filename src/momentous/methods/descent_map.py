"""Restarted momentum around a map that never raises the objective: an ALS sweep, an EM step.

Its oracle is a `MapOracle`: a sample holds the image T(y), and its norm is that of the residual
y - T(y), which is zero at the fixed points.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

from momentous.core.acceptance import within_limit
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.checks import check, check_positive
from momentous.methods.endings import Events
from momentous.methods.search.rounding import NOISE
from momentous.methods.secants import Secants

RestartRule = Literal["either", "function", "gradient", "distance", "always"]


@dataclasses.dataclass(frozen=True)
class MapConstants:
    """What the method goes by and a user does not choose."""

    # B0, in units of the first residual, where it is not given.
    first_radius: float = 30.0
    # The decrease that value_tol asks for is measured over so many iterations, and that of the last
    # two of them may not exceed that of the first two: beside a saddle the objective hardly falls,
    # but more and more, while the factors of a fit from a small start grow.  Without that, and with
    # fewer values in all, some fits from starts of 1e-3 ended there, with held-out errors up to 8 %
    # higher.  From the default start errors are within 0.25 % of those of the 100th sweep or below,
    # but for ridges that leave hardly a factor (0.5 %) and fits that follow the noise, whose errors
    # rise as they go on: benchmarks/held_out.py --ends.
    value_window: int = 5
    least_values: int = 16
    # So many differences of the last points are kept, and none where vectors have more entries: in
    # sweeps over 100,000 real ratings (270,000 parameters) no combination was ever taken.
    most_secants: int = 10
    most_entries: int = 50_000
    least_secants: int = 3  # one or two differences promise much and know little
    # Their combination is tried where the residual should be no more than this share there.  On
    # half of the maps of `momentous scoreboard --maps` shares from 0.1 to 0.3 do equally well;
    # larger ones stand in the way of the momentum, which on long vectors goes further than ten
    # points can tell.
    promised_share: float = 0.2
    most_steps_back: int = 6  # halvings of a way out of the feasible set, to where it began
    pause_growth: int = 2  # of the wait after a combination that was discarded


CONSTANTS = MapConstants()


@record
class MapMemory:
    """The momentum iteration under way."""

    y: Array  # y^k, where the map is applied next; the very array x after a restart
    x: Array  # x^k, the last image
    base: Sample  # the last point accepted by its value: y^{k-1}, or where the epoch began
    lowest: float  # the lowest value of such points
    radius: float  # B0
    first_norm: float  # |x^0 - T(x^0)|
    tol: float  # the residual to stop at, relative to that
    scale: float  # |f(x^0)|: the terms of later values may be as large as those of the first
    noise: float  # what rounding may do to a difference of values
    values: tuple[float, ...]  # of the objective, at the last iterations
    most_secants: int  # differences of points to keep
    without_momentum: bool = True  # is y^k the image of the base?
    count: int = 1  # m
    travelled: float = 0.0  # sum of |x^{t+1} - x^t|^2 in this epoch
    epochs: int = 1  # t, for c0
    secants: Secants = dataclasses.field(default_factory=Secants)  # of the points before the base
    instead: Array = None  # the next point by momentum, where y^k is one by secants ...
    instead_is_image: bool = False  # ... and whether that is the image of the base
    pause: int = 1  # iterations after a point by secants that was discarded, before the next ...
    wait: int = 0  # ... and how many of them are left

    def as_step(
        self, sample: Sample, events: Events = (), ending: Ending | None = None
    ) -> Step[MapMemory]:
        """The step that led here.  There is no step size."""
        return Step(self, Report(sample, 1.0, events, ending, self.base, self.noise))


@dataclasses.dataclass(frozen=True)
class DescentMap(Method[MapMemory]):
    """Restarted momentum around a descent map T, f(T(y)) <= f(y): the method of ``accelerate``.

    ``x^{k+1} = T(y^k)``, ``y^{k+1} = x^{k+1} + beta (x^{k+1} - x^k)`` with
    beta = (m - 1)/(m + 2), where m counts from 1 and is 1 again after a restart.  When to restart:

    - ``"either"``: by the function test or by the gradient test, whichever is first, and after the
      gradient test m is half of what it was.  Of the two below now one, now the other restarts too
      late; this one never did (benchmarks/solver.py).  It also takes secants: the next point is
      Anderson's combination of the last ones (Walker & Ni [4]_) where that promises a fifth of the
      residual or less.  It has to pass the same test of the value; where it does not, which takes
      one value, combinations have a pause, twice as long each time.
    - ``"function"``: when f(y^k) is above f(y^{k-1}).  y^k is discarded and x^k = T(y^{k-1}), which
      is known, takes its place.  One value per iteration.
    - ``"gradient"``: when <y^k - x^{k+1}, x^{k+1} - x^k> > 0 (O'Donoghue & Candes [2]_, with the
      residual for the gradient); free.
    - ``"distance"``: when m sum |x^{t+1} - x^t|^2 > max(B, B0)^2 over the epoch, as in Algorithm 2
      of Li & Lin [1]_; B0 shrinks by c0 at every restart.
    - ``"always"``: the plain iteration x^{k+1} = T(x^k), to compare with.

    After a restart by the second or third rule the point is accepted if it is no higher than where
    the epoch began (the paper's decrease test; its eps^(3/2)/sqrt(rho) is ``decrease`` here);
    otherwise the epoch is discarded, and the next one begins at the image of the old beginning
    (with ``"distance"``, B0 shrinks by c1).  That takes one value per restart, and is left out
    where there are no values.  So no accepted point is above the one before, beyond rounding, and
    a map that raises the objective without the help of momentum ends the run, at the point below.

    Where two values differ by no more than rounding, which is learned from the map, the gradient
    test decides in place of the function test.  The guarantee is descent:
    docs/explanation/descent-maps.md.  How this compares with Anderson acceleration, SQUAREM [3]_
    and others is on the page docs/map-scoreboard.md.

    Parameters
    ----------
    restart : {"either", "function", "gradient", "distance", "always"}
        The rule; where there are no values of the objective, ``"gradient"`` or ``"always"``.
    value_tol : float
        Stop when five iterations lowered the objective by no more than this, relative to it, and
        the last two by no more than the first two; not before the 15th (0: never).
    radius, initial_radius : float
        B, below which the distance rule does not go, and B0, by default 30 |x^0 - T(x^0)|.
    radius_shrink, failure_shrink : float, optional
        c0 > 1, by default 1 + 0.001 t in epoch t, as in section 5.1 of [1]_; and c1.
    decrease : float
        By how much an epoch must have lowered the objective to be accepted.
    secants : int, optional
        How many differences of the last points are kept for the combinations, two arrays like x
        each; by default 10, or none where x has more than 50,000 entries.  0: no combinations.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`momentous.RAGD`.
    .. [2] B. O'Donoghue, E. Candes, "Adaptive restart for accelerated gradient schemes", Found.
       Comput. Math. 15 (2015).
    .. [3] R. Varadhan, C. Roland, "Simple and globally convergent methods for accelerating the
       convergence of any EM algorithm", Scand. J. Stat. 35 (2008).
    .. [4] H. Walker, P. Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer.
       Anal. 49 (2011).
    """

    name = "descent-map"
    summary = "restarted momentum around any descent map"
    guarantee = "descent"
    cost = "1 map; 1 value (function) or 1 per restart"

    restart: RestartRule = "either"
    value_tol: float = 0.0
    radius: float = 0.0
    initial_radius: float | None = None
    radius_shrink: float | None = None
    failure_shrink: float = 10.0
    decrease: float = 0.0
    secants: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        rules, c0, kept = get_args(RestartRule), self.radius_shrink, self.secants
        check(self, "restart", self.restart in rules, f"must be one of {', '.join(rules)}")
        check_positive(self, "initial_radius")
        for name in ("value_tol", "radius", "decrease"):
            check(self, name, getattr(self, name) >= 0, "must be a number >= 0")
        check(self, "secants", kept is None or kept >= 0, "must be a whole number >= 0")
        check(self, "radius_shrink", c0 is None or c0 > 1, "(c0) must be above 1")
        check(self, "failure_shrink", self.failure_shrink >= 1, "(c1) must be at least 1")

    @property
    def stops_at_tolerance(self) -> bool:
        """The tolerance is relative to the first residual: for this method to judge."""
        return False

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[MapMemory]:
        if not oracle.has_values:
            self._refuse_without_values()
        sample = oracle.gradient(x0)
        norm = sample.grad_norm
        memory = MapMemory(
            y=x0,
            x=x0,
            base=sample,
            lowest=sample.value,
            radius=self.initial_radius or CONSTANTS.first_radius * norm,
            first_norm=norm,
            tol=self.tolerance_for(tol),
            scale=abs(sample.value),
            noise=NOISE * oracle.space.rounding * abs(sample.value),
            values=(sample.value,),
            most_secants=self._most_secants(oracle.space),
        )
        return memory.as_step(sample, ending=_fixed_point() if norm == 0.0 else None)

    def _most_secants(self, space: Space) -> int:
        if self.restart != "either":
            return 0
        if self.secants is not None:
            return self.secants
        return CONSTANTS.most_secants if space.dimension <= CONSTANTS.most_entries else 0

    def _refuse_without_values(self) -> None:
        if self.restart not in ("gradient", "always"):
            raise ValueError(
                f"restart={self.restart!r} compares values of the objective: pass value=, or leave "
                "it to restart='gradient', which needs none"
            )
        if self.value_tol:
            raise ValueError(
                f"value_tol={self.value_tol!r} looks at values of the objective: pass value="
            )

    def with_new_tolerance(self, step: Step[MapMemory], tol: float | None) -> Step[MapMemory]:
        if tol is None:
            return step
        memory, report = dataclasses.replace(step.memory, tol=tol), step.report
        if report.ending is not None and "tolerance" in report.ending.numbers:
            # What was reached may not be enough any more.
            ending = _small_residual(memory, report.sample)
            report = dataclasses.replace(report, ending=ending)
        return Step(memory, report)

    def step(self, oracle: Oracle, memory: MapMemory) -> Step[MapMemory]:
        if memory.y is memory.base.point:
            oracle.recall(memory.base)  # the first step: T(x^0) is known
        events: Events = ()
        sample, usable = self._evaluate(oracle, memory)
        if memory.instead is not None:
            events = (*_if_not_finite(sample), Event(EventKind.SECANT, float(usable)))
            if not usable:
                memory = self._by_momentum_instead(memory)
                sample, usable = self._evaluate(oracle, memory)
        if not usable and not memory.without_momentum:
            events += self._rollback(memory, sample)
            memory = self._discarded(memory)
            sample, usable = self._evaluate(oracle, memory)
        rise = sample.value - memory.lowest
        if not usable and memory.noise < rise <= math.sqrt(oracle.space.rounding) * memory.scale:
            # The map alone does not raise the objective: so small a rise measures the rounding.
            memory = dataclasses.replace(memory, noise=2 * rise)
            sample, usable = self._evaluate(oracle, memory)
        if usable:
            return self._moved(oracle, memory, sample, events)
        events += _if_not_finite(sample)
        return memory.as_step(memory.base, events, _no_descent(sample, memory.base))

    def _accepts_here(self, memory: MapMemory) -> bool:
        """Is y^k one of the points that are accepted by their value?"""
        return memory.count == 1 or self.restart in ("either", "function", "always")

    def _evaluate(self, oracle: Oracle, memory: MapMemory) -> tuple[Sample, bool]:
        """The sample at y^k, and whether it can be used."""
        if oracle.has_values and self._accepts_here(memory):
            # First the value: where the two come apart, the map is not applied for nothing.
            value, limit = oracle.value(memory.y), memory.lowest + memory.noise
            if not (memory.without_momentum or self.restart in ("either", "function")):
                limit -= self.decrease
            if not (math.isfinite(value) and value <= limit):
                return Sample(memory.y, value), False
        sample = oracle.gradient(memory.y)
        if self.value_tol and sample.has_finite_gradient:
            oracle.value(memory.y)  # the sample knows it from now on
        return sample, sample.has_finite_gradient

    def _moved(
        self, oracle: Oracle, memory: MapMemory, y: Sample, events: Events
    ) -> Step[MapMemory]:
        """From y^k, which can be used, to y^{k+1}."""
        space, x_next, by_secants = oracle.space, y.image, memory.instead is not None
        m = max(1, memory.count // 2) if by_secants else memory.count
        change = space.combination(x_next, -1.0, memory.x)
        travelled = memory.travelled + space.inner(change, change)
        restarts = self._restarts(space, memory, y, change, travelled)
        values = *memory.values[1 - CONSTANTS.least_values :], y.value
        now = dataclasses.replace(memory, x=x_next, values=values)
        if self._accepts_here(memory):
            now.base, now.lowest = y, min(y.value, memory.lowest)
        if restarts:
            now.y, now.without_momentum, now.travelled = x_next, now.base is y, 0.0
            now.count = max(1, m // 2) if self.restart == "either" else 1
            now.radius, now.epochs = memory.radius / self._shrink(memory), memory.epochs + 1
            if self.restart != "always":
                events += (Event(EventKind.RESTART, float(m)),)
        else:
            beta = m / (m + 3)  # (m - 1)/(m + 2) with the m of y^{k+1}
            now.y = self._step_back(oracle, space.combination(x_next, beta, change), x_next)
            now.without_momentum, now.count, now.travelled = False, m + 1, travelled
        if memory.most_secants:
            self._try_secants(oracle, memory, now, y)
        return self._ended(oracle, now, y, events)

    @staticmethod
    def _step_back(oracle: Oracle, point: Array, image: Array) -> Array:
        """The point; where that is outside of the set, one nearer to the image, or the image."""
        if oracle.is_feasible is None:
            return point
        for _ in range(CONSTANTS.most_steps_back):
            with oracle.interrupts:
                if oracle.is_feasible(point):
                    return point
            point = oracle.space.combination(image, 0.5, point, image)
        return image

    def _try_secants(self, oracle: Oracle, memory: MapMemory, now: MapMemory, y: Sample) -> None:
        """A combination of the last points in place of y^{k+1}, where it promises enough."""
        space = oracle.space
        if memory.instead is not None:  # it did well
            now.instead, now.pause = None, max(1, memory.pause // CONSTANTS.pause_growth)
        now.wait = max(0, memory.wait - 1)
        if y is memory.base:  # the first step
            return
        now.secants = memory.secants.extended(space, memory.base, y, memory.most_secants)
        if now.wait or len(now.secants) < min(CONSTANTS.least_secants, memory.most_secants):
            return
        point = now.secants.point(space, y, CONSTANTS.promised_share)
        if point is not None:
            now.instead, now.instead_is_image = now.y, now.without_momentum
            now.y, now.without_momentum = self._step_back(oracle, point, y.image), False

    def _by_momentum_instead(self, memory: MapMemory) -> MapMemory:
        """The point by secants is discarded, and the next one has to wait."""
        pause = CONSTANTS.pause_growth * memory.pause
        return dataclasses.replace(
            memory, y=memory.instead, without_momentum=memory.instead_is_image, instead=None,
            pause=pause, wait=pause,
        )  # fmt: skip

    def _restarts(
        self, space: Space, memory: MapMemory, y: Sample, change: Array, travelled: float
    ) -> bool:
        if self.restart == "always":
            return True
        if self.restart == "distance":
            limit = max(self.radius, memory.radius)
            return not memory.count * travelled <= limit * limit
        if self.restart == "function" and y.value < memory.lowest - memory.noise:
            return False
        residual = space.combination(y.point, -1.0, y.image)
        return space.inner(residual, change) > 0.0

    def _ended(
        self, oracle: Oracle, memory: MapMemory, sample: Sample, events: Events
    ) -> Step[MapMemory]:
        """Is this the end?  Not at a point that momentum has climbed to."""
        ending = _small_residual(memory, sample)
        if self.value_tol:
            ending = ending or _small_decrease(memory.values, self.value_tol)
        if ending is not None and oracle.has_values and sample is not memory.base:
            lowest = Sample(memory.base.point, memory.lowest)
            if not within_limit(oracle, sample, RiseLimit(lowest, allowance=memory.noise)):
                events += self._rollback(memory, sample)
                return self._discarded(memory).as_step(sample, events)
        return memory.as_step(sample, events, ending)

    def _rollback(self, memory: MapMemory, seen: Sample) -> Events:
        return (*_if_not_finite(seen), Event(EventKind.ROLLBACK, float(memory.count)))

    def _discarded(self, memory: MapMemory) -> MapMemory:
        """What momentum has led to is left: on from the image of the last accepted point."""
        image = memory.base.image
        now = dataclasses.replace(memory, y=image, x=image, count=1, travelled=0.0)
        now.without_momentum = True
        now.radius = memory.radius / (self._shrink(memory) * self.failure_shrink)
        now.epochs = memory.epochs + 1
        return now

    def _shrink(self, memory: MapMemory) -> float:
        return self.radius_shrink or 1 + 0.001 * memory.epochs


def _small_residual(memory: MapMemory, sample: Sample) -> Ending | None:
    norm, first = sample.grad_norm, memory.first_norm
    if norm == 0.0:
        return _fixed_point()
    if not norm <= memory.tol * first:
        return None
    return Ending(
        Status.CONVERGED,
        f"the residual |x - T(x)| = {norm:.3g} is {norm / first:.3g} times the first one, within "
        f"the tolerance {memory.tol:.3g}",
        {"grad_norm": norm, "first_grad_norm": first, "tolerance": memory.tol},
    )


def _fixed_point() -> Ending:
    return Ending(Status.COMPLETED, "the map leaves x exactly where it is", {"grad_norm": 0.0})


def _small_decrease(values: tuple[float, ...], value_tol: float) -> Ending | None:
    window = CONSTANTS.value_window
    if len(values) < CONSTANTS.least_values:
        return None
    middle, value = values[-1 - window], values[-1]
    fall = middle - value
    slows = values[-3] - value <= middle - values[1 - window]
    if not (abs(fall) <= value_tol * abs(value) and slows):  # where it rises, momentum is at work
        return None
    return Ending(
        Status.CONVERGED,
        f"{window} iterations lowered the objective by {fall:.3g}, to {value:.6g}: "
        f"within the tolerance, {value_tol:.3g} of it",
        {"decrease": fall, "fun": value, "value_tol": value_tol},
    )


def _rejected_for(sample: Sample) -> float:
    """The number that a sample was judged by: its value if that was enough, or its residual."""
    return sample.grad_norm if sample.evaluated else sample.value


def _if_not_finite(sample: Sample) -> Events:
    seen = _rejected_for(sample)
    return () if math.isfinite(seen) else (Event(EventKind.NON_FINITE, seen),)


def _no_descent(sample: Sample, base: Sample) -> Ending:
    """The map alone, without momentum, has led from an accepted point to an unusable one."""
    numbers = {"fun": base.value, "image_fun": sample.value, "grad_norm": base.grad_norm}
    if math.isfinite(_rejected_for(sample)):
        return Ending(
            Status.OBJECTIVE_ROSE,
            f"the map, without momentum, raised the objective from {base.value:.6g} to "
            f"{sample.value:.6g}: it is no descent map there (what it solves inside may be nearly "
            "singular: a small ridge helps), or value is another objective than the one it lowers",
            numbers,
        )
    return Ending(
        Status.NON_FINITE,
        f"the map, without momentum, led from a point with objective {base.value:.6g} to one where "
        f"the objective is {sample.value} and the residual {sample.grad_norm}; check step and "
        "value around result.x",
        numbers,
    )
