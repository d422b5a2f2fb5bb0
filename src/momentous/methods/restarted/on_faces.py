"""A method without bounds, run on faces of a box: it starts again where the face changes."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from types import ModuleType
from typing import Any

from momentous.core.machine import BoxMachine, Machine, Records
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import (
    BOTH,
    GRADIENT,
    RUNNING,
    STEP,
    Ask,
    Goal,
    Outcome,
    Rule,
    Sums,
    Vectors,
)
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.step import RiseLimit
from momentous.methods.classical.projected_gradient import ProjectedGradient, ProjectedMemory

# A face is left where the gradient along it is at most so much of |x - P(x - g)|: the rest pulls
# variables off their bounds.
RELEASE = 0.5

OFF = 2.0**-30
# What an evaluation is for.
PROJECT = 0  # a step of the projected gradient method, which chooses the next face
FACE = 1  # the method on its face
MEET = 2  # the point at which it is to leave the face, moved into the box: is it low enough?
BACK = 3  # no: the gradient at the last point that it has accepted


@record
class FaceMemory:
    """The method on the face, and where the faces are left and chosen."""

    inner: Any
    projected: ProjectedMemory
    held: Array  # 1 where a variable is held at a bound, 0 where it is free
    best: Sample  # the last accepted point, and its value
    outcome: Outcome
    tol: float | None
    phase: int = PROJECT
    begun: bool = False  # has the method ever begun on a face?
    off: bool = False  # is its next point off the face, by rounding?


@dataclasses.dataclass(frozen=True)
class OnFaces(Rule[FaceMemory]):
    """A method that knows no bounds, in a box: on the variables that no bound holds.

    A step x+ = P(x - g/L) of `ProjectedGradient` chooses a face: variables at a bound to which the
    gradient pushes them are held, and the others are free.  From x+ the method runs on f of the
    free variables.  It leaves the face where a point that it asks for lies outside of the box,
    where the gradient of the free variables is at most half of |x - P(x - g)|, or where it ends.
    That point, moved into the box, is where it goes on if f is not higher there than at the last
    point that the method has accepted, and else it is that one; another projected step follows.

    What is proven.  Every face begins with a step that lowers f by |G|^2/(2L), G the gradient
    mapping, so that there are at most 2 L D/eps^2 + 1 of them with |G| > eps, D = f(x0) - inf f;
    and on a face the method is itself, for a function of fewer variables, with its own theorem as
    long as it meets no bound.  What is not proven: that faces change less often than that, and so
    the order of the method for the whole run.

    Parameters
    ----------
    method : Method
        The method on the faces.

    References
    ----------
    .. [1] A. Beck (2017), see :class:`ProjectedGradient`: the step between two faces.
    .. [2] W. W. Hager, H. Zhang, "A New Active Set Algorithm for Box Constrained Optimization",
       SIAM J. Optim. 17 (2006): projected steps that choose a face, a fast method on it, and the
       test that leaves it.
    """

    name = "on-faces"
    takes_bounds = True
    has_epochs = True
    summary = "a method on the faces of a box"
    guarantee = "that of the method on a face; O(eps^-2) changes of the face"
    cost = "that of the method; 2 values and 2 gradients per change of the face"

    method: Rule[Any]

    @cached_property
    def _projected(self) -> ProjectedGradient:
        return ProjectedGradient()

    @property
    def default_tolerance(self) -> float:
        return self.method.default_tolerance

    def description(self) -> dict[str, Any]:
        """That of the method: a run that is resumed makes this one of it again."""
        return self.method.description()

    def begin(self, m: BoxMachine, here: Sample, goal: Goal) -> FaceMemory:  # type: ignore[override]
        held = self._held_variables(m, here)
        inner = m.unbegun(lambda: self.method.begin(m, self._on_face(m, held, here), goal))
        projected = self._projected.begin(m, here, goal)
        best = Sample(here.point, here.value)
        return FaceMemory(inner, projected, held, best, projected.outcome, goal.tol)

    def with_tolerance(self, m: Records, memory: FaceMemory, tol: float) -> FaceMemory:
        return m.but(memory, tol=tol, inner=self.method.with_tolerance(m, memory.inner, tol))

    def ask(self, m: BoxMachine, memory: FaceMemory) -> Ask:  # type: ignore[override]
        def on_face() -> Ask:
            ask = self.method.ask(m, memory.inner)
            snap = lambda: m.each(_snap, ask.point, memory.held, memory.best.point)  # noqa: E731
            point = m.case(ask.point, (memory.off, snap))
            return Ask(point, m.where(ask.need == STEP, GRADIENT, ask.need), ask.again)

        def meet() -> Ask:
            return Ask(m.box.clip(m, self.method.ask(m, memory.inner).point), BOTH)

        project = self._projected.ask(m, memory.projected)
        return m.case(
            project._replace(again=False),
            (memory.phase == FACE, on_face),
            (memory.phase == MEET, meet),
            (memory.phase == BACK, lambda: Ask(memory.best.point, BOTH)),
        )

    def tell(  # type: ignore[override]
        self, m: BoxMachine, memory: FaceMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FaceMemory:
        phases = self._choose_face, self._iterate, self._leave_face, self._project_from
        return m.switch(memory, memory.phase, phases, here)

    def _choose_face(self, m: BoxMachine, memory: FaceMemory, here: Sample) -> FaceMemory:
        """After a projected step: where it is accepted, on to the face of the point."""
        projected = self._projected.tell(m, memory.projected, here, (), ())
        outcome = projected.outcome

        def enter() -> FaceMemory:
            current = projected.current
            held, goal = self._held_variables(m, current), Goal(memory.tol)
            there = self._on_face(m, held, current)
            inner = m.case(
                memory.inner,
                (memory.begun, lambda: self.method.move(m, memory.inner, there, goal)),
                otherwise=lambda: self.method.begin(m, there, goal),
            )
            best = Sample(current.point, current.value)
            after = FaceMemory(
                inner, projected, held, best, outcome, memory.tol, FACE, memory.begun
            )
            return self._look_ahead(m, after)

        return m.case(
            m.but(memory, projected=projected, outcome=outcome),
            (outcome.shows, enter),
        )

    def _iterate(self, m: BoxMachine, memory: FaceMemory, here: Sample) -> FaceMemory:
        ask, there = self.method.ask(m, memory.inner), self._on_face(m, memory.held, here)
        made: Vectors = ()
        sums: Sums = ()
        if ask.vectors and there.gradient is not None:
            made, sums = m.run(
                ask.work or self.method.work, (there.gradient, *ask.vectors), ask.numbers, 1
            )
        inner = self.method.tell(m, memory.inner, there, made, sums)
        stand, outcome = self.method.accepted(inner), inner.outcome
        best = Sample(stand.point, stand.value)
        ended = outcome.status != RUNNING
        pulled = m.no(there.grad_norm > RELEASE * here.grad_norm) & m.isfinite(here.grad_norm)
        after = m.but(
            memory,
            inner=inner,
            best=best,
            outcome=m.but(outcome, status=RUNNING),
            begun=memory.begun | outcome.ended,
            phase=m.where(ended, BACK, m.where(pulled & outcome.ended, MEET, FACE)),
        )
        return self._look_ahead(m, after)

    def _look_ahead(self, m: BoxMachine, memory: FaceMemory) -> FaceMemory:
        """Does the next point of the method lie outside of the box, or off its face?"""
        point, box = self.method.ask(m, memory.inner).point, m.box
        far = m.dot(_mark_outside, point, memory.held, memory.best.point, box.lower, box.upper)
        leaves = (memory.phase == FACE) & (far >= 1.0)
        return m.but(memory, phase=m.where(leaves, MEET, memory.phase), off=far > 0.0)

    def _leave_face(self, m: BoxMachine, memory: FaceMemory, here: Sample) -> FaceMemory:
        usable = m.isfinite(here.grad_norm) & m.isfinite(here.value)
        takes = usable & (here.value <= memory.best.value)
        waits = m.but(memory, outcome=m.but(memory.outcome, shows=False, ended=False), phase=BACK)
        return m.case(waits, (takes, lambda: self._project_from(m, memory, here)))

    def _project_from(self, m: BoxMachine, memory: FaceMemory, here: Sample) -> FaceMemory:
        """The next projected step begins here."""
        projected = self._projected.move(m, memory.projected, here, Goal(memory.tol))
        outcome = m.but(projected.outcome, events=m.no_events, ended=False)
        best = Sample(here.point, here.value)
        return m.but(memory, projected=projected, best=best, outcome=outcome, phase=PROJECT)

    @staticmethod
    def _held_variables(m: BoxMachine, here: Sample) -> Array:
        return m.each(_hold, here.point, here.gradient, m.box.lower, m.box.upper)

    @staticmethod
    def _on_face(m: BoxMachine, held: Array, here: Sample) -> Sample:
        """What f of the free variables is there."""
        if here.gradient is None:
            return here
        free = m.each(lambda xp, a, g: xp.where(a != 0.0, 0.0, g), held, here.gradient)
        return Sample(here.point, here.value, free, m.norm(free) + 0.0 * here.grad_norm)

    def accepted(self, memory: FaceMemory) -> Sample:
        return memory.best

    def rise_limit(self, m: Machine, memory: FaceMemory, shown: Sample) -> RiseLimit:
        return RiseLimit(memory.best, allowance=m.value_noise(memory.best.value))

    def ending(self, memory: FaceMemory, shown: Sample, status: Status) -> Ending:
        return self._projected.ending(memory.projected, shown, status)


# All formulas propagate NaN.


def _hold(xp: ModuleType, x: Array, g: Array, lower: Array, upper: Array) -> Array:
    held = ((x <= lower) & (g >= 0.0)) | ((x >= upper) & (g <= 0.0))
    return xp.astype(held, x.dtype)


def _mark_outside(
    xp: ModuleType, x: Array, held: Array, on_face: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """1 where a free variable is outside of the box, and little where a held one is off the face:
    all of these together are less than 1."""
    out = xp.where(
        held != 0.0,
        OFF * xp.astype(x != on_face, x.dtype),
        xp.astype((x < lower) | (x > upper), x.dtype),
    )
    return out, out


def _snap(xp: ModuleType, x: Array, held: Array, on_face: Array) -> Array:
    return xp.where(held != 0.0, on_face, x)
