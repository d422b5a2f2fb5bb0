"""Few problems run one by one, with their evaluations together: each is its single run."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.lanes.test_many import OPTIONS, require_single_runs, rosenbrock, starts

from momentous import Status, minimize, minimize_many, testbed
from momentous.lanes import few, many
from momentous.methods.registry import rules


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch, _lanes_for_few: None) -> None:
    monkeypatch.setattr(many, "FEW", few.FEW)


@pytest.mark.parametrize("name", rules())
def test_few_problems_have_the_bits_of_single_runs(name: str) -> None:
    X, options = starts(4), {"method": name, "tol": 1e-3, "max_iterations": 300}
    options |= OPTIONS.get(name, {})
    require_single_runs(rosenbrock, X, minimize_many(rosenbrock, X, jac=True, **options), **options)


ENDS: dict[str, dict[str, Any]] = {
    "tolerance": {},
    "iterations": {"max_iterations": 6},
    "evaluations": {"max_evaluations": 17},
    "bounds and evaluations": {"bounds": (-1.5, 1.2), "max_evaluations": 9},
}


@pytest.mark.parametrize("method", ["auto", "ada-ragd"])
@pytest.mark.parametrize("end", ENDS)
def test_counts_and_messages_are_those_of_single_runs(method: str, end: str) -> None:
    statuses = set()
    for make in (testbed.rosenbrock, testbed.powell, testbed.dixon_price, testbed.qing):
        problem = make(4)
        X = np.clip(problem.start * np.linspace(0.3, 1.0, 3)[:, None], -1.5, 1.2)
        options = {"jac": True, "method": method, "max_iterations": 200} | ENDS[end]
        fun = problem.value_and_gradient
        result = minimize_many(fun, X, vectorized=False, exact=True, **options)
        for x, lane in zip(X, result, strict=True):
            single = minimize(fun, x, **options)
            for name in ("nit", "status", "message", "fun", "restarts"):
                assert lane[name] == single[name], name
            np.testing.assert_array_equal(lane.x, single.x)
            counted = lane.nfev, lane.njev
            # Where a run of one problem is out of iterations it may ask again for what it has let
            # go of.
            asked_again = lane.status is Status.MAX_ITERATIONS and single.nfev - lane.nfev == 1
            assert asked_again or counted == (single.nfev, single.njev)
            statuses.add(lane.status)
    if "evaluations" in end:
        assert Status.MAX_EVALUATIONS in statuses


def test_they_are_evaluated_together() -> None:
    calls = []

    def counted(X: np.ndarray) -> Any:
        calls.append(len(X))
        return rosenbrock(X)

    result = minimize_many(counted, starts(few.FEW), jac=True)
    assert sum(calls) == result.nfev.sum()
    assert len(calls) == result.nfev.max()
    assert calls == sorted(calls, reverse=True)


def test_a_bad_problem_harms_no_other_and_ctrl_c_keeps_what_is_done(tmp_path: Any) -> None:
    X, path, calls = starts(8), tmp_path / "few.npz", 0
    X[3] = np.nan

    def interrupted(X: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        if calls == 42:
            os.kill(os.getpid(), signal.SIGINT)
        return rosenbrock(X)

    cut = minimize_many(interrupted, X, jac=True, checkpoint=path, interrupts="return")
    assert cut.status[3] == Status.NON_FINITE
    assert {Status.INTERRUPTED, Status.CONVERGED} <= {*cut.status.tolist()}
    resumed = minimize_many(rosenbrock, X, jac=True, resume=path)
    whole = minimize_many(rosenbrock, X, jac=True)
    assert whole.success.sum() == 7
    for name in ("x", "fun", "jac", "nit", "nfev", "status", "restarts"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
