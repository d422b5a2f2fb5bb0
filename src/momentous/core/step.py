"""What a step gives back: the memory that the next step needs, and the report to the loop."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Generic

from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Event
from momentous.io.types import Unchecked

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", default=Unchecked)  # so that `Method` alone means a method of any memory
else:
    M = typing.TypeVar("M")


@record
class RiseLimit:
    """How far above a reference point f may be where a run ends: numbers for `core.acceptance`."""

    reference: Sample  # where f is known
    allowance: float = 0.0  # what f may be above it: the noise of the values
    relative: float = 0.0  # the same, as a fraction of the larger of the two values
    level: float = 0.0  # within this, values cannot tell, and the gradients at both points decide
    convex: bool = False  # is |grad f| |x - reference| excused too?  A convex f may rise by that.


@record
class Report:
    """A method's report to the loop after a step."""

    sample: Sample  # the point whose gradient this step took
    step_size: float  # eta, for the trace
    events: tuple[Event, ...] = ()  # what happened in this step
    ending: Ending | None = None  # set when the method has ended by its own rule
    accepted: Sample | None = None  # the last point accepted by its value; x0 if none is looked at
    noise: float = 0.0  # how far a difference of values may be off, where that was measured
    limit: RiseLimit | None = None  # for an end at the sample; None: any small gradient will do


@record
class Step(Generic[M]):
    """A step of a method: its own memory, and what it tells."""

    memory: M
    report: Report


@record
class UnderWay(Generic[M]):
    """An iteration, as far as it has come; a checkpoint between two evaluations of a rule holds
    it in place of the memory."""

    memory: M
    begun: bool = False  # has the memory been told of any of it?  Never by a plain method.
    shown: Sample = NO_SAMPLE  # what it will report, so far
    ended: bool = False  # are its evaluations done?
    sets_out: bool = False  # is it what precedes the first iteration?
    asked: Array = None  # the point of an evaluation that was broken off
    known: Sample | None = None  # of a plain method: what the oracle knew before this step
    # Evaluations up to here, as a checkpoint holds them; of a plain method before this step.
    nfev: int = 0
    njev: int = 0
