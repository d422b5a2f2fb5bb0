"""The API keeps SciPy's names, refuses what it does not know, and gives what it promises."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
import scipy.optimize

import momentous
from helpers import METHODS, Bowl, Waves, counted
from momentous import AdaRAGD, Safeguarded, Status, accelerate, iterate, minimize, testbed

WAVES = Waves()
BOWL = Bowl()
PERTURBED = next(case for case in METHODS if case.name == "perturbed-ragd")


def solve(problem=BOWL, x0=None, **options):
    """minimize with the problem's functions, where the test does not say otherwise."""
    options.setdefault("jac", problem.gradient)
    return minimize(problem.value, problem.start if x0 is None else x0, **options)


# --- the result ---------------------------------------------------------------------------------


def test_result_has_the_names_and_types_of_scipy():
    ours, theirs = solve(), scipy.optimize.minimize(BOWL.value, BOWL.start, jac=BOWL.gradient)
    for name in ("x", "fun", "jac", "nit", "nfev", "njev", "success", "status", "message"):
        assert isinstance(ours[name], type(theirs[name])), name
    assert set(theirs) - {"hess_inv"} <= set(ours)
    assert ours.x.shape == theirs.x.shape
    assert ours.success is True
    assert ours.status == 0


def test_result_has_what_scipy_does_not_tell():
    result = solve()
    assert result.grad_norm == pytest.approx(np.linalg.norm(result.jac))
    assert result.restarts == len(result.trace.when("restart")) + len(result.trace.when("rollback"))
    assert result.time > 0
    assert len(result.trace) == result.nit + 1
    assert isinstance(result.method, Safeguarded)
    assert isinstance(result.status, Status)
    assert result.numbers["tolerance"] == 1e-5


def test_result_is_read_by_attribute_by_item_and_by_dir():
    result = solve()
    assert set(dir(result)) >= set(result) >= {"x", "fun", "trace", "best_x"}
    assert all(getattr(result, name) is result[name] for name in result)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = result.nonsense
    result.note = "kept"
    assert result["note"] == "kept"


def test_result_prints_what_it_found():
    text = repr(solve())
    assert "CONVERGED" in text
    for name in ("x", "fun", "grad_norm", "message", "nit", "nfev", "njev", "success", "method"):
        assert any(line.strip().startswith(f"{name}:") for line in text.splitlines()), name


def test_a_method_of_scipys_that_the_default_replaces_is_logged_once(caplog):
    with caplog.at_level("INFO", logger="momentous"):
        result = minimize(BOWL.value, BOWL.start, method="trust-krylov", jac=BOWL.gradient)
    assert type(result.method) is Safeguarded
    assert [r.message for r in caplog.records if "trust-krylov" in r.message] == [
        "SciPy's trust-krylov is not here: auto, the default, runs in its place"
    ]


@pytest.mark.parametrize("call", [minimize, iterate])
def test_errors_name_the_function_that_was_called(call):
    for arguments, options in (
        ((BOWL.value,), {}),
        ((BOWL.value, BOWL.start), {"xyzzy": 1}),
        ((BOWL.value, BOWL.start), {"x0": BOWL.start}),
        ((None,) * 13, {}),
    ):
        with pytest.raises(TypeError, match=rf"^{call.__name__}\(\) "):
            call(*arguments, **options)


def test_a_printed_result_is_a_page_whatever_the_dimension():
    problem = testbed.rosenbrock(300)
    for more in ({}, {"bounds": (-20.0, 20.0)}):
        text = str(minimize(problem.value, problem.start, jac=problem.gradient, **more))
        assert 12 <= len(text.splitlines()) <= 16
        assert max(map(len, text.splitlines())) <= 100
        assert "method: auto" in text
        assert "..." in text
    asked = minimize(BOWL.value, BOWL.start, jac=BOWL.gradient, method="safeguarded")
    assert "method: safeguarded" in str(asked)


@pytest.mark.parametrize("through", [lambda r: pickle.loads(pickle.dumps(r)), copy.deepcopy])
def test_result_survives_pickle_and_copy(through):
    result = solve()
    again = through(result)
    assert type(again) is type(result)
    assert np.array_equal(again.x, result.x)
    assert again.status is Status.CONVERGED
    assert np.array_equal(again.trace["grad_norm"], result.trace["grad_norm"])


def test_signature_shows_the_arguments():
    shown = inspect.signature(minimize).parameters
    assert {"fun", "x0", "jac", "args", "method", "tol", "max_iterations", "callback"} <= set(shown)


# --- fun, jac and args --------------------------------------------------------------------------


def shifted_value(x, centre, factor=1.0):
    return 0.5 * factor * float(np.sum((x - centre) ** 2))


def shifted_gradient(x, centre, factor=1.0):
    return factor * (x - centre)


@pytest.mark.parametrize(
    ("args", "centre"), [((2.0, 3.0), 2.0), ((2.0,), 2.0), (2.0, 2.0), (np.full(3, 4.0), 4.0)]
)
def test_args_reach_fun_and_jac_whether_tuple_or_single(args, centre):
    result = minimize(shifted_value, np.zeros(3), args=args, jac=shifted_gradient)
    assert result.success
    assert np.allclose(result.x, centre, atol=1e-5)


def test_args_reach_a_fused_function():
    def both(x, *args):
        return shifted_value(x, *args), shifted_gradient(x, *args)

    assert np.allclose(minimize(both, np.zeros(2), args=(5.0,), jac=True).x, 5.0, atol=1e-5)


def test_every_way_to_give_the_gradient_leads_to_the_minimum():
    for jac in (BOWL.gradient, "2-point", "3-point"):
        assert np.allclose(solve(jac=jac, tol=1e-4).x, 0, atol=1e-3), jac
    fused = minimize(lambda x: (BOWL.value(x), BOWL.gradient(x)), BOWL.start, jac=True, tol=1e-4)
    assert np.array_equal(fused.x, solve(tol=1e-4).x)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_autodiff_equals_the_gradient_by_hand(name):
    library = pytest.importorskip(name)
    xp = library.numpy if name == "jax" else library
    x0 = xp.asarray(WAVES.start, dtype=xp.float32)
    by_library = minimize(WAVES.value, x0, jac="autodiff", max_iterations=20)
    by_hand = minimize(WAVES.value, x0, jac=WAVES.gradient, max_iterations=20)
    assert np.allclose(np.asarray(by_library.x), np.asarray(by_hand.x), rtol=1e-5, atol=1e-5)


def test_autodiff_gives_args_to_fun():
    torch = pytest.importorskip("torch")
    result = minimize(
        lambda x, c: torch.sum((x - c) ** 2), torch.zeros(2), jac="autodiff", args=(3.0,)
    )
    assert torch.allclose(result.x, torch.full((2,), 3.0))


def test_autodiff_without_a_differentiating_library_is_refused():
    with pytest.raises(ValueError, match=r"autodiff.*PyTorch or JAX.*jac=callable"):
        solve(jac="autodiff")


@pytest.mark.parametrize("jac", [None, False])
@pytest.mark.parametrize("door", [minimize, iterate])
def test_a_missing_gradient_is_replaced_with_a_warning_that_points_here(jac, door):
    with pytest.warns(RuntimeWarning, match=r"no gradient was given.*3 values of fun") as caught:
        door(BOWL.value, BOWL.start, jac=jac, tol=1e-3)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences_that_were_asked_for_do_not_warn(jac):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(jac=jac, max_iterations=2)


@pytest.mark.parametrize("jac", ["cs", 3, "forward"])
def test_an_unknown_jac_is_refused_with_the_list(jac):
    with pytest.raises(ValueError, match=r"jac=.*not understood.*'autodiff'"):
        solve(jac=jac)


def test_fun_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="fun must be callable"):
        minimize(3.0, np.ones(2), jac=True)


# --- method and parameters ----------------------------------------------------------------------


@pytest.mark.parametrize("spell", [str, str.upper, lambda n: n.replace("-", "_")])
def test_methods_are_known_by_name_class_and_instance(method, spell):
    options = method.plain(WAVES) | {"max_iterations": 5}
    parameters = {k: v for k, v in options.items() if k not in ("method", "max_iterations")}
    wanted = solve(WAVES, **options)
    for given in (
        {"method": spell(method.name), **parameters},
        {"method": method.cls, **parameters},
        {"method": method.cls(**parameters)},
        {"method": method.cls.__name__, **parameters},
    ):
        result = solve(WAVES, **given, max_iterations=5)
        assert np.array_equal(result.x, wanted.x)
        assert result.method == method.cls(**parameters)


def test_auto_needs_no_parameters():
    assert solve(method="auto").method == solve().method == Safeguarded()


def test_parameters_given_as_keywords_reach_the_method():
    assert solve(method="ada-rhb", step_size=0.001, growth=1.1).method == momentous.AdaRHB(
        step_size=0.001, growth=1.1
    )


def test_an_unknown_method_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"no method is called 'ada-rag'; did you mean 'ada-ragd'"):
        solve(method="ada-rag")
    with pytest.raises(ValueError, match=r"'Nelder'\W+There are: auto, safeguarded, ada-ragd"):
        solve(method="Nelder")
    with pytest.raises(TypeError, match=r"method=3 must be a name"):
        solve(method=3)


def test_names_of_other_libraries_are_refused_with_ours():
    with pytest.raises(TypeError, match="no option 'seed'; it is called rng here"):
        solve(seed=1)
    with pytest.raises(TypeError, match="no option 'maxiter'; it is called max_iterations here"):
        accelerate(BOWL.gradient, BOWL.start, maxiter=1)


@pytest.mark.parametrize("asked", [{"disp": True}, {"progress": 1}, {"options": {"verbose": 2}}])
def test_what_is_shown_of_a_whole_run_is_refused_step_by_step(asked):
    with pytest.raises(TypeError, match=r"iterate\(\) does not take .* or call minimize\(\)"):
        iterate(BOWL.value, BOWL.start, jac=BOWL.gradient, **asked)
    iterate(BOWL.value, BOWL.start, jac=BOWL.gradient, disp=False, progress=None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_iteration": 5}, r"no option 'max_iteration'; did you mean 'max_iterations'"),
        (
            {"method": "ada-ragd", "step_sise": 5},
            r"no option 'step_sise'; did you mean 'step_size'",
        ),
        ({"xyzzy": 5}, r"^minimize\(\) has no option 'xyzzy'; it has fun, x0, args, method, jac"),
        ({"method": "auto", "xyzzy": 5}, r"no option 'xyzzy', and auto has no such parameter; it"),
        ({"max_iter": 5}, r"'max_iter'; it is called max_iterations here"),
        ({"max_itter": 5}, r"did you mean 'max_iterations'"),
        ({"epochs": 5}, r"it is called max_iterations here"),
        ({"options": {"epochs": 5}}, r"it is called max_iterations here"),
        ({"grad": abs}, r"it is called jac here"),
        ({"lr": 0.1}, r"no option 'lr': there is no learning rate"),
        ({"random_state": 0}, r"it is called rng here"),
        ({"method": "ragd", "growth": 1.1}, r"no option 'growth'.*ragd"),
        ({"method": AdaRAGD(), "growth": 1.1}, r"instance already"),
    ],
)
def test_unknown_options_are_refused_with_the_remedy(options, words):
    with pytest.raises(TypeError, match=words):
        solve(**options)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"method": "ragd"}, r"RAGD needs gradient_lipschitz="),
        ({"method": "rhb", "gradient_lipschitz": 1.0}, r"RHB needs hessian_lipschitz="),
        ({"method": "ada-ragd", "step_size": -1.0}, r"step_size=-1\.0 must be positive"),
        ({"method": "ada-ragd", "momentum": 1.0}, r"momentum=1\.0.*\[0, 1\)"),
        ({"method": "ada-ragd", "epoch_length": 2.5}, r"epoch_length=2\.5.*whole number"),
        ({"method": "ada-ragd", "radius_shrink": 1.0}, r"radius_shrink=1\.0.*above 1"),
        ({"method": "ada-ragd", "backoff": 20.0}, r"failure_shrink=10\.0.*backoff=20\.0"),
        (
            {"method": "ragd", "gradient_lipschitz": 1.0, "hessian_lipschitz": 1.0, "eps": 1.0},
            r"eps=1 is above 0\.0625",
        ),
        ({"tol": -1.0}, r"tol=-1\.0 must be"),
        ({"tol": float("nan")}, r"tol=nan must be"),
        ({"max_iterations": -1}, r"max_iterations=-1 must be"),
        ({"max_evaluations": -1}, r"max_evaluations=-1 must be"),
        ({"max_time": -1.0}, r"max_time=-1\.0 must be"),
        ({"target": float("nan")}, r"target=nan must be"),
        ({"rng": -1}, r"rng=-1 must be"),
        ({"rng": "dice"}, r"rng='dice' must be"),
    ],
)
def test_values_out_of_range_are_refused_by_name(parameters, words):
    with pytest.raises(ValueError, match=words):
        solve(**parameters)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stop": 100}, r"stop=100 must be a stopping criterion"),
        ({"callback": 3}, r"callback must be callable"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused_by_name(arguments, words):
    with pytest.raises(TypeError, match=words):
        solve(**arguments)


@pytest.mark.parametrize("name", ["bounds", "constraints", "hess", "hessp"])
def test_constraints_are_refused_and_hessians_warned_of_but_their_absence_is_not(name):
    if name == "constraints":
        with pytest.raises(ValueError, match=f"{name}= is not supported"):
            solve(**{name: [(0, 1)] * 3})
    elif name != "bounds":
        with pytest.warns(RuntimeWarning, match=f"{name}= is not used") as seen:
            assert solve(**{name: BOWL.value}).success
        assert seen[0].filename == __file__
    for nothing in (None, (), []):
        assert solve(**{name: nothing}).success


# --- plugging into SciPy ------------------------------------------------------------------------


def test_scipy_takes_minimize_as_its_method():
    seen = []
    result = scipy.optimize.minimize(
        scipy.optimize.rosen,
        [1.3, 0.7],
        jac=scipy.optimize.rosen_der,
        method=minimize,
        tol=1e-6,
        options={"max_iterations": 5000},
        callback=lambda intermediate_result: seen.append(intermediate_result.fun),
    )
    assert result.success
    assert np.allclose(result.x, 1.0, atol=1e-4)
    assert len(seen) == result.nit


def test_scipy_passes_a_fused_function():
    result = scipy.optimize.minimize(
        lambda x: (BOWL.value(x), BOWL.gradient(x)),
        BOWL.start,
        jac=True,
        method=minimize,
    )
    assert result.success
    assert np.array_equal(result.x, solve().x)


def test_scipy_bounds_are_not_forgotten():
    result = scipy.optimize.minimize(
        BOWL.value, BOWL.start, jac=BOWL.gradient, method=minimize, bounds=[(0.5, 1)] * 3
    )
    assert result.success
    assert (result.x == 0.5).all()


# --- callback and iterate -----------------------------------------------------------------------


def test_callback_sees_every_iteration_with_true_numbers(method, how):
    user, seen = counted(WAVES), []

    def callback(intermediate_result):
        step = intermediate_result
        seen.append(step.nit)
        assert np.array_equal(step.jac, WAVES.gradient(step.x))
        assert step.grad_norm == pytest.approx(np.linalg.norm(step.jac), rel=1e-12)
        assert np.isnan(step.fun) or step.fun == WAVES.value(step.x)
        assert (step.nfev, step.njev) == (user.values, user.gradients)
        assert step.best_grad_norm <= step.grad_norm
        assert step.time >= 0
        assert step.step_size > 0
        assert str(step.nit) in repr(step)

    given = user.given(how)
    result = minimize(x0=WAVES.start, callback=callback, **given, **method.eventful)
    assert seen == list(range(1, result.nit + 1))
    assert step_restarts(result) == result.restarts


def step_restarts(result):
    return sum(event.kind in ("restart", "rollback") for _, event in result.trace.events)


@pytest.mark.parametrize("style", ["true", "numpy true", "StopIteration"])
def test_callback_stops_the_run(method, style):
    def callback(intermediate_result):
        step = intermediate_result
        if step.nit < 4:
            return None
        if style == "StopIteration":
            raise StopIteration
        return True if style == "true" else np.True_

    result = solve(WAVES, callback=callback, **method.plain(WAVES))
    assert result.status is Status.STOPPED
    assert not result.success
    assert result.nit == 4
    assert "callback" in result.message


@pytest.mark.parametrize("answer", [None, False, 0, "no", np.ones(3)])
def test_other_answers_of_a_callback_do_not_stop(answer):
    assert solve(callback=lambda intermediate_result: answer).status is Status.CONVERGED


def test_a_callback_that_comes_with_the_end_does_not_change_it():
    assert (
        solve(callback=lambda intermediate_result: intermediate_result.grad_norm <= 1e-5).status
        is Status.CONVERGED
    )


def test_iterate_yields_after_every_step_what_minimize_goes_through(method):
    options = method.eventful
    run = iterate(WAVES.value, WAVES.start, jac=WAVES.gradient, **options)
    steps = list(run)
    result = solve(WAVES, **options)
    assert [step.nit for step in steps] == list(range(1, result.nit + 1))
    assert [step.grad_norm for step in steps] == list(result.trace["grad_norm"][1:])
    assert np.array_equal(run.result.x, result.x)
    assert run.result.status is result.status
    assert next(run, None) is None


def test_breaking_out_of_iterate_leaves_a_result(method):
    run = iterate(WAVES.value, WAVES.start, jac=WAVES.gradient, **method.plain(WAVES))
    for step in run:
        if step.nit == 7:
            break
    result = run.result
    assert result.status is Status.STOPPED
    assert result.nit == 7
    assert result.fun == WAVES.value(result.x)
    assert next(run, None) is None, "asking for the result ends the run"
    assert run.result is result


class Exhausted:
    """A function that raises StopIteration from some call on, as ``next(data)`` does at its end."""

    def __init__(self, calls):
        self.calls = calls

    def __call__(self, x):
        self.calls -= 1
        if self.calls < 0:
            raise StopIteration
        return WAVES.value(x), WAVES.gradient(x)


@pytest.mark.parametrize("options", [{}, {"return_all": True}], ids=["silent", "step by step"])
def test_a_stop_iteration_of_fun_is_an_error_and_not_an_end(options):
    with pytest.raises(RuntimeError, match="user code raised StopIteration in iteration") as caught:
        minimize(Exhausted(9), WAVES.start, jac=True, **options)
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_loop_over_iterate_does_not_end_silently_where_fun_raises_stop_iteration(method):
    fun = Exhausted(20)
    run = iterate(fun, WAVES.start, jac=True, **method.plain(WAVES))
    steps = []
    with pytest.raises(RuntimeError, match="a callback that returns True"):
        steps.extend(run)
    fun.calls = 10**6
    assert run.result.status is Status.STOPPED, "what was computed can be had"
    assert run.result.nit == len(steps)


def test_a_stop_iteration_of_fun_among_differences_is_an_error():
    calls = iter(range(7))
    with pytest.raises(RuntimeError, match="fun raised StopIteration, which ends a map"):
        minimize(lambda x: WAVES.value(x) + 0 * next(calls), WAVES.start, jac="2-point")


def test_iterate_can_be_left_before_the_first_step():
    run = iterate(WAVES.value, WAVES.start, jac=WAVES.gradient)
    assert run.result.nit == 0
    assert np.array_equal(run.result.x, WAVES.start)


# --- limits -------------------------------------------------------------------------------------


def test_target_stops_at_a_point_that_meets_it(method):
    result = solve(WAVES, target=2.0, **method.plain(WAVES))
    assert result.status is Status.TARGET_REACHED
    assert result.success
    assert WAVES.value(result.x) == result.fun <= 2.0
    assert result.numbers == {"fun": result.fun, "target": 2.0}


def test_max_time_counts_the_user_s_functions(clock):
    def slow(x):
        clock.sleep(5)
        return BOWL.gradient(x)

    result = solve(jac=slow, max_time=50)
    assert result.status is Status.MAX_TIME
    assert result.time == 5 * result.njev
    assert result.njev in (10, 11), "the gradient at the point returned may be one more"


def test_max_time_does_not_count_the_callback(clock):
    result = solve(
        callback=lambda intermediate_result: clock.sleep(2), max_iterations=8, max_time=9
    )
    assert result.status is Status.MAX_ITERATIONS
    assert result.time == 0


# --- what the methods promise -------------------------------------------------------------------

SOLVABLE = [
    testbed.separable("cosine"),
    testbed.separable("cauchy"),
    testbed.robust_regression("sigmoid-squared", samples=20, dimension=5),
    testbed.saddle(3, 2),
    testbed.second_order_chain(8, 0.1),
    testbed.nested_chain(4, 0.03),
]
CLASSICS = [testbed.rosenbrock(2), testbed.powell(8), testbed.qing(10), testbed.factorisation()]


@pytest.mark.parametrize("problem", SOLVABLE, ids=lambda p: p.name)
def test_every_method_reaches_what_it_promises(method, problem):
    options = method.plain(problem)
    tol = 1e-2
    result = minimize(problem.value_and_gradient, problem.start, jac=True, tol=tol, **options)
    assert result.success, result.message
    assert result.grad_norm <= tol
    assert result.fun <= float(problem.value(problem.start))
    assert result.fun >= problem.minimum - 1e-9
    belongs_to_itself(problem, result)


@pytest.mark.parametrize("problem", CLASSICS, ids=lambda p: p.name)
def test_adaptive_methods_need_no_constants(adaptive, problem):
    result = minimize(problem.value_and_gradient, problem.start, jac=True, method=adaptive.name)
    assert result.status is Status.CONVERGED, result.message
    assert result.grad_norm <= 1e-5
    belongs_to_itself(problem, result)


def belongs_to_itself(problem, result):
    value, gradient = problem.value_and_gradient(result.x)
    assert result.fun == float(value)
    assert np.array_equal(result.jac, gradient)
    assert result.grad_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-12)
    at_best = np.linalg.norm(problem.gradient(result.best_x))
    assert result.best_grad_norm == pytest.approx(at_best, rel=1e-12)
    assert result.best_grad_norm == np.nanmin(result.trace["grad_norm"])


def test_after_any_number_of_iterations_the_result_belongs_to_itself(method, how):
    """... also where the run is cut in the middle of an epoch, at a restart or at a rollback."""
    for limit in range(40):
        user = counted(WAVES)
        options = method.eventful | {"max_iterations": limit}
        result = minimize(x0=WAVES.start, **user.given(how), **options)
        assert result.fun == WAVES.value(result.x)
        assert np.array_equal(result.jac, WAVES.gradient(result.x))
        assert result.grad_norm == pytest.approx(np.linalg.norm(result.jac), rel=1e-12)
        assert (result.nfev, result.njev) == (user.values, user.gradients)


def test_the_point_returned_after_a_budget_is_no_worse_than_the_start(method):
    for limit in (1, 3, 10, 30):
        result = solve(WAVES, max_iterations=limit, **method.plain(WAVES))
        assert result.fun <= WAVES.value(WAVES.start)


def test_the_result_s_arrays_may_be_written_to_and_are_apart():
    result = solve(max_iterations=3)
    jac, best = result.jac.copy(), result.best_x.copy()
    result.x += 1.0
    assert np.array_equal(result.jac, jac)
    assert result.best_x is result.x or np.array_equal(result.best_x, best)


def test_an_identity_gradient_does_not_tie_jac_to_x():
    result = minimize(lambda x: 0.5 * float(x @ x), np.ones(3), jac=lambda x: x, max_iterations=0)
    jac = result.jac.copy()
    result.x += 1.0
    assert np.array_equal(result.jac, jac)


def test_seeds_repeat_and_differ():
    def run(rng):
        options = PERTURBED.plain(WAVES) | {"max_iterations": 3}
        return solve(WAVES, np.zeros(3), rng=rng, **options).trace["grad_norm"]

    assert np.array_equal(run(None), run(0))
    assert np.array_equal(run(7), run(7))
    assert not np.array_equal(run(7), run(8))
    assert np.array_equal(run(np.random.default_rng(5)), run(np.random.default_rng(5)))


def test_without_a_trace_the_rest_is_the_same():
    with_trace, without = solve(), solve(trace=False)
    assert without.trace is None
    assert np.array_equal(without.x, with_trace.x)
    assert (without.nit, without.restarts) == (with_trace.nit, with_trace.restarts)


def test_trace_tells_what_happened(adaptive):
    result = solve(WAVES, **adaptive.eventful)
    trace = result.trace
    assert list(trace["nit"]) == list(range(result.nit + 1))
    for column in ("nfev", "njev", "time"):
        assert np.all(np.diff(trace[column]) >= 0), column
    assert trace.when("restart")
    assert trace.when("rollback")
    assert trace.when("radius reached")
    assert trace["step_size"][0] > trace["step_size"][-1]
    assert set(trace.columns()) == {
        "nit", "nfev", "njev", "time", "fun", "grad_norm", "step_size",
    }  # fmt: skip
    with pytest.raises(KeyError, match=r"no column 'speed'.*grad_norm"):
        _ = trace["speed"]


def test_a_callback_may_insist_on_the_name_of_its_argument():
    seen = []

    def callback(*, intermediate_result):
        seen.append(intermediate_result.nit)

    solve(callback=callback, max_iterations=3)
    assert seen == [1, 2, 3]
