"""SciPy's options: ``options={"maxiter": 50, "gtol": 1e-6, ...}`` in the words of this library.

Each option of a solver of ``scipy.optimize.minimize`` is translated where it has a meaning here,
and named in an ``OptimizeWarning`` where it has none.  What is neither an option of SciPy's nor of
ours is left to be refused: it is a slip of the pen.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Mapping

import numpy as np

from momentous.core.admission import levels_to_the_user
from momentous.core.loop import Callback
from momentous.core.method import Method
from momentous.core.sources import Differences
from momentous.core.space import Space
from momentous.core.stopping import Criterion, Evaluations, StepLength, ValueChange
from momentous.display import SHOWN, take, warn
from momentous.io.types import AnyFunction, Options, Unchecked
from momentous.methods.classical import LBFGS
from momentous.methods.registry import AUTO, method_class
from momentous.methods.safeguarded import Safeguarded

# The same under another name.
_RENAMED = {"maxiter": "max_iterations", "gtol": "tol", "f_target": "target"}
# What a line search of L-BFGS, and its memory, are called.
_OF_LBFGS = {
    "maxcor": "memory",
    "maxls": "max_trials",
    "c1": "sufficient_decrease",
    "c2": "curvature",
}
# What a whole run may print, or keep.
OF_WHOLE_RUNS = (*SHOWN, "iprint", "return_all")
_DIFFERENCES = ("finite_diff_rel_step", "eps", "workers")
_SMALL_CHANGE = {"ftol": ValueChange, "xtol": StepLength, "xrtol": StepLength}
_EVALUATIONS = ("maxfun", "maxfev")
_NUMBERS = (*_RENAMED, *_OF_LBFGS, *_SMALL_CHANGE, *_EVALUATIONS, "norm")
# What other names are called here, those of SciPy's where they are not taken (as in `accelerate`).
CALLED_HERE = {
    other: ours
    for ours, others in {
        "fun": "fn func f function objective loss closure",
        "x0": "x_init x_start init init_params initial_guess start p0 params",
        "jac": "grad gradient gradients grad_f fprime der df derivative jacobian",
        "method": "solver algorithm algo optimizer",
        "tol": "gtol tolerance tolerance_grad grad_tol tol_grad atol",
        "max_iterations": "maxiter max_iter max_iters maxiters n_iter niter num_iterations "
        "iterations epochs n_epochs num_epochs steps n_steps num_steps max_steps maxsteps",
        "max_evaluations": "maxfun maxfev max_eval max_evals maxeval max_fun max_nfev max_calls",
        "max_time": "timeout time_limit max_seconds maxtime",
        "target": "f_target fmin stopval",
        "rng": "seed random_state generator random_seed",
        "verbose": "verbosity",
        "stop=ValueChange(...)": "ftol tolerance_change n_iter_no_change",
        "stop=StepLength(...)": "xtol xrtol",
        "method='lbfgs', memory=...": "history_size history",
        "minimize_many(..., multistart=m).best": "multistart",
    }.items()
    for other in others.split()
} | dict.fromkeys(("bound", "limits", "lb", "ub"), "bounds")
_NO_RATE = "there is no learning rate: the method finds its step sizes itself"
# What there is none of, and why.
MISSING_HERE = {
    **dict.fromkeys(("lr", "learning_rate", "step", "stepsize", "alpha"), _NO_RATE),
    **dict.fromkeys(
        ("weight_decay", "l2"), "add the penalty to the function, or pass penalty=ElasticNet(...)"
    ),
    **dict.fromkeys(("maximize", "sense"), "pass the negative of the function"),
    **dict.fromkeys(
        ("betas", "nesterov", "amsgrad", "dampening", "momentum"),
        "it belongs to methods that are tuned by hand; nothing has to be set here",
    ),
    "batch_size": "the function must be the same in every call: torch.optim is for mini-batches",
}
_NO_MEANING = frozenset({
    "accuracy", "adaptive", "barrier_tol", "catol", "constr_violation", "direc", "eta",
    "factorization_method", "fatol", "feasibility_tol", "final_tr_radius", "hess_inv0", "inexact",
    "initial_barrier_parameter", "initial_barrier_tolerance", "initial_constr_penalty",
    "initial_simplex", "initial_tr_radius", "initial_trust_radius", "maxCGit", "max_trust_radius",
    "mesg_num", "minfev", "offset", "rescale", "rhobeg", "scale", "sparse_jacobian", "stepmx",
    "subproblem_maxiter", "xatol",
})  # fmt: skip
NAMES = frozenset({
    *_RENAMED, *_OF_LBFGS, *OF_WHOLE_RUNS, *_DIFFERENCES, *_SMALL_CHANGE, *_EVALUATIONS,
    *_NO_MEANING, "norm",
})  # fmt: skip


def of_whole_run(keywords: Options) -> Options:
    """What the keywords, and the options among them, say of a whole run (``disp``, ...), which is
    taken away from them."""
    options = keywords.get("options")
    if isinstance(options, Mapping):
        keywords |= dict(options)
        del keywords["options"]
    if keywords.keys().isdisjoint(OF_WHOLE_RUNS):
        return {}
    own = _parameters(keywords.get("method"))
    return take(keywords, [name for name in OF_WHOLE_RUNS if name not in own])


def translate(keywords: Options) -> Options:
    """The keywords with SciPy's names among them in our words; warns of those without meaning."""
    method = keywords.get("method")
    own = _parameters(method)
    given = {name: value for name, value in keywords.items() if name in NAMES - own}
    ours = {name: value for name, value in keywords.items() if name not in given}
    given = {name: value for name, value in given.items() if value is not None}
    for name in OF_WHOLE_RUNS:
        if given.get(name):
            raise TypeError(
                f"iterate() does not take {name}={given[name]!r}: print or keep its steps as they "
                "come, or call minimize(), which takes it"
            )
    for name in _NUMBERS:
        if name in given:
            _require_number(name, given[name])
    lost = [name for name in given if name in _NO_MEANING]
    if "hess_inv0" in given:
        _require_positive_definite(given["hess_inv0"])
    for name, our_name in _RENAMED.items():
        if name in given:
            ours[our_name] = given[name]
    if given.get("maxiter", 0) < 0:  # none at all, as in SciPy
        ours["max_iterations"] = 0
    if given.get("norm", 2) not in (2, float("inf")):
        lost.append("norm")
    lost += _give_to_lbfgs(given, method, ours)
    lost += _give_to_differences(given, ours)
    _add_criteria(given, ours)
    if lost:
        warn(f"options without a meaning here are not used: {', '.join(lost)}")
    return ours


def _require_number(name: str, value: Unchecked) -> None:
    try:
        number = float(value + 0)  # which text does not bear, even where it looks like a number
        if number != number:
            raise ValueError
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}={value!r} must be a number, not {type(value).__name__}; pass one such as "
            f"{name}={_example(name)}"
        ) from None


def _example(name: str) -> str:
    whole = name.startswith("max")
    return "100" if whole else "2" if name == "norm" else "1e-6"


def _require_positive_definite(matrix: Unchecked) -> None:
    """As SciPy does, though the matrix is not used: one that is not is a mistake of the caller."""
    try:
        np.linalg.cholesky(np.asarray(matrix, np.float64))
    except np.linalg.LinAlgError:
        raise ValueError("'hess_inv0' matrix isn't positive definite.") from None


def _parameters(method: Unchecked) -> frozenset[str]:
    """The names of the parameters of a method, which go before SciPy's options."""
    if method is None:
        method = AUTO
    elif isinstance(method, str):
        method = method_class(method)
    if isinstance(method, Method) or not (
        isinstance(method, type) and issubclass(method, Method)
    ):  # an instance has its parameters; anything else is refused later
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(method))


def _give_to_lbfgs(given: Options, method: Unchecked, ours: Options) -> list[str]:
    """Parameters of L-BFGS, alone or as the fast method of the default; returns what is left."""
    names = [name for name in _OF_LBFGS if name in given]
    wanted = {_OF_LBFGS[name]: given[name] for name in names}
    c1, c2 = given.get("c1", LBFGS.sufficient_decrease), given.get("c2", LBFGS.curvature)
    if not (0 < c1 < 0.5 and c1 < c2 < 1):
        raise ValueError(f"'c1' and 'c2' must have 0 < c1 < 1/2 and c1 < c2 < 1, not {c1}, {c2}")
    kind = method_class(method or "auto") if method is None or isinstance(method, str) else method
    if not wanted:
        return []
    if kind is LBFGS:
        ours.update(wanted)
    elif kind is Safeguarded and "fast" not in ours:
        ours["fast"] = LBFGS(**wanted)
    else:
        return names
    return []


def _give_to_differences(given: Options, ours: Options) -> list[str]:
    """Step lengths and workers of finite differences; with a gradient at hand nobody needs them."""
    if not any(name in given for name in _DIFFERENCES):
        return []
    jac, workers = ours.get("jac"), given.get("workers", map)
    if callable(workers):
        lost = []
    else:  # a number of processes
        lost, workers = ["workers (pass a function like map)"] if workers != 1 else [], map
    relative, absolute = given.get("finite_diff_rel_step"), given.get("eps")
    how = Differences(jac == "3-point", relative, absolute, workers)
    if jac in (None, False, "2-point", "3-point"):
        ours["jac"] = how if relative is None else dataclasses.replace(how, absolute_step=None)
    return lost


def _add_criteria(given: Options, ours: Options) -> None:
    """Limits on evaluations and on changes, in addition to the criterion of the user's own."""
    criteria: list[Criterion | None] = [ours.get("stop")]
    for name, kind in _SMALL_CHANGE.items():
        if given.get(name, 0) > 0:  # 0, and TNC's -1, ask for none
            criteria.append(kind(float(given[name])))
    criteria += [Evaluations(given[name]) for name in _EVALUATIONS if name in given]
    wanted = [criterion for criterion in criteria if criterion is not None]
    if wanted:
        ours["stop"] = functools.reduce(lambda a, b: a | b, wanted)


def refuse(**given: Unchecked) -> None:
    """SciPy passes these to every method; to leave them out of account would be a wrong answer."""
    for name, value in given.items():
        if value is None or (isinstance(value, tuple | list) and not value):
            continue
        raise ValueError(
            f"{name}= is not supported: momentous takes bounds=, and no other constraints; "
            "scipy.optimize.minimize with method='SLSQP' or 'trust-constr' does"
        )


def warn_of_hessians(**given: Unchecked) -> None:
    """As SciPy does for its methods that look at gradients only."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, tuple | list) and not value):
            warnings.warn(
                f"{name}= is not used: momentous looks at values and gradients only",
                RuntimeWarning,
                stacklevel=levels_to_the_user(),
            )


def as_callback(callback: AnyFunction, space: Space) -> Callback:
    """As in SciPy, a callback gets a copy of x, unless its argument is called intermediate_result;
    then it gets that."""
    try:
        signature = inspect.signature(callback)
        named = "intermediate_result" in signature.parameters
    except (TypeError, ValueError):  # built-in functions do not tell
        signature, named = None, False
    if signature is not None and not named:
        try:
            signature.bind(None)
        except TypeError:
            name = getattr(callback, "__name__", repr(callback))
            raise TypeError(
                f"callback={name}{signature} must take one argument: callback(x), or "
                "callback(intermediate_result) for all that is known"
            ) from None
    if named:
        return lambda result: callback(intermediate_result=result)
    return lambda result: callback(space.copy(result.x))
