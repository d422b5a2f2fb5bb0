"""`minimize_many`: many problems at once, each with its own steps, status and counts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Literal

import array_api_compat
import numpy as np

from momentous.api import choose_method
from momentous.core.admission import starting_point
from momentous.core.checkpoint import Checkpoint
from momentous.core.method import Method
from momentous.core.rule import Rule
from momentous.core.space import Array
from momentous.core.stopping import require
from momentous.io.logs import shown
from momentous.io.progress import progress_bar
from momentous.lanes import saved
from momentous.lanes.driver import Driver
from momentous.lanes.function import BatchFunction
from momentous.lanes.machine import Lanes
from momentous.lanes.result import ManyResult
from momentous.lanes.run import ManyRun
from momentous.methods.registry import rules

LOGGER = logging.getLogger("momentous.minimize_many")


def minimize_many(
    fun: Callable[..., Any],
    X0: Any,
    args: Any = (),
    *,
    jac: Any = None,
    method: str | Method | type[Method] | None = None,
    tol: float | None = None,
    max_iterations: int | None = 100_000,
    max_evaluations: int | None = None,
    max_time: float | None = None,
    target: float | None = None,
    vectorized: bool = True,
    exact: bool = False,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: str | os.PathLike[str] | None = None,
    rng: int = 0,
    interrupts: Literal["raise", "return"] = "raise",
    progress: bool = False,
    disp: bool | int = False,
    **parameters: Any,
) -> ManyResult:
    """Find stationary points of many smooth functions, or of one from many starts, at once.

    Every problem runs as :func:`minimize` would run it, with its own steps, status and counts; but
    all that still run are evaluated in one call.  Those that have ended leave the batch.

    Parameters
    ----------
    fun : callable
        ``fun(X, *args) -> values``, or ``-> (values, gradients)`` with ``jac=True``: X of shape
        (k, ...) holds the k points that still run, values has shape (k,) and gradients that of X.
        No point may depend on another.  It must not write into X.
    X0 : array of shape (m, ...), or a list of m starts
        Of NumPy, PyTorch, CuPy, JAX or another library of the array API standard; the results have
        the same library, dtype and device.  PyTorch and CuPy keep everything on the device; of JAX
        the function is compiled, and the methods run on the host (on a GPU
        ``jax.vmap(momentous.jax.solve)`` compiles them too).
    args : tuple
        Further arguments of ``fun`` and ``jac``.  Arrays whose first axis has length m are data of
        the problems: they are cut to those that still run, as X is (so ``args=(numpy.arange(m),)``
        tells which they are).  Bind what is not meant so into ``fun``.
    jac : True, callable, 'autodiff', '2-point', '3-point' or None
        The gradients: True: ``fun`` returns them with the values; ``jac(X, *args) -> gradients``;
        'autodiff', the default for PyTorch and JAX; by differences of all points in one call (None
        with NumPy: '2-point', with a warning).
    method : str, Method or class, optional
        As for :func:`minimize`; it must be a `Rule`, as "auto", L-BFGS, the paper's methods and the
        parameter-free ones are.
    tol, max_iterations, max_evaluations, target, rng
        As for :func:`minimize`, for each problem; an iteration under way is finished.
    max_time : float, optional
        Seconds for all of them.
    vectorized : bool
        False: ``fun`` takes one point; it is called for one after the other (JAX: ``jax.vmap``).
    exact : bool
        With NumPy: every run has the points of its single run to the last bit.  Without, L-BFGS and
        "auto" differ from it by rounding, as the curvature of all problems is updated at once, and
        take about a seventh of the time; the other methods are exact anyway.
    checkpoint, resume
        As for :func:`minimize`, for the batch; fun, X0, method and exact are to be the same.
        Problems that have ended stay so, by a limit too; tol may not be smaller than theirs.
    interrupts : {"raise", "return"}
        What Ctrl-C does; the exception has the results as its attribute ``result``, as has one that
        ``fun`` raises.  Problems that were still running have ``Status.INTERRUPTED``.
    progress, disp
        Show a bar of the problems that are done; print a table at the end.
    **parameters
        Parameters of the method, when it is a name or a class.

    Returns
    -------
    ManyResult
        Arrays ``x fun jac grad_norm success status nit nfev njev restarts``, one entry per problem;
        ``message``, a list; ``result[i]``, the `Result` of problem i; ``result.best``, the lowest.

    Notes
    -----
    A start where value or gradient is not finite ends that problem with ``Status.NON_FINITE``.
    A problem that fails returns one of the points that it has evaluated, without the further
    evaluations that :func:`minimize` may take for this.

    Examples
    --------
    >>> import numpy as np
    >>> from momentous import minimize_many
    >>> def f(X, a):
    ...     return np.sum((X**2 - a[:, None]) ** 2, axis=1), 4 * X * (X**2 - a[:, None])
    >>> a = np.array([1.0, 4.0, 9.0])
    >>> result = minimize_many(f, np.full((3, 2), 0.5), (a,), jac=True)
    >>> np.round(result.x, 4)
    array([[1., 1.],
           [2., 2.],
           [3., 3.]])
    >>> result[2].status.name, result.best.reached
    ('CONVERGED', 3)
    """
    starts = _starts(X0)
    function = BatchFunction(
        fun, jac, args if isinstance(args, tuple) else (args,), starts, vectorized=vectorized
    )
    rows = function.to_lanes(function.xp.reshape(starts, (starts.shape[0], function.size)))
    content, arrays = saved.described(resume) if resume is not None else ({}, {})
    rule = choose_method(method, parameters, _SavedMethod.of(content), minimize_many)
    if not (isinstance(rule, Rule) and rule.compiles):
        raise TypeError(
            f"{rule.name} does not run in a batch: it calls its function itself; these run: auto, "
            f"{', '.join(rules())}; or loop over minimize()"
        )
    if exact and not isinstance(rows, np.ndarray):
        raise ValueError("exact=True is for NumPy and JAX: PyTorch and CuPy have other operations")
    for name, value in (("tol", tol), ("max_time", max_time)):
        if value is not None:
            require(name, value, 0)
    if interrupts not in ("raise", "return"):
        raise ValueError(f"interrupts={interrupts!r} must be 'raise' or 'return'")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    m = Lanes(rows, exact=exact)
    driver = Driver(
        m, rule, tol, max_iterations=max_iterations, max_evaluations=max_evaluations,
        target=target, seed=rng, values=function.values,
    )  # fmt: skip
    state = saved.read(content, arrays, driver, rows) if resume is not None else None
    with shown(LOGGER.name, logging.INFO if disp else None), progress_bar(progress) as bar:
        run = ManyRun(
            function, driver, rows, max_time=max_time, checkpoint=checkpoint, resume=state,
            progress=(lambda done, all_: bar(f"{done} of {all_} problems", done / all_))
            if progress
            else None,
        )  # fmt: skip
        try:
            result = run.finish()
        except KeyboardInterrupt as error:
            if interrupts == "raise" or not hasattr(error, "result"):  # before anything was known
                raise
            result = error.result
        bar.end(f"{len(result)} of {len(result)} problems")
        LOGGER.info("%r", result)
    return result


def _starts(X0: Any) -> Array:
    """The starts as one array (m, ...) of our own."""
    if isinstance(X0, list | tuple):
        if not len(X0):
            raise ValueError("X0 is empty; pass at least one start")
        arrays = [x for x in X0 if array_api_compat.is_array_api_obj(x)]
        if arrays:
            xp = array_api_compat.array_namespace(arrays[0])
            X0 = [x if array_api_compat.is_array_api_obj(x) else xp.asarray(x) for x in X0]
            shapes = sorted({tuple(x.shape) for x in X0})
            if len(shapes) > 1:
                raise ValueError(
                    f"the starts in X0 have shapes {shapes[0]} and {shapes[1]}; all problems of a "
                    "batch must have as many variables: call minimize_many for each shape"
                )
            X0 = xp.stack(X0)
    starts = starting_point(X0)
    if starts.ndim < 2:
        raise ValueError(
            f"X0 has shape {tuple(starts.shape)}; it must have one row per problem, (m, d): pass "
            "X0[None] for one problem, or X0[:, None] for problems of one variable"
        )
    if 0 in starts.shape:
        raise ValueError(
            f"X0 has shape {tuple(starts.shape)}; pass at least one start and variable"
        )
    return starts


class _SavedMethod:
    """What `choose_method` asks of a run to resume."""

    def __init__(self, method: dict[str, Any]):
        self.method = method

    @staticmethod
    def of(content: dict[str, Any]) -> Any:
        return _SavedMethod(content["method"]) if content else None
