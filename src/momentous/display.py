"""How runs are shown: ``disp``, ``verbose`` and ``progress``; the ending of each run is logged."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Collection
from types import TracebackType
from typing import Self

from momentous.core.admission import levels_to_the_user
from momentous.core.loop import IntermediateResult, Run
from momentous.core.result import Result
from momentous.core.status import Status
from momentous.io.logs import is_heard, say, shown
from momentous.io.progress import progress_bar
from momentous.io.types import Options, Unchecked

LOGGER = logging.getLogger("momentous.minimize")

SHOWN = ("disp", "verbose", "progress")
_FAILED = {
    Status.MAX_ITERATIONS: "Maximum number of iterations reached",
    Status.MAX_EVALUATIONS: "Maximum number of evaluations reached",
}


def take(keywords: Options, names: Collection[str] = SHOWN) -> Options:
    """The keywords of these names, which are taken away from the others."""
    return {name: keywords.pop(name) for name in names if name in keywords}


class Display:
    """A context around a run, which shows it as asked for and logs how it ended.

    It is told of `step` and, at the end, of the ``result``; Ctrl-C brings that along.
    """

    result: Result | None = None

    def __init__(self, asked: Options):
        self._volume = max(_volume(name, asked.get(name)) for name in ("disp", "verbose"))
        self._wants_bar = _volume("progress", asked.get("progress")) > 0
        self._bar = progress_bar(self._wants_bar)
        level = logging.INFO if self._volume == 1 else logging.DEBUG
        self._logs = shown(LOGGER.name, level if self._volume > 0 else None)

    def __enter__(self) -> Self:
        self._logs.__enter__()
        self._bar.__enter__()
        self._details = is_heard(LOGGER, logging.DEBUG)
        return self

    @property
    def wants_steps(self) -> bool:
        """Is there anything to say of each step?"""
        return self._wants_bar or self._details

    def step(self, run: Run, step: IntermediateResult) -> None:
        """Show an iteration."""
        if self._details:
            say(LOGGER, logging.DEBUG, repr(step))
        if self._wants_bar:
            self._bar(_where(step, run.progress.noun), _share(run))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        result = self.result if error is None else getattr(error, "result", None)
        if result is not None:
            self._bar.end(result.message)
        self._bar.__exit__(kind, error, trace)
        if result is not None and is_heard(LOGGER, logging.INFO):
            say(LOGGER, logging.INFO, _summary(result))
        self._logs.__exit__(None, None, None)
        if error is None and result is not None and self._volume > 0 and not result.success:
            what = _FAILED.get(result.status, "The run did not succeed")  # as SciPy does
            warn(f"{what}: {result.message}", limit=result.status in _FAILED)


def finish_and_show(run: Run, asked: Options) -> Result:
    """The result of a run, with what ``return_all`` asks for, shown as it is asked for."""
    copy, points = run.oracle.space.copy, []
    wants_all = bool(asked.get("return_all"))
    with Display(asked) as display:
        if wants_all:
            points.append(copy(run.report.sample.point))
        if wants_all or display.wants_steps:
            for step in run:
                if wants_all:
                    points.append(copy(step.x))
                display.step(run, step)
        result = display.result = run.finish()
    if wants_all:
        result["allvecs"] = points
    return result


def _volume(name: str, value: Unchecked) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} must be True, False or a number, such as 1") from None


def _where(step: IntermediateResult, noun: str) -> str:
    """Where a run stands, in a line."""
    value = "" if math.isnan(step.fun) else f", objective {step.fun:.6g}"
    return f"iteration {step.nit}{value}, {noun} norm {step.grad_norm:.3g}"


def _share(run: Run) -> float | None:
    """How much of the way to the tolerance is done, in digits of the gradient norm."""
    first, now, goal = run.progress.start_norm, run.progress.best_grad_norm, run.tolerance
    if not 0 < goal < first < math.inf or not now > 0:
        return None
    return math.log(first / now) / math.log(first / goal)


def _summary(result: Result) -> str:
    """How a run ended, in five lines."""
    lines = {
        "Objective": f"{result.fun:.6g}",
        "Iterations": result.nit,
        "Values": result.nfev,
        "Maps" if "image" in result else "Gradients": result.njev,
    }
    return "\n".join([result.message, *(f"    {name}: {text}" for name, text in lines.items())])


def warn(message: str, limit: bool = False) -> None:
    """SciPy's warning about a run or its options."""
    from scipy.optimize import OptimizeWarning  # here: SciPy's warning costs an import

    class LimitWarning(OptimizeWarning, RuntimeWarning):  # type: ignore[misc]
        """Of a limit that ended a run: SciPy's methods use either class."""

    kind = LimitWarning if limit else OptimizeWarning
    warnings.warn(message, kind, stacklevel=levels_to_the_user())
