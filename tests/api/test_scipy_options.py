"""SciPy's options by both routes: translated where they have a meaning, a warning where not."""

import math
import re
import warnings

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import OptimizeResult, OptimizeWarning, rosen, rosen_der

import momentous
from momentous import LBFGS, Result, Status, ValueChange, minimize

START = np.array([1.3, 0.7, 2.0])


def direct(options, **keywords):
    return minimize(rosen, START, options=options, **({"jac": rosen_der} | keywords))


def through_scipy(options, **keywords):
    given = {"jac": rosen_der} | keywords
    return scipy.optimize.minimize(rosen, START, method=minimize, options=options, **given)


def as_keywords(options, **keywords):
    return minimize(rosen, START, **({"jac": rosen_der} | keywords | (options or {})))


ROUTES = [direct, through_scipy, as_keywords]


@pytest.fixture(params=ROUTES, ids=lambda route: route.__name__)
def solve(request):
    return request.param


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_options_change_nothing(solve, nothing):
    plain = minimize(rosen, START, jac=rosen_der)
    assert np.array_equal(solve(nothing).x, plain.x)


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        ({"maxiter": 5}, {"max_iterations": 5}),
        ({"maxiter": None}, {}),
        ({"gtol": 1e-2}, {"tol": 1e-2}),
        ({"gtol": 1e-2, "tol": 1e-9}, {"tol": 1e-2}),
        ({"f_target": 0.01}, {"target": 0.01}),
        ({"max_iterations": 6, "trace": False}, {"max_iterations": 6}),
        ({"maxcor": 2, "maxls": 7, "c1": 0.2, "c2": 0.3}, {
            "fast": LBFGS(memory=2, max_trials=7, sufficient_decrease=0.2, curvature=0.3)}),
        ({"ftol": 0.0, "xtol": -1, "norm": np.inf}, {}),
    ],
)  # fmt: skip
def test_options_mean_what_our_names_mean(solve, options, ours):
    theirs, result = minimize(rosen, START, jac=rosen_der, **ours), solve(options)
    assert np.array_equal(result.x, theirs.x)
    assert (result.nit, result.status) == (theirs.nit, theirs.status)


def test_maxcor_is_the_memory_of_l_bfgs():
    assert direct({"maxcor": 3}, method="lbfgs").method.memory == 3


@pytest.mark.parametrize("name", ["maxfun", "maxfev"])
def test_maxfun_counts_a_value_and_a_gradient_as_one(solve, name):
    result = solve({name: 9})
    assert result.status is Status.MAX_EVALUATIONS
    assert 9 <= max(result.nfev, result.njev) <= 11  # a step that is under way is completed


def test_a_parameter_of_the_method_goes_before_an_option_of_scipy():
    constants = {"gradient_lipschitz": 2.0, "hessian_lipschitz": 1.0}
    result = minimize(
        lambda x: (x @ x, 2 * x), np.ones(2), jac=True, method="ragd", eps=1e-4, **constants
    )
    assert result.method.eps == 1e-4


def test_small_changes_stop_as_ftol_and_xtol_ask(solve):
    by_value = solve({"ftol": 1e-3, "gtol": 0.0})
    assert (by_value.status, by_value.success) == (Status.SMALL_CHANGE, True)
    assert by_value.numbers["decrease"] <= 1e-3
    by_step = solve({"xtol": 0.003, "gtol": 0.0})
    assert (by_step.status, by_step.success) == (Status.SMALL_CHANGE, True)
    assert by_step.numbers["move"] <= 0.003 * (0.003 + np.linalg.norm(by_step.x) * 1.1)
    assert max(by_value.grad_norm, by_step.grad_norm) < 0.1


@pytest.mark.parametrize("options", [{"maxCGit": 3, "scale": 1.0}, {"norm": 1}])
def test_options_without_a_meaning_are_named_in_a_warning(solve, options):
    with pytest.warns(OptimizeWarning, match=f"not used: {', '.join(options)}"):
        assert solve(options).success


def test_maxcor_has_no_meaning_for_a_method_without_memory():
    with pytest.warns(OptimizeWarning, match="not used: maxcor"):
        direct({"maxcor": 3, "maxiter": 2}, method="cg")


def test_what_is_no_option_of_anybody_is_refused(solve):
    with pytest.raises(TypeError, match=r"no option 'maxitter'"):
        solve({"maxitter": 3})
    with pytest.raises(TypeError, match=r"options=3 must be a dictionary"):
        direct(3)


def test_disp_prints_how_the_run_ended(solve, capsys):
    result = solve({"disp": True})
    printed = capsys.readouterr().out
    assert printed.startswith(result.message)
    assert f"Iterations: {result.nit}" in printed
    solve({"disp": False})
    assert not capsys.readouterr().out


def test_return_all_gives_every_iterate(solve):
    result = solve({"return_all": True})
    assert len(result.allvecs) == result.nit + 1
    assert np.array_equal(result.allvecs[0], START)
    assert np.array_equal(result.allvecs[-1], result.x)


# --- differences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("jac", ["2-point", "3-point", None])
@pytest.mark.parametrize("step", [{"finite_diff_rel_step": 1e-7}, {"eps": 1e-7}])
def test_the_steps_of_differences_are_those_asked_for(solve, jac, step):
    """The points at which fun is asked, around x0, whose entries are not 1."""
    seen = []

    def fun(x):
        seen.append(x.copy())
        return rosen(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call = {direct: minimize, as_keywords: minimize}.get(solve, scipy.optimize.minimize)
        given = step if solve is as_keywords else {"options": step}
        if solve is through_scipy:
            given["method"] = minimize
        result = call(fun, START, jac=jac, **given)
    assert np.allclose(result.x, 1.0, atol=1e-3)
    wanted = 1e-7 * (np.ones(3) if "eps" in step else START)
    found = np.diag(np.array(seen[1:4]) - START)
    assert np.allclose(found, wanted, rtol=1e-6)


def test_workers_may_be_a_function_like_map(solve):
    calls = []

    def workers(function, points):
        calls.append(1)
        return list(map(function, points))

    result = solve({"workers": workers}, jac="2-point")
    assert len(calls) == result.njev
    assert np.array_equal(result.x, minimize(rosen, START, jac="2-point").x)
    with pytest.warns(OptimizeWarning, match="workers"):
        solve({"workers": 2}, jac="2-point")


# --- callback, jac and the result -----------------------------------------------------------------


@pytest.mark.parametrize("call", [minimize, scipy.optimize.minimize])
def test_a_callback_gets_x_unless_it_asks_for_the_intermediate_result(call):
    xs, results = [], []
    given = {"jac": rosen_der} | ({} if call is minimize else {"method": minimize})
    call(rosen, START, callback=xs.append, **given)
    call(rosen, START, callback=lambda xk: xs.append(xk), **given)
    call(rosen, START, callback=lambda intermediate_result: results.append(intermediate_result),
         **given)  # fmt: skip
    points = [result["x"] for result in results]
    assert all(isinstance(result, OptimizeResult) for result in results)
    assert np.array_equal(xs, points + points)
    assert xs[0].flags.writeable


@pytest.mark.parametrize("slope", [float, np.float64, np.array, lambda g: np.array([[g]])])
def test_a_scalar_gradient_will_do_for_one_variable(slope):
    result = minimize(lambda x: (x[0] - 1) ** 2, 3.0, jac=lambda x: slope(2 * (x[0] - 1)))
    assert result.success
    assert result.jac.shape == result.x.shape == (1,)


def test_a_result_is_an_optimize_result():
    result = minimize(rosen, START, jac=rosen_der)
    assert isinstance(result, OptimizeResult)
    assert isinstance(result, Result)
    assert isinstance(result, dict)
    assert not isinstance(minimize, OptimizeResult)


def test_brute_takes_minimize_as_its_finish():
    x, value, *_ = scipy.optimize.brute(
        lambda x: (x[0] - 0.3) ** 2 + 1, [(-1, 1)], full_output=True,
        finish=lambda fun, x0, **given: momentous.minimize(fun, x0, jac="2-point", **given),
    )  # fmt: skip
    assert x == pytest.approx(0.3, abs=1e-6)
    assert value == pytest.approx(1.0)


@pytest.mark.parametrize("guilty", ["fun", "jac", "both"])
def test_user_code_that_writes_into_x_is_told_so(guilty):
    def writes(x):
        x[0] = 1.0

    given = {"fun": lambda x: 1.0, "jac": lambda x: x}
    if guilty == "both":
        given = {"fun": writes, "jac": True}
    else:
        given[guilty] = writes
    with pytest.raises(ValueError, match=r"user code writes into x.*x\.copy\(\)"):
        minimize(x0=START, **given)


def test_a_list_of_tensors_is_refused_with_the_remedy():
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(2, 2)
    several = list(network.parameters())
    for many in (network, network.parameters(), several, network.state_dict()):
        with pytest.raises(TypeError, match=r"momentous\.torch\.minimize.*parameters_to_vector"):
            minimize(rosen, many)


@pytest.mark.parametrize(
    ("nothing", "words"),
    [
        (None, "x0 holds NoneType; pass one array of real numbers"),
        (object(), "x0 holds object; pass one array of real numbers"),
        ({"a": np.ones(2)}, r"x0 is a dictionary of 'a', not.*momentous\.jax\.minimize takes"),
        (rosen, r"x0 is 'rosen', a function.*momentous\.torch\.minimize\(net, loss\)"),
    ],
)
def test_a_start_that_is_no_array_is_named(nothing, words):
    with pytest.raises(TypeError, match=words):
        minimize(rosen, nothing)


def test_a_negative_limit_is_none_at_all_as_in_scipy(solve):
    result = solve({"maxiter": -1})
    assert (result.status, result.nit) == (Status.MAX_ITERATIONS, 0)


@pytest.mark.parametrize(("c1", "c2"), [(0.5, 2), (-0.1, 0.1), (0.2, 0.1), (0.95, None)])
def test_bad_constants_of_a_line_search_are_named_as_the_user_did(solve, c1, c2):
    with pytest.raises(ValueError, match="'c1' and 'c2' must have 0 < c1 < 1/2 and c1 < c2 < 1"):
        solve({"c1": c1, "c2": c2})


def test_an_initial_matrix_is_checked_though_it_is_not_used(solve):
    with pytest.warns(OptimizeWarning, match="not used: hess_inv0"):
        assert solve({"hess_inv0": np.eye(3)}).success
    with pytest.raises(ValueError, match="'hess_inv0' matrix isn't positive definite"):
        solve({"hess_inv0": np.diag([1.0, 1.0, 0.0])})


@pytest.mark.parametrize("kind", [OptimizeWarning, RuntimeWarning])
def test_a_limit_that_ends_a_run_warns_as_either_of_scipys_methods(solve, kind, capsys):
    with pytest.warns(kind, match="Maximum number of iterations"):
        solve({"disp": True, "maxiter": 1})


def test_statuses_have_the_numbers_of_scipy():
    numbers = {status.name: int(status) for status in Status}
    assert (numbers["CONVERGED"], numbers["MAX_ITERATIONS"], numbers["STOPPED"]) == (0, 1, 99)
    assert (numbers["NO_PROGRESS"], numbers["NON_FINITE"]) == (2, 3)


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [("maxiter", "5", "100"), ("ftol", "a", "1e-6"), ("gtol", [1], "1e-6"), ("maxfun", "9", "100"),
     ("c1", "x", "1e-6"), ("norm", "inf", "2")],
)  # fmt: skip
def test_an_option_that_is_no_number_is_named_with_the_remedy(solve, name, value, example):
    with pytest.raises(TypeError) as raised:
        solve({name: value})
    told = f"{name}={value!r} must be a number, not {type(value).__name__}; pass one such as"
    assert str(raised.value) == f"{told} {name}={example}"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"max_iterations": "5"}, "a whole number >= 0"),
        ({"max_iterations": 1.5}, "a whole number >= 0"),
        ({"max_evaluations": True}, "a whole number >= 0"),
        ({"stop": lambda: ValueChange(1e-9, 1.5)}, "a whole number >= 1"),
        ({"tol": "a"}, "a number >= 0"),
        ({"tol": 10**400}, "a number >= 0"),
        ({"target": "1"}, "a number"),
        ({"max_time": [1]}, "a number of seconds >= 0"),
    ],
)
def test_a_limit_that_is_no_number_is_named(given, kind):
    ((name, value),) = given.items()
    if callable(value):
        name, value, given = "iterations", 1.5, {"stop": value}
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r:.200} must be {kind}")):
        minimize(
            rosen, START, jac=rosen_der, **{k: v() if callable(v) else v for k, v in given.items()}
        )


def test_whole_numbers_may_be_written_as_floats_and_infinity_is_no_limit():
    result = minimize(rosen, START, jac=rosen_der, max_iterations=1e0, max_evaluations=math.inf)
    assert result.message.startswith("1 iterations, the limit")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trace": "a"}, "trace='a' must be True or False, or a Trace"),
        ({"check_gradient": 3}, "check_gradient=3 must be True or False"),
        ({"progress": "a"}, "progress='a' must be True, False or a number"),
        ({"callback": lambda a, b: None}, r"callback=<lambda>\(a, b\) must take one argument"),
        ({"ftol": math.nan}, "ftol=nan must be a number"),
        ({"method": "lbfgs", "sufficient_decrease": "a"}, "LBFGS: sufficient_decrease='a' must be"),
        ({"method": "gd", "step_size": 1j}, "GradientDescent: step_size=1j must be a number"),
        ({"method": "lbfgs", "memory": True}, "LBFGS: memory=True must be a whole number"),
        ({"jac": None, "eps": 0.0}, "eps=0.0 must be the step of differences"),
        ({"finite_diff_rel_step": "a"}, "finite_diff_rel_step='a' must be the step"),
        ({"jac": None, "eps": [1e-8] * 7}, "eps has 7 numbers, and x has"),
        ({"rng": True}, "rng=True must be a whole number"),
    ],
)
def test_an_option_that_cannot_be_meant_is_named_with_its_value(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        minimize(rosen, START, **{"jac": rosen_der} | given)


@pytest.mark.parametrize(
    "given", [{"jac": None}, {"hess": rosen}, {"options": {"mesg_num": 1}},
              {"options": {"maxiter": 1, "disp": True}}],
)  # fmt: skip
def test_warnings_point_to_the_line_of_the_user_also_through_scipy(given):
    given = {"jac": rosen_der} | given
    for call in (scipy.optimize.minimize, minimize):
        method = minimize if call is scipy.optimize.minimize else None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(rosen, START, method=method, **given)
        assert {each.filename for each in caught} == {__file__}
