"""Outside solvers, SciPy's and PyTorch's, behind a meter: counted, timed and stopped alike."""

from collections.abc import Callable
from typing import Any

from momentous.io.optional import require
from momentous.lab.meter import (
    NEVER,
    FunctionMeter,
    Limits,
    NotApplicableError,
    TimedInfo,
    run_metered,
)
from momentous.lab.record import RunRecord
from momentous.testbed import Problem
from momentous.testbed.problem import Vector

Solve = Callable[[FunctionMeter, Vector], str]
"""(meter, flat start) -> why the solver ended by itself."""


def _scipy(method: str, **options: Any) -> Solve:
    def solve(meter: FunctionMeter, x0: Vector) -> str:
        from scipy.optimize import minimize

        fun, jac = (meter.value, meter.gradient) if meter.separate else (meter.both, True)
        meter.start_clock()
        answer = minimize(fun, x0, jac=jac, method=method, options=options)
        return str(answer.message)

    return solve


def _torch_lbfgs(meter: FunctionMeter, x0: Vector) -> str:
    """As many pairs of vectors as SciPy keeps; its closure always wants value and gradient."""
    try:
        torch = require("torch", "torch", "torch:lbfgs")
    except ModuleNotFoundError as error:
        raise NotApplicableError(str(error)) from None
    leaf = torch.from_numpy(x0.copy()).requires_grad_()
    point = leaf.detach().numpy()  # the same memory: the solver moves it
    optimiser = torch.optim.LBFGS(
        [leaf],
        lr=1.0,
        max_iter=NEVER,
        max_eval=NEVER,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        value, gradient = meter.both(point)
        # The solver copies it; PyTorch warns of what it could not write into.
        leaf.grad = torch.from_numpy(gradient if gradient.flags.writeable else gradient.copy())
        return value

    meter.start_clock()
    optimiser.step(closure)
    return "torch.optim.LBFGS ended by itself: its direction or its step vanished"


OUTSIDE_SOLVERS: dict[str, Solve] = {
    "scipy:l-bfgs-b": _scipy("L-BFGS-B", ftol=0.0, gtol=0.0, maxls=50, maxiter=NEVER, maxfun=NEVER),
    "scipy:cg": _scipy("CG", gtol=0.0, maxiter=NEVER),
    "torch:lbfgs": _torch_lbfgs,
}
"""The outside solvers by name."""


def run_outside(
    name: str, problem: Problem, limits: Limits, *, separate: bool = False
) -> RunRecord[TimedInfo]:
    """Run one of `OUTSIDE_SOLVERS` from the start of the problem.

    With ``separate`` it gets value and gradient as two functions, where it can make use of that.
    """
    return run_metered(name, OUTSIDE_SOLVERS[name], FunctionMeter(problem, limits, separate))
