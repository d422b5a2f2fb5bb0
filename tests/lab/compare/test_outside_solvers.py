"""Outside solvers: counted as a counting function sees them, stopped where they are told."""

import importlib.util
import sys

import numpy as np
import pytest

from momentous import testbed
from momentous.lab.meter import OUTSIDE_SOLVERS, Limits, NotApplicableError, run_outside
from momentous.testbed import Problem

HAS_TORCH = importlib.util.find_spec("torch") is not None
SOLVERS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name.startswith("torch") and not HAS_TORCH, reason="PyTorch is not installed"
        ),
    )
    for name in OUTSIDE_SOLVERS
]
WIDE = Limits(tol=0.0, max_evaluations=10**6, max_time=60.0)


class Counting:
    """A problem whose functions keep the points that they were called with."""

    def __init__(self, problem: Problem, fail_at: int | None = None):
        self.values: list[np.ndarray] = []
        self.pairs: list[np.ndarray] = []
        self.inner = problem

        def value(x):
            self.values.append(np.array(x))
            return problem.value(x)

        def pair(x):
            self.pairs.append(np.array(x))
            if len(self.pairs) == fail_at:
                raise FloatingPointError("a bad\nday")
            return problem.value_and_gradient(x)

        self.problem = Problem(
            name="counted",
            description="",
            start=problem.start,
            value=value,
            value_and_gradient=pair,
        )


def limits(**changes):
    return Limits(**{**vars(WIDE), **changes})


@pytest.mark.parametrize("name", SOLVERS)
def test_counts_are_those_of_a_counting_function(name):
    counting = Counting(testbed.rosenbrock(4))
    ran = run_outside(name, counting.problem, limits(tol=1e-6))
    assert ran.status == "converged"
    assert len(counting.pairs) > 10
    assert not counting.values
    expected = np.arange(1, len(counting.pairs) + 1)
    np.testing.assert_array_equal(ran.nfev, expected)
    np.testing.assert_array_equal(ran.njev, expected)


@pytest.mark.parametrize("name", SOLVERS)
def test_separate_values_and_gradients_are_counted_apart(name):
    counting = Counting(testbed.rosenbrock(4))
    ran = run_outside(name, counting.problem, limits(tol=1e-6), separate=True)
    assert ran.status == "converged"
    assert ran.njev[-1] == len(counting.pairs)
    if name.startswith("scipy"):
        assert ran.nfev[-1] == len(counting.values) > 10
    else:  # its closure wants both
        assert ran.nfev[-1] == len(counting.pairs)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_row_is_what_was_evaluated_and_the_last_is_the_first_within_the_tolerance(name):
    counting = Counting(testbed.rosenbrock(4))
    ran = run_outside(name, counting.problem, limits(tol=1e-3))
    for row, x in enumerate(counting.pairs):
        value, gradient = counting.inner.value_and_gradient(x)
        assert ran.fun[row] == value
        assert ran.grad_norm[row] == np.linalg.norm(gradient)
    assert ran.grad_norm[-1] <= 1e-3 < ran.grad_norm[:-1].min()
    assert np.all(np.diff(ran.time) >= 0)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_budget_stops_a_solver_in_the_middle(name):
    counting = Counting(testbed.rosenbrock(4))
    ran = run_outside(name, counting.problem, limits(max_evaluations=14))
    assert ran.status == "max evaluations"
    assert "7 values and 7 gradients, 14 allowed" in ran.message
    assert len(counting.pairs) == len(ran) == 7


@pytest.mark.parametrize("name", SOLVERS)
def test_no_time_at_all_is_one_evaluation(name):
    ran = run_outside(name, testbed.rosenbrock(4), limits(max_time=0.0))
    assert ran.status == "max time"
    assert len(ran) == 1


@pytest.mark.parametrize("name", SOLVERS)
def test_an_exception_is_an_outcome_that_keeps_what_was_done(name):
    counting = Counting(testbed.rosenbrock(4), fail_at=5)
    ran = run_outside(name, counting.problem, WIDE)
    assert ran.status == "failed"
    assert ran.message == "failed: FloatingPointError: a bad day"
    assert len(ran) == 4


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SOLVERS)
def test_who_ends_by_itself_above_the_tolerance_gave_up_in_its_own_words(name):
    """The objective rises steeply everywhere, the gradient denies it: no line search succeeds."""
    start = np.zeros(4)

    def pair(x):
        return 1.0 + 1e10 * float(np.linalg.norm(x)), np.ones(4)

    wrong = Problem(
        name="wrong",
        description="",
        start=start,
        value=lambda x: pair(x)[0],
        value_and_gradient=pair,
    )
    ran = run_outside(name, wrong, limits(max_evaluations=5000))
    assert ran.status == "gave up"
    words = {"scipy:l-bfgs-b": "ABNORMAL", "scipy:cg": "Desired error", "torch:lbfgs": "torch"}
    assert ran.message.startswith(words[name])


@pytest.mark.parametrize("name", SOLVERS)
def test_a_plateau_above_the_start_does_not_count_as_reached(name):
    """Wherever a solver goes from the start, the function is flat, and higher."""

    def pair(x):
        return (1.0, 2 * x) if x[0] == 1.0 else (10.0, np.zeros(1))

    cliff = Problem(
        name="cliff",
        description="",
        start=np.ones(1),
        value=lambda x: pair(x)[0],
        value_and_gradient=pair,
    )
    with np.errstate(all="ignore"):
        ran = run_outside(name, cliff, limits(tol=1e-3, max_evaluations=200))
    assert ran.status != "converged"
    assert ran.grad_norm.min() == 0
    assert ran.reached(1e-3, start_fun=1.0) is None


@pytest.mark.parametrize("name", SOLVERS)
def test_arrays_of_any_shape_reach_the_function_in_their_shape(name):
    seen = set()

    def pair(x):
        seen.add(x.shape)
        return float(np.sum(x * x)), 2 * x

    problem = Problem(
        name="square",
        description="",
        start=np.ones((2, 3)),
        value=lambda x: pair(x)[0],
        value_and_gradient=pair,
    )
    assert run_outside(name, problem, limits(tol=1e-8)).status == "converged"
    assert seen == {(2, 3)}


def test_without_pytorch_it_is_not_applicable_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotApplicableError, match=r"pip install \"momentous\[torch\]\""):
        run_outside("torch:lbfgs", testbed.rosenbrock(2), WIDE)
