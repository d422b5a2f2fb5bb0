"""A new backend is one class: objective, sweeps and estimators run on it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from momentous import accelerate
from momentous.lowrank import (
    ALSSweep,
    LowRankObjective,
    Ratings,
    find_backend,
    register_backend,
)
from momentous.lowrank.backends import BACKENDS
from momentous.lowrank.backends.numpy import NumpyBackend

pytest.importorskip("sklearn")
from momentous.lowrank import (
    ImplicitMF,
    LowRankImputer,
    MatrixCompletion,
    OneBitMatrixCompletion,
)

CALLS: Counter[str] = Counter()


class Counting(NumpyBackend):
    """NumPy's, with every call to a side counted."""

    name = "counting"

    def side(self, groups, loss, threads):
        side = super().side(groups, loss, threads)
        for name in ("value", "add_gradient", "solve_rows"):
            setattr(side, name, self.counted(name, getattr(side, name)))
        return side

    @staticmethod
    def counted(name, function):
        def counting(*arguments):
            CALLS[name] += 1
            return function(*arguments)

        return counting


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(BACKENDS, "counting", Counting)
    CALLS.clear()


def some_ratings(seed=0):
    rng = np.random.default_rng(seed)
    full = 3.0 + rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    rows, cols = np.nonzero(rng.random(full.shape) < 0.5)
    return Ratings(rows, cols, full[rows, cols], full.shape)


def test_the_objective_runs_on_it():
    problem = LowRankObjective(some_ratings(), 3, backend="counting")
    plain = LowRankObjective(some_ratings(), 3, backend="numpy")
    x = problem.start()
    assert problem.value_and_gradient(x)[0] == plain.value_and_gradient(x)[0]
    problem.value(x)
    assert CALLS == {"add_gradient": 1, "value": 1}


def test_accelerated_sweeps_run_on_it():
    sweep = ALSSweep(some_ratings(), 3, 0.5, backend="counting")
    result = accelerate(sweep, sweep.start(), value=True, max_iterations=10, tol=0.0)
    assert CALLS["solve_rows"] == 2 * result.njev + 1  # one for the start


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MatrixCompletion, {}),
        (MatrixCompletion, {"solver": "lbfgs"}),
        (OneBitMatrixCompletion, {"threshold": "mean"}),
        (ImplicitMF, {}),
    ],
)
def test_estimators_run_on_it_and_remember_it(kind, options, tmp_path):
    data = some_ratings()
    if kind is ImplicitMF:
        data = data.with_values(np.abs(data.values))
    other = kind(2, backend="numpy", **options).fit(data)
    assert not CALLS
    fitted = kind(2, backend="counting", **options).fit(data)
    assert CALLS["add_gradient" if "solver" in options else "solve_rows"] > 5
    np.testing.assert_array_equal(fitted.row_factors_, other.row_factors_)
    fitted.save(tmp_path / "m")
    again = kind.load(tmp_path / "m")
    assert again.backend == "counting"
    CALLS.clear()
    again.fold_in([["new", 1], ["new", 2]], [4.0, 5.0] if kind is not ImplicitMF else None)
    assert (CALLS["solve_rows"] == 1) == (kind is not OneBitMatrixCompletion)


def test_the_imputer_runs_on_it():
    X = np.where(np.random.default_rng(0).random((12, 5)) < 0.2, np.nan, 1.5)
    X[:, 0] = np.arange(12.0)
    LowRankImputer(2, backend="counting").fit_transform(X)
    assert CALLS["solve_rows"] > 3


def test_only_backends_can_be_registered():
    with pytest.raises(TypeError, match="expected a subclass of Backend"):
        register_backend(object)  # type: ignore[type-var]
    assert find_backend(Counting()).name == "counting"
