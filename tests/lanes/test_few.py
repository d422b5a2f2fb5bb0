"""Few problems run one by one, with their evaluations together: each is its single run."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.lanes.test_many import OPTIONS, require_single_runs, rosenbrock, starts

from momentous import Status, minimize_many
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
