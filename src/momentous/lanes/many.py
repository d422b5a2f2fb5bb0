"""`minimize_many`: many problems at once, each with its own steps, status and counts."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal

import array_api_compat
import numpy as np

from momentous.api import choose_method, shown_name
from momentous.core.admission import levels_to_the_user, seed_of, starting_point
from momentous.core.box import Box, read_sides, sides_or_pairs
from momentous.core.checkpoint import Checkpoint
from momentous.core.method import Method
from momentous.core.penalties import Penalty, bounds_or_term, enter_domain, read_penalty
from momentous.core.rule import Rule
from momentous.core.space import Array, Space, to_numpy
from momentous.core.stopping import require
from momentous.io.logs import say, shown
from momentous.io.progress import progress_bar
from momentous.lanes import saved
from momentous.lanes.driver import Driver
from momentous.lanes.few import FEW, FewRun
from momentous.lanes.function import BatchFunction
from momentous.lanes.machine import Lanes
from momentous.lanes.result import ManyResult
from momentous.lanes.run import ManyRun
from momentous.methods.registry import in_box, rules

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
    bounds: Any = None,
    penalty: Any = None,
    multistart: int | None = None,
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
        As for :func:`minimize`, for each problem.
    max_time : float, optional
        Seconds for all of them.
    bounds : optional
        As for :func:`minimize`, one box for all problems; or a pair of a lower and an upper side,
        of which one at least is an array of shape (m, ...), for a box of each.  With NumPy and JAX
        a problem whose box has no finite side runs as without bounds, and where there is one, all
        run as with ``exact``.
    penalty : optional
        As for :func:`minimize`, with NumPy and JAX: a simple term of each problem's x.  Every run
        is then its single run, as with ``exact``.
    multistart : int, optional
        X0 is one point, and there are so many starts of one function: this one, and others that
        ``rng`` draws, between the bounds of a variable where it has two, else around it, as far
        away as max(1, |x|).  ``result.best`` is the lowest run, ``result.best.reached`` says how
        many have got there.
    vectorized : bool
        False: ``fun`` takes one point; it is called for one after the other (JAX: ``jax.vmap``).
    exact : bool
        With NumPy: every run has the points of its single run to the last bit, and takes as long;
        only the evaluations are made together, as up to 16 problems always are.  Without, L-BFGS
        and "auto" differ by rounding, as the curvature of all problems is updated at once.  (The
        other methods are exact anyway.)
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
    seed = seed_of(rng)
    starts = _starts(X0) if multistart is None else _draw_starts(X0, multistart, bounds, seed)
    function = BatchFunction(
        fun, jac, args if isinstance(args, tuple) else (args,), starts, vectorized=vectorized
    )
    rows = function.to_lanes(function.xp.reshape(starts, (starts.shape[0], function.size)))
    if penalty is not None:
        bounds, penalty = bounds_or_term(bounds, penalty)
    box = _box(bounds, function, rows)
    m = Lanes(rows, bounds=box)
    if penalty is not None:
        rows = _add_penalty(penalty, m, function.shape, rows)
    if box is not None:
        rows = _inside(m, box, rows, resume is None)
        function.box = box
    content, arrays = saved.described(resume) if resume is not None else ({}, {})
    saved_method: Any = SimpleNamespace(**content) if content else None
    rule = given = choose_method(method, parameters, saved_method, minimize_many)
    if box is not None or penalty is not None:
        rule = in_box(given, "bounds=" if penalty is None else "penalty=")
    if not (isinstance(rule, Rule) and isinstance(given, Rule)):
        raise TypeError(
            f"{rule.name} does not run in a batch: it calls its function itself; these run: auto, "
            f"{', '.join(rules())}; or loop over minimize()"
        )
    if exact and not isinstance(rows, np.ndarray):
        raise ValueError("exact=True is for NumPy and JAX: PyTorch and CuPy have other operations")
    if tol is not None:
        require("tol", tol, 0)
    if max_time is not None:
        require("max_time", max_time, 0, "a number of seconds")
    if interrupts not in ("raise", "return"):
        raise ValueError(f"interrupts={interrupts!r} must be 'raise' or 'return'")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    make_driver = functools.partial(
        Driver, m, tol=tol, max_iterations=max_iterations, max_evaluations=max_evaluations,
        target=target, seed=seed, values=function.values,
    )  # fmt: skip
    driver = make_driver(rule)
    driver.advice, driver.grad_noise = function.advice, function.grad_noise
    apart = exact or penalty is not None
    if box is not None:
        has_bound = np.isfinite(to_numpy(box.lower)) | np.isfinite(to_numpy(box.upper))
        free = ~has_bound.any(axis=-1)
        driver.is_unbounded = free.tolist()
        driver.unbounded = make_driver(given)
        driver.unbounded.noun, driver.unbounded.advice = "gradient", function.advice
        driver.unbounded.grad_noise = function.grad_noise
        apart = apart or bool(free.any())
    few = isinstance(rows, np.ndarray) and (apart or len(rows) <= FEW)
    state = None
    if resume is not None:
        state = saved.read(content, arrays, driver, rows, few)
        state.require_same_function(function, driver)
    with shown(LOGGER.name, logging.INFO if disp else None), progress_bar(progress) as bar:
        run = (FewRun if few else ManyRun)(
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
        result.method_name = shown_name(method, rule)
        bar.end(f"{len(result)} of {len(result)} problems")
        say(LOGGER, logging.INFO, repr(result))
    return result


def _draw_starts(x0: Any, count: int, bounds: Any, seed: int) -> Array:
    """The start, and others drawn by the bounds, or around it."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"multistart={count!r} must be a whole number >= 1")
    start = starting_point(x0)
    first, random = to_numpy(start), np.random.default_rng(seed)
    shape = (count - 1, *first.shape)
    drawn = first + np.maximum(1.0, np.abs(first)) * random.standard_normal(shape)
    if bounds is not None:
        lower, upper = read_sides(sides_or_pairs(bounds), first.shape, str(first.dtype))
        both = np.isfinite(lower) & np.isfinite(upper)
        low, high = np.where(both, lower, 0.0), np.where(both, upper, 0.0)
        inside = low + (high - low) * random.random(shape)
        drawn = np.clip(np.where(both, inside, drawn), lower, upper)
    rows = np.concatenate([first[None], drawn.astype(first.dtype)])
    xp, device = array_api_compat.array_namespace(start), array_api_compat.device(start)
    return _starts(xp.asarray(rows, dtype=start.dtype, device=device))


def _box(bounds: Any, function: BatchFunction, rows: Array) -> Box | None:
    """The boxes of all problems, like the rows; None where no bound is finite."""
    if bounds is None or (isinstance(bounds, tuple | list) and not bounds):
        return None
    given, shape = sides_or_pairs(bounds), (len(rows), *function.shape)
    sides = (given.lb, given.ub) if hasattr(given, "lb") and hasattr(given, "ub") else ()
    of_each = any(getattr(side, "ndim", 0) == len(shape) for side in sides)
    dtype = str(to_numpy(rows[:1]).dtype)
    lower, upper = read_sides(given, shape if of_each else function.shape, dtype)
    if not (np.isfinite(lower).any() or np.isfinite(upper).any()):
        return None
    xp, device = array_api_compat.array_namespace(rows), array_api_compat.device(rows)

    def like_rows(side: np.ndarray) -> Array:
        whole = np.broadcast_to(side, shape).reshape(rows.shape)
        return xp.asarray(np.array(whole), dtype=rows.dtype, device=device)

    return Box(like_rows(lower), like_rows(upper))


def _add_penalty(term: Any, m: Lanes, shape: tuple[int, ...], rows: Array) -> Array:
    """Give the machines of single runs a simple term; the starts, where that is finite."""
    if not isinstance(rows, np.ndarray):
        raise ValueError(
            "minimize_many(penalty=) is for NumPy and JAX: on a GPU jax.vmap(momentous.jax.solve) "
            "runs many problems with a term; or loop over minimize()"
        )
    first = rows[0].reshape(shape)
    space = Space(first)
    read_penalty(term, space, first)
    m.space.penalty, m.noun = PenaltyOfRow(term, space), "proximal gradient"
    return np.stack([enter_domain(m.space.penalty, m.space, row) for row in rows])


class PenaltyOfRow(Penalty):
    """A simple term of x as it is, for x as a row of a batch."""

    __slots__ = ("shape",)

    def __init__(self, given: Any, space: Space):
        super().__init__(given, space)
        self.shape = space.shape

    def apply(self, m: Any, function: Any, x: Array, *others: Any) -> Any:
        shaped = (np.reshape(a, self.shape) if np.ndim(a) else a for a in (x, *others))
        made = super().apply(m, function, *shaped)
        return np.reshape(made, -1) if np.ndim(made) else made


def _inside(m: Lanes, box: Box, rows: Array, counts: bool) -> Array:
    """The starts in their boxes, with a warning where that moves one in a new batch."""
    inside = box.clip(m, rows)
    xp, apart = m.xp, 4.0 * m.rounding * m.xp.abs(inside)
    moved = int(xp.count_nonzero(xp.any(xp.abs(rows - inside) > apart, axis=-1)))
    if counts and moved:
        warnings.warn(
            f"{moved} of {len(rows)} starts lie outside of the bounds: these runs start at the "
            "nearest points within them",
            RuntimeWarning,
            stacklevel=levels_to_the_user(),
        )
    return inside


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
