"""A run of a rule that is cut between any two evaluations, a line search included, goes on at the
same evaluation: every point after it is the same, bit for bit, and none is asked for twice."""

import numpy as np
import pytest

from helpers import fingerprint
from momentous import ConjugateGradient, Safeguarded, Status, iterate, minimize
from momentous.core.rule import Rule
from momentous.methods.registry import REGISTRY, rules

MOST = 30  # cuts
START = np.array([-1.2, 1.0, 0.3, -0.4])
BY_HAND = {"step_size": 0.05, "momentum": 0.9, "radius": 0.5, "epoch_length": 12}
METHODS = {name: {"method": name, **(BY_HAND if c.requires else {})} for name, c in rules().items()}
METHODS["perturbed-ragd"] |= {"perturbation": 1e-2}
# Turns of both from the beginning; and a method that calls its oracle, as a rule.
METHODS["short rounds"] = {"method": Safeguarded(shortest_round=2)}
METHODS["guarded cg"] = {"method": Safeguarded(fast=ConjugateGradient(), shortest_round=4)}


def rosenbrock(x):
    """A hundredth of it, and its gradient."""
    bend, gradient = x[1:] - x[:-1] ** 2, np.zeros_like(x)
    gradient[:-1] = -4.0 * bend * x[:-1] - 0.02 * (1.0 - x[:-1])
    gradient[1:] += 2.0 * bend
    return float(np.sum(bend**2 + 0.01 * (1.0 - x[:-1]) ** 2)), gradient


class UserError(Exception):
    """What the user's function raises."""


class Function:
    """Writes down every call; the one with this number fails, once."""

    def __init__(self, failing=None, error=UserError):
        self.calls, self.failing, self.error = [], failing, error

    def note(self, kind, x):
        if len(self.calls) == self.failing:
            self.failing = None
            raise self.error
        self.calls.append((kind, x.tobytes()))

    def value(self, x):
        self.note("value", x)
        return rosenbrock(x)[0]

    def gradient(self, x):
        self.note("gradient", x)
        return rosenbrock(x)[1]

    def both(self, x):
        self.note("both", x)
        return rosenbrock(x)

    def given(self, how):
        if how == "fused":
            return {"fun": self.both, "jac": True}
        return {"fun": self.value, "jac": self.gradient}


@pytest.mark.parametrize("how", ["fused", "separate"])
@pytest.mark.parametrize("name", METHODS)
def test_a_cut_after_any_evaluation_costs_nothing(name, how, tmp_path):
    options = {"x0": START, "tol": 1e-6, "max_iterations": 25, **METHODS[name]}
    whole = Function()
    run = iterate(**whole.given(how), **options)
    for _ in run:
        pass
    first, last = 1 if how == "fused" else 2, len(whole.calls)  # x0 itself, and the last iteration
    wanted = run.result
    assert last >= 20
    for k in range(first, min(MOST, last)):
        file, cut, rest = tmp_path / str(k), Function(k), Function()
        with pytest.raises(UserError):
            minimize(**cut.given(how), checkpoint=file, **options)
        again = minimize(**rest.given(how), resume=file, **options)
        assert fingerprint(again) == fingerprint(wanted), k
        missing = whole.calls[k:]
        checks = len(rest.calls) - len(missing)  # uncounted: is it the same function?
        assert checks <= first, k
        assert rest.calls[checks:] == missing, k


def test_ctrl_c_in_a_line_search_costs_nothing(tmp_path):
    options = {"x0": START, "jac": True, "method": "lbfgs", "tol": 1e-6}
    whole = Function()
    wanted = minimize(whole.both, **options)
    assert wanted.nfev > wanted.nit + 1  # it has a search of several evaluations
    for k in range(1, wanted.nfev):
        file, cut, rest = tmp_path / str(k), Function(k, KeyboardInterrupt), Function()
        with pytest.raises(KeyboardInterrupt):
            minimize(cut.both, checkpoint=file, **options)
        assert fingerprint(minimize(rest.both, resume=file, **options)) == fingerprint(wanted), k
        assert rest.calls[1:] == whole.calls[k:], k


CONSTANTS = {"gradient_lipschitz": 30.0, "hessian_lipschitz": 50.0}
PLAIN = {
    name: {"method": name, **(CONSTANTS if c.requires else {})}
    for name, c in REGISTRY.items()
    if not issubclass(c, Rule)
}


@pytest.mark.parametrize("how", ["fused", "separate"])
@pytest.mark.parametrize("name", ["lbfgs", *PLAIN])
def test_a_run_goes_on_after_an_exception_without_a_file(name, how):
    options = {"x0": START, "tol": 1e-4, "max_iterations": 12, **(METHODS | PLAIN)[name]}
    whole = Function()
    wanted = minimize(**whole.given(how), **options)
    for k in range(3, min(20, len(whole.calls))):
        cut = Function(k)
        try:
            run = iterate(**cut.given(how), **options)
        except UserError:
            continue  # before there is a run
        with pytest.raises(UserError):
            run.finish()
        assert fingerprint(run.finish()) == fingerprint(wanted), k
        assert name in PLAIN or cut.calls == whole.calls, k


@pytest.mark.parametrize("how", ["fused", "separate"])
@pytest.mark.parametrize("name", [*METHODS, *PLAIN])
def test_ctrl_c_in_the_first_evaluations_gives_what_is_known(name, how):
    options = {"x0": START, "tol": 1e-6, **(METHODS | PLAIN)[name]}
    for k in range(6):
        user = Function(k, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt, match="interrupted") as raised:
            minimize(**user.given(how), **options)
        result = raised.value.result
        assert result.status is Status.INTERRUPTED
        assert not result.success
        value, gradient = rosenbrock(result.x)
        begun = k >= (1 if how == "fused" else 2)
        if begun:
            assert result.fun == value
            assert np.array_equal(result.jac, gradient)
            assert "norm so far is" in result.message
        else:  # of two functions the value is known
            assert result.x.tobytes() == START.tobytes()
            assert result.jac is None
            assert (result.fun == value) == (k == 1)
            assert (result.nfev, result.njev) == (k, 0)
            assert "first evaluation" in result.message
            assert len(user.calls) == k
        user = Function(k, KeyboardInterrupt)
        returned = minimize(**user.given(how), interrupts="return", **options)
        assert fingerprint(returned) == fingerprint(result)


def test_ctrl_c_before_there_is_a_run_ends_iterate_and_leaves_no_file(tmp_path):
    options = {"x0": START, "jac": True, "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt) as raised:
        iterate(Function(0, KeyboardInterrupt).both, **options)
    assert raised.value.result.x.tobytes() == START.tobytes()
    run = iterate(Function(0, KeyboardInterrupt).both, interrupts="return", **options)
    assert list(run) == []
    assert run.result.status is Status.INTERRUPTED
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["auto", "jin-agd"])
def test_ctrl_c_while_a_run_is_resumed_gives_the_run_that_was_saved(name, tmp_path):
    options = {"x0": START, "jac": True, **(METHODS | PLAIN).get(name, {"method": name})}
    file = tmp_path / "run"
    cut = minimize(rosenbrock, max_iterations=5, checkpoint=file, **options)
    saved = file.read_bytes()
    for limit in ({}, {"max_evaluations": 10**6}):
        user = Function(0, KeyboardInterrupt).both
        with pytest.raises(KeyboardInterrupt) as raised:
            minimize(user, resume=file, checkpoint=file, **options, **limit)
        result = raised.value.result
        assert (result.nit, result.nfev, result.fun) == (cut.nit, cut.nfev, cut.fun)
        assert result.x.tobytes() == cut.x.tobytes()
        assert file.read_bytes() == saved
