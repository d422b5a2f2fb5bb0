"""The API: ``minimize`` to the end, ``iterate`` step by step, ``accelerate`` for maps."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Literal, ParamSpec, TypeVar, cast

import numpy as np

from momentous.core import gradient_check
from momentous.core.admission import Fun, levels_to_the_user, seed_of
from momentous.core.box import read_bounds
from momentous.core.checkpoint import (
    MALFORMED,
    Checkpoint,
    CheckpointError,
    PackedRun,
    RunState,
    load,
)
from momentous.core.loop import Callback, Layout, Run, RunOptions
from momentous.core.method import Method
from momentous.core.oracle import Oracle
from momentous.core.penalties import add_penalty, enter_domain, membership
from momentous.core.result import Result, StartError, Trace
from momentous.core.sources import Jac, MapSource, function_source
from momentous.core.space import Array, Space
from momentous.core.stopping import (
    Criterion,
    Evaluations,
    GradientNorm,
    Iterations,
    Target,
    WallTime,
    flatten,
    require,
    require_truth,
)
from momentous.display import LOGGER, finish_and_show, take
from momentous.distributed.driver import RanksArgument, layout_of
from momentous.io.types import AnyFunction, FunctionTo, Options, Unchecked
from momentous.methods.descent_map import DescentMap, RestartRule
from momentous.methods.registry import AUTO, REGISTRY, in_box, method_class, method_of, replaces
from momentous.scipy_options import (
    CALLED_HERE,
    MISSING_HERE,
    NAMES,
    OF_WHOLE_RUNS,
    as_callback,
    of_whole_run,
    refuse,
    translate,
    warn_of_hessians,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")
# The positional arguments, as in SciPy.
_ORDER = (
    "fun", "x0", "args", "method", "jac", "hess", "hessp", "bounds", "constraints", "tol",
    "callback", "options",
)  # fmt: skip


def _by_name(caller: str, args: tuple[Unchecked, ...], keywords: Options) -> Options:
    """All arguments by their names; the errors are those of Python, with the caller's name."""
    if len(args) > len(_ORDER):
        raise TypeError(
            f"{caller}() takes at most {len(_ORDER)} arguments by position, those of "
            f"scipy.optimize.minimize, but {len(args)} were given"
        )
    given = dict(zip(_ORDER, args, strict=False))
    for name in given.keys() & keywords.keys():
        raise TypeError(f"{caller}() got two values for {name!r}")
    given |= keywords
    for name in _ORDER[:2]:
        if name not in given:
            other = next((each for each in given if CALLED_HERE.get(each) == name), None)
            hint = "" if other is None else f"; {other!r} is called {name} here"
            raise TypeError(f"{caller}() needs {name}: {caller}(fun, x0, jac=...){hint}")
    return given


def _with_scipy_options(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorator: ``options={...}``, and SciPy's names among the keywords, become keywords of ours.

    ``scipy.optimize.minimize`` hands its options to a method of the user's as keywords; here they
    may come in a dictionary too, and go before keywords of the same meaning, as in SciPy.
    """

    @functools.wraps(function)
    def called(*args: Unchecked, **keywords: Unchecked) -> _T:
        keywords = _by_name(function.__name__, args, keywords)
        options = keywords.pop("options", None)
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options={options!r} must be a dictionary, or None")
        if options:
            keywords = keywords | dict(options)
        if not NAMES.isdisjoint(keywords):
            keywords = translate(keywords)
        return function(**keywords)  # type: ignore[call-arg]

    return called


@_with_scipy_options
def iterate(
    fun: Fun,
    x0: object,
    args: object = (),
    method: str | Method | type[Method] | None = None,
    jac: Jac = None,
    hess: object = None,
    hessp: object = None,
    bounds: object = None,
    constraints: object = (),
    tol: float | None = None,
    callback: Callback | None = None,
    options: Options | None = None,
    *,
    max_iterations: int | None = 100_000,
    max_evaluations: int | None = None,
    max_time: float | None = None,
    target: float | None = None,
    stop: Criterion | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: str | os.PathLike[str] | RunState | PackedRun | None = None,
    rng: int | np.random.Generator | None = None,
    trace: bool | Trace = True,
    interrupts: Literal["raise", "return"] = "raise",
    ranks: RanksArgument = None,
    check_gradient: bool = False,
    penalty: object = None,
    **parameters: object,
) -> Run:
    """Run :func:`minimize` one step at a time.

    Returns an iterator that takes a step whenever it is asked for the next item, and yields an
    intermediate result: ``x fun jac grad_norm nit nfev njev restarts time events``.  Its attribute
    ``result`` is the :class:`Result`; asking for it ends the run.

    Examples
    --------
    >>> import numpy as np
    >>> from momentous import iterate
    >>> run = iterate(lambda x: (float(x @ x), 2 * x), np.ones(3), jac=True)
    >>> norms = [step.grad_norm for step in run]
    >>> run.result.success
    True
    """
    caller = cast(
        AnyFunction, parameters.pop("_caller", iterate)
    )  # what the user has called, for errors
    if type(constraints) is not tuple or constraints:
        refuse(constraints=constraints)
    if hess is not None or hessp is not None:
        warn_of_hessians(hess=hess, hessp=hessp)
    layout = Layout() if ranks is None else layout_of(ranks)
    with layout.announced():
        start = layout.start(x0)
        space = layout.space(start)
        if penalty is not None:
            bounds = add_penalty(penalty, bounds, space, start)
        if bounds is not None or space.agree is not None:
            start = _enter_box(bounds, space, start, resume is None)
        if space.penalty is not None:
            start = enter_domain(space.penalty, space, start)
        saved = None if resume is None else load(resume, space)
        chosen = choose_method(method, parameters, saved, caller)
        oracle = layout.oracle(function_source(fun, jac, _tuple(args), space))
        if space.box is not None or space.penalty is not None:
            chosen = in_box(chosen, "bounds=" if penalty is None else "penalty=")
        require_truth("check_gradient", check_gradient)
        if check_gradient and saved is None:
            if not callable(jac) and jac not in (True, "autodiff"):
                raise ValueError(
                    f"check_gradient=True: jac={jac!r} gives differences, not a gradient"
                )
            gradient_check.check_gradient(oracle, start)
        run = _run(
            layout, oracle, chosen, start, saved, seed_of(rng), tol=tol, target=target, stop=stop,
            max_evaluations=max_evaluations, max_time=max_time, max_iterations=max_iterations,
            callback=callback, checkpoint=checkpoint, trace=trace, interrupts=interrupts,
            method_name=shown_name(method, chosen),
        )  # fmt: skip
        if caller is not minimize:  # which gives a result in any case
            run.raise_interrupt()
            if not (run.begun or run.interrupted):
                raise StartError(run.result)
        return run


def _enter_box(bounds: Unchecked, space: Space, start: Array, counts: bool) -> Array:
    """Give the space its box; the start in it, which counts in a new run only."""
    space.box = read_bounds(bounds, space)
    if space.box is None:
        return start
    inside = space.box.clip(space, start)
    rounding = 4.0 * space.rounding
    if counts and space.dot(lambda xp, x, y: _apart(xp, x, y, rounding), start, inside) > 0.0:
        warnings.warn(
            "x0 lies outside of the bounds: the run starts at the nearest point within them",
            RuntimeWarning,
            stacklevel=levels_to_the_user(),
        )
    return inside


def _apart(xp: Unchecked, x: Array, y: Array, rounding: float) -> tuple[Array, Array]:
    """1 where two points differ by more than rounding."""
    apart = xp.astype(xp.abs(x - y) > rounding * xp.abs(y), x.dtype)
    return apart, apart


def _run(
    layout: Layout,
    oracle: Oracle,
    method: Method,
    start: Array,
    saved: RunState | None,
    seed: int = 0,
    *,
    tol: float | None,
    target: float | None,
    stop: Criterion | None,
    max_evaluations: int | None,
    max_time: float | None,
    max_iterations: int | None,
    callback: Callback | None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
    trace: bool | Trace,
    interrupts: str,
    method_name: str | None = None,
) -> Run:
    """The loop with all that was asked for; ``saved`` is a run to resume."""
    if stop is not None and not isinstance(stop, Criterion):
        raise TypeError(f"stop={stop!r} must be a stopping criterion such as Stagnation(500)")
    if saved is not None and tol is None:
        tol = saved.tol
    if tol is not None:
        require("tol", tol, 0)
    goal = method.tolerance_for(tol)
    wanted = [  # in the order in which they count
        GradientNorm(float(goal)) if goal and method.stops_at_tolerance else None,
        None if target is None else Target(target),
        stop,
        None if max_evaluations is None else Evaluations(max_evaluations),
        None if max_time is None else WallTime(max_time),
        None if max_iterations is None else Iterations(max_iterations),
    ]
    if interrupts not in ("raise", "return"):
        raise ValueError(f"interrupts={interrupts!r} must be 'raise' or 'return'")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, not {callback!r}")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    options = RunOptions(
        stop=flatten([criterion for criterion in wanted if criterion is not None]),
        tol=None if tol is None else float(tol),
        seed=seed,
        callback=None if callback is None else as_callback(callback, oracle.space),
        checkpoint=checkpoint,
        trace=_trace(trace, saved is not None),
        resume=saved,
        raises_interrupts=interrupts == "raise",
        method_name=method_name,
    )
    return layout.run(oracle, method, start, options)


def _with_the_arguments_of(
    other: Callable[_P, object],
) -> Callable[[FunctionTo[_T]], Callable[_P, _T]]:
    """Decorator: show (and type) a function's arguments as those of another."""

    def decorate(function: FunctionTo[_T]) -> Callable[_P, _T]:
        returns = inspect.signature(function).return_annotation
        signature = inspect.signature(other).replace(return_annotation=returns)
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate


@_with_the_arguments_of(iterate)
def minimize(*args: Unchecked, **keywords: Unchecked) -> Result:
    """Find a stationary point of a smooth, possibly nonconvex function.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> float``, or ``-> (float, array)`` with ``jac=True``.  It must not write
        into x: NumPy arrays are read-only there (compiled code that insists on a writable buffer
        needs ``const``, or ``x.copy()``).
    x0 : array
        Where to start: an array of NumPy, PyTorch, JAX or CuPy, of any shape and floating-point
        dtype; the result has the same type, shape, dtype and device.
    args : tuple
        Further arguments of ``fun`` and ``jac``.
    jac : callable, True, 'autodiff', '2-point', '3-point' or None
        The gradient: ``jac(x, *args) -> array``; True: ``fun`` returns it with the value;
        'autodiff': by PyTorch or JAX; '2-point', '3-point': by differences of ``fun``; None:
        'autodiff' where x0 is a tensor of PyTorch or an array of JAX, and otherwise '2-point', with
        a warning.
    method : str, Method or class, optional
        ``"auto"`` (the default in a new run), a registered name such as ``"ada-ragd"``, a class,
        or an instance with its parameters.  Parameters of the method may also be given here as
        keywords.  Of SciPy's names "BFGS" and "L-BFGS-B" are "lbfgs", "CG" is "cg", and those of
        its other methods that use gradients are "auto"; those without gradients are refused.
    tol : float, optional
        Stop when the Euclidean norm of the gradient is at most this.  The default is the method's:
        1e-5, or for RAGD and RHB with ``eps`` given what their theorem promises.  0: never.
    max_iterations, max_evaluations, max_time : optional
        Limits on iterations (default 100,000), on evaluations, and on seconds inside the method and
        the user's functions.  A call that gives value and gradient is one evaluation; of two
        functions ``nfev`` or ``njev`` counts, whichever is larger.
    target : float, optional
        Stop when the objective is at most this.
    stop : Criterion, optional
        A further reason to stop: ``Stagnation(500)``, ``GradientNorm(1e-3) & Iterations(100)``, ...
    callback : callable, optional
        After every iteration ``callback(intermediate_result)`` if its argument has that name, and
        otherwise ``callback(x)``, as in SciPy; it stops the run by returning True or by raising
        StopIteration.
    checkpoint : path or Checkpoint, optional
        Save the run there from time to time.
    resume : path, optional
        Go on from that checkpoint (pass the same ``fun`` and an ``x0`` of the same shape).  Method,
        parameters and tolerance are those of the checkpoint where they are not given; another
        method, or other parameters, are refused.  One value and gradient there, not counted, show
        whether ``fun`` is the same.
    rng : int, numpy.random.Generator or None
        Where randomised methods draw from; None is 0, so that runs repeat.
    trace : bool or Trace
        Keep every iteration (default).  ``Trace(values=True)`` evaluates the objective in each,
        neither counted nor timed.
    interrupts : {"raise", "return"}
        What Ctrl-C does.  "raise": the run ends, is saved, and ``KeyboardInterrupt`` is raised with
        the best point so far in its attribute ``result``, so that a script does not go on with its
        next run.  "return": the result is returned, with ``Status.INTERRUPTED``.
    ranks : {"data", "variables"}, optional
        The program runs as several processes (under torchrun, mpirun, ...; docs/cluster.md), and
        either every one has x and its share of the data, and ``fun`` and ``jac`` give its part of
        a sum; or every one has its part of x, and ``fun`` gives the value of the whole and ``jac``
        its part of the gradient.  Of engines other than the launcher's:
        ``momentous.distributed.Data(engine)`` or ``Variables(engine)``.
    check_gradient : bool
        Before the run, compare ``jac`` with differences of ``fun`` near x0: a ValueError names what
        is wrong.  At most 12 calls, neither counted nor timed; `momentous.core.gradient_check` says
        which mistakes are found.
    bounds : optional
        Lower and upper bounds of x, as in SciPy: a pair per variable, None or infinity for none, or
        ``scipy.optimize.Bounds``; or a pair of numbers, or of arrays, for all (a pair of arrays of
        two numbers is refused: it could be two pairs).  ``fun`` is never evaluated outside, by
        differences neither; l = u fixes a variable; an x0 outside is moved inside, with a warning.
        ``tol`` is then compared with the norm of x - P(x - g), P the projection onto the box;
        of variables whose bounds are closer than 100 ``tol``, in parts of that width.
        Methods that keep to bounds: "auto", "lbfgs", "gd", "ada-ragd", "ada-rhb".
    penalty : optional
        A simple convex term h that is added to ``fun``: ``L1(weight)``, ``ElasticNet``,
        ``GroupL2``, ``NonNegative``, ``Box``, ``Simplex``, ``Ball``, or an object with ``value(x)``
        and ``prox(x, step)``, where h(z) + |z - x|^2/(2 step) is least.  ``fun`` is evaluated only
        where h is finite, but for differences and ``check_gradient`` in a simplex or a ball.
        ``tol`` is then compared with the norm of x - prox(x - g, 1), g the gradient of ``fun``
        (with the ridge of an elastic net).  An x0 where h is infinite is moved to prox(x0, 1), with
        a warning.  Methods that take one: "auto", "lbfgs", "gd"; not together with ``bounds``.
        With ``ranks="variables"`` weights and groups are those of this rank's part of x; an object
        of your own needs an attribute ``separable = True``, a sum over parts.
    options : dict, optional
        Any of these keywords, or SciPy's options: ``maxiter``, ``gtol`` (in the Euclidean norm),
        ``ftol``, ``xtol``, ``maxfun``, ``disp``, ``maxcor``, ``finite_diff_rel_step``, ``workers``
        (a function like ``map``), ...  SciPy's may also be given as keywords; those without a
        meaning here are named in an ``OptimizeWarning``.  ``hess`` and ``hessp`` are not used, with
        a warning; ``constraints`` are refused.  ``disp=1`` prints how the run ended,
        ``verbose=2`` every iteration, and ``progress=True`` shows a bar.
    **parameters
        Parameters of the method, when ``method`` is a name or a class.

    Returns
    -------
    Result
        ``x fun jac nit nfev njev success status message`` as in SciPy; and ``grad_norm restarts
        time trace best_x best_grad_norm numbers method method_name``.  ``fun`` and ``jac`` belong
        to ``x``: where they were not known when the run ended they are evaluated, and counted.  Of
        L-BFGS, also within "auto", ``hess_inv``: a linear operator of SciPy's.
        With bounds also ``active`` (-1 at the lower bound, 1 at the upper, 0 between),
        ``multipliers`` (the gradient there) and ``optimality`` (the largest entry of
        |x - P(x - g)|); ``grad_norm`` is the norm of that vector, ``hess_inv`` is of the free
        variables, and ``trace["active"]`` counts the variables at bounds.
        With a penalty ``fun`` is that of both, ``jac`` the gradient of the smooth function alone,
        ``penalty`` is h(x), and ``optimality``, like ``grad_norm``, |x - prox(x - g, 1)|.

    Notes
    -----
    Of a method that needs no parameters, a run does not depend on the unit of f, ``tol`` being in
    that unit, as long as squares of gradients can be held: in double precision, gradients between
    about 1e-150 and 1e150.  It does depend on the unit of x (docs/how-to/choose-a-method.md); with
    bounds or a penalty ``tol`` has that unit as well.

    A start where f or its gradient is not finite ends with ``Status.NON_FINITE``, without success,
    and the message names the entry; `iterate`, which has no result yet, raises a ValueError.

    A function without a lower bound ends with ``Status.UNBOUNDED`` as soon as f and x have left
    all scales of the start behind (by 1e20; `momentous.core.stopping.unbounded` says how).  That
    takes tens to hundreds of calls where steps grow or the slope does.  Down a linear function
    steps of one size (a given ``step_size``, RAGD and RHB, the parameter-free methods) do not get
    that far: the run looks like any long descent, and ends by its limits.

    Examples
    --------
    >>> import numpy as np
    >>> from momentous import minimize
    >>> def f(x):
    ...     return float(np.sum(x**4 - 8 * x**2)), 4 * x**3 - 16 * x
    >>> result = minimize(f, np.array([0.5, -3.0]), jac=True, tol=1e-8)
    >>> np.round(result.x, 6), result.status.name
    (array([ 2., -2.]), 'CONVERGED')
    """
    keywords = _by_name("minimize", args, keywords)
    plain = keywords.keys().isdisjoint(("options", *OF_WHOLE_RUNS))
    asked = {} if plain else of_whole_run(keywords)
    run = iterate(_caller=minimize, **keywords)
    heard = asked or LOGGER.isEnabledFor(logging.INFO)
    return finish_and_show(run, asked) if heard else run.finish()


def accelerate(
    step: Fun,
    x0: object,
    value: Fun | bool | None = None,
    args: object = (),
    *,
    restart: RestartRule | None = None,
    tol: float | None = None,
    resume: str | os.PathLike[str] | PackedRun | None = None,
    max_iterations: int | None = 10_000,
    max_evaluations: int | None = None,
    max_time: float | None = None,
    target: float | None = None,
    stop: Criterion | None = None,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    trace: bool | Trace = True,
    interrupts: Literal["raise", "return"] = "raise",
    ranks: RanksArgument = None,
    feasible: object = None,
    **parameters: object,
) -> Result:
    """Speed up your own iteration, one that never raises an objective, by restarted momentum.

    For alternating least squares, expectation-maximisation, multiplicative updates and other maps
    T with f(T(x)) <= f(x): the same fixed points in fewer applications of the map.  How it goes,
    and the restart rules, are described in :class:`momentous.methods.descent_map.DescentMap`.

    Parameters
    ----------
    step : callable
        The map: ``step(x, *args) -> x_next``, an array like x; with ``value=True`` it returns
        ``(x_next, f(x))``, where f at the point it was *given* is known for free.  It is applied
        to extrapolated points: where it is made for a set only (x >= 0), name that set as
        ``feasible``, or bring x into it first, in ``value`` too (by ``abs(x)`` rather than by
        cutting off, if the map never leaves a zero).
    value : callable, True or None
        The objective: ``value(x, *args) -> float``; True: ``step`` brings it along; None: there is
        none, ``restart="gradient"`` is the only rule, nothing watches the objective, and
        ``fun`` is the norm of the residual.
    restart : {"either", "function", "gradient", "distance", "always"}, optional
        When the momentum is dropped; by default "either" with values and "gradient" without.
        "always" is the plain iteration, to compare with.
    tol : float, optional
        Stop when the residual |x - T(x)| is at most this times the first one; default 1e-5, 0:
        never.  (``value_tol=1e-6`` stops when five iterations lower the objective by no more
        than that, relatively, and the last two by no more than the first two, after 15.)
    feasible : set or callable, optional
        ``NonNegative()``, ``Simplex()``, ``Box(lower, upper)``, ``Ball(radius)``, or
        ``feasible(x) -> bool``: neither ``step`` nor ``value`` sees a point outside.  An
        extrapolated point there is drawn back towards the last image of the map, by halves and at
        most to it; the map must lead into the set.  Not together with ``ranks="variables"``.
    **parameters
        Further parameters of ``DescentMap``: ``value_tol``, ``initial_radius``, ...; ``disp``,
        ``verbose`` and ``progress`` as for :func:`minimize`.
    x0, args, resume, max_iterations, max_evaluations, max_time, target, stop, callback, checkpoint
        These, ``trace`` and ``interrupts`` are as for :func:`minimize`; read "residual"
        for "gradient".
    ranks : {"data", "variables"}, optional
        As for :func:`minimize`; with "data" ``step`` gives the same on every rank (it adds up over
        ranks what it needs), and ``value`` its part of a sum.

    Returns
    -------
    Result
        ``jac`` is the residual x - T(x) and ``njev`` the number of maps.  ``x`` is the last point
        that the map was applied to; ``image``, which is T(x), lies in the set that the map leads
        to, and is no higher.

    Examples
    --------
    Nonnegative factors of a matrix by the multiplicative updates of Lee and Seung:

    >>> import numpy as np
    >>> from momentous import accelerate
    >>> X = np.outer([1.0, 2.0, 3.0], [1.0, 1.0, 2.0]) + np.eye(3)
    >>> def update(x):
    ...     W, H = np.abs(x)
    ...     H = H * (X.T @ W) / (H @ (W.T @ W))
    ...     return np.array([W * (X @ H) / (W @ (H.T @ H)), H])
    >>> def distance(x):
    ...     W, H = np.abs(x)
    ...     return float(np.sum((X - W @ H.T) ** 2))
    >>> x0 = np.random.default_rng(0).random((2, 3, 2))
    >>> fast = accelerate(update, x0, distance)
    >>> plain = accelerate(update, x0, distance, restart="always")
    >>> fast.success, fast.njev < plain.njev / 2
    (True, True)
    """
    layout = Layout() if ranks is None else layout_of(ranks)
    asked = take(parameters)
    with layout.announced():
        start = layout.start(x0)
        space = layout.space(start)
        saved = None if resume is None else load(resume, space)
        if restart is not None or (saved is None and value is None):
            parameters["restart"] = restart or "gradient"
        if value is None and target is not None:
            raise ValueError(f"target={target!r} is a value of the objective: pass value=")
        oracle = layout.oracle(MapSource(step, value, _tuple(args), space))
        if feasible is not None:
            oracle.is_feasible = _feasible_start(feasible, space, start)
        method = choose_method(DescentMap, parameters, saved, accelerate)
        run = _run(
            layout, oracle, method, start, saved, tol=tol, target=target, stop=stop,
            max_evaluations=max_evaluations, max_time=max_time, max_iterations=max_iterations,
            callback=callback, checkpoint=checkpoint, trace=trace, interrupts=interrupts,
        )  # fmt: skip
    return finish_and_show(run, asked)


def _feasible_start(feasible: Unchecked, space: Space, start: Array) -> Callable[[Array], bool]:
    """What says whether a point is in the set, of which the start must be one."""
    if space.is_part:
        raise ValueError("feasible= is asked about all of x: not together with ranks='variables'")
    is_feasible = membership(feasible)
    if not is_feasible(start):
        raise ValueError(f"feasible={feasible!r} does not hold at x0; start inside of the set")
    return is_feasible


def _tuple(args: Unchecked) -> tuple[Unchecked, ...]:
    return args if isinstance(args, tuple) else (args,)


def choose_method(
    method: Unchecked, parameters: Options, saved: RunState | None, caller: AnyFunction
) -> Method:
    """The method that is asked for, which in a run to resume must be that of the checkpoint."""
    if isinstance(method, Method):
        if parameters:
            raise TypeError(
                f"{_unknown(parameters, method, caller, method)}; the method is an instance "
                "already: give its parameters where it is made"
            )
        return method
    name = None if saved is None else saved.method["name"]
    if name is not None and (name == DescentMap.name) != (method is DescentMap):
        author = "accelerate" if name == DescentMap.name else "minimize"
        raise CheckpointError(
            f"the checkpoint was written by {author}, with the method {name!r}; resume it there"
        )
    if method is None and name not in (None, *REGISTRY):
        raise CheckpointError(f"the method {name!r} is not registered; pass it as method=")
    typed = method
    if method is None or isinstance(method, str):
        method = method_class(method or name or "auto")
    if isinstance(typed, str) and replaces(typed):
        LOGGER.info("SciPy's %s is not here: %s, the default, runs in its place", typed, "auto")
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise TypeError(
            f"method={method!r} must be a name, a Method class or an instance; registered names: "
            f"auto, {', '.join(REGISTRY)}"
        )
    if parameters:
        known = {field.name for field in dataclasses.fields(method)}
        unknown = {name: value for name, value in parameters.items() if name not in known}
        if unknown:
            raise TypeError(_unknown(unknown, method, caller, typed))
    if saved is None:
        return method(**parameters) if parameters else _without_parameters(method)
    if method.name != name:
        raise CheckpointError(
            f"the checkpoint was written by {name!r}, not by {method.name!r}; leave method out to "
            "go on with the method of the checkpoint"
        )
    try:
        return method_of(saved.method, method, **parameters)
    except MALFORMED as error:
        raise CheckpointError(f"the checkpoint cannot be resumed: {error}") from error


def shown_name(typed: Unchecked, method: Method) -> str:
    """What a result calls the method: the default by the name that it was asked for with."""
    is_default = type(method) is AUTO and (typed is None or isinstance(typed, str))
    return "auto" if is_default and typed != AUTO.name else method.name


@functools.cache
def _without_parameters(method: type[Method]) -> Method:
    """One for all runs: a method never changes."""
    return method()


def _unknown(
    parameters: Options,
    method: Method | type[Method],
    caller: AnyFunction,
    typed: Unchecked,
) -> str:
    """The error of an option that there is not: what was meant, or what there is."""
    name = next(iter(parameters))
    fields = [field.name for field in dataclasses.fields(method)]
    given = inspect.signature(caller).parameters.values()
    options = [each.name for each in given if each.kind is not each.VAR_KEYWORD]
    message = f"{caller.__name__}() has no option {name!r}"
    called = {
        other: ours
        for other, ours in CALLED_HERE.items()
        if caller in (minimize, iterate) or ours.partition("=")[0] in options
    }
    if name in called:
        return f"{message}; it is called {called[name]} here"
    if name in MISSING_HERE:
        return f"{message}: {MISSING_HERE[name]}"
    close = difflib.get_close_matches(name, [*fields, *options, *called], n=1)
    if close:
        return f"{message}; did you mean {called.get(close[0], close[0])!r}?"
    if typed is None:  # nobody has spoken of a method
        return f"{message}; it has {', '.join(options)}"
    shown = typed if isinstance(typed, str) else method.name
    return f"{message}, and {shown} has no such parameter; it has {', '.join(fields)}"


def _trace(trace: bool | Trace, resumed: bool) -> Trace | None:
    if isinstance(trace, Trace):
        if len(trace) and not resumed:
            raise ValueError(f"{trace!r} already holds a run; give every run a Trace of its own")
        return trace
    require_truth("trace", trace, ", or a Trace")
    return Trace() if trace else None
