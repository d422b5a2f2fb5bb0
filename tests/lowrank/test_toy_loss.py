"""A new loss is one class: objective, sweeps, estimators and files take it as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from momentous import Status, accelerate, minimize
from momentous.io.archive import ArchiveError
from momentous.lowrank import (
    Loss,
    LowRankObjective,
    Penalty,
    Ratings,
    Sweep,
    find_loss,
    losses,
    register_loss,
)

pytest.importorskip("sklearn")
from momentous.lowrank import MatrixCompletion

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "numba"])


@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic up to ``delta``, linear beyond; the parabola above it has weights delta/|d|."""

    delta: float = 1.0
    name = "huber"

    @staticmethod
    def entry(z, x, parameters):
        d = z - x
        size = np.abs(d)
        inner = np.minimum(size, parameters[0])
        curvature = inner / np.maximum(size, 1e-300)
        return inner * (size - 0.5 * inner), np.sign(d) * inner, np.where(size > 0, curvature, 1.0)

    def largest_curvature(self, x):
        return 1.0

    def mean(self, ratings):
        return float(np.median(ratings.values))


class Poisson(Loss):
    """``exp(z) - x z`` for counts x; |l'''| = l''."""

    name = "poisson"
    self_concordant = True

    @staticmethod
    def entry(z, x, parameters):
        rate = np.exp(z)
        return rate - x * z, rate - x, rate

    def response(self, z, limits):
        return np.exp(z)

    def mean(self, ratings):
        return float(np.log(ratings.mean))


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(losses.base, "LOSSES", dict(losses.LOSSES))
    register_loss(Huber)
    register_loss(Poisson)


def some_ratings(loss, seed=0):
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 25)) * 0.5
    rows, cols = np.nonzero(rng.random(full.shape) < 0.5)
    values = full[rows, cols]
    if loss == "poisson":
        values = rng.poisson(np.exp(values)).astype(float)
    else:  # a few ratings are far off
        values = values + 20.0 * (rng.random(values.size) < 0.03)
    return Ratings(rows, cols, values, full.shape)


@BACKENDS
@pytest.mark.parametrize("loss", ["huber", "poisson", Huber(delta=0.3)], ids=str)
def test_the_gradient_is_the_slope_of_the_value(loss, backend):
    data = some_ratings(str(loss))
    penalty = Penalty(0.5, 0.2, 0.5, biases=True)
    problem = LowRankObjective(data, 3, loss, 0.4, penalty, mean=0.1, backend=backend)
    rng = np.random.default_rng(1)
    x, along = 0.5 * rng.standard_normal((2, problem.dimension))
    slope = (problem.value(x + 1e-6 * along) - problem.value(x - 1e-6 * along)) / 2e-6
    assert problem.gradient(x) @ along == pytest.approx(slope, rel=1e-6)
    z = problem.predict(x, data.rows, data.cols)
    total = np.sum(find_loss(loss).entries(z, data.values)[0])
    weights = (problem.weights[0] * problem.split(x)[0] ** 2).sum()
    weights += (problem.weights[1] * problem.split(x)[1] ** 2).sum()
    expected = (total + weights / 2) / data.nnz
    assert problem.value(x, balance=0.0) == pytest.approx(expected, rel=1e-12)


@BACKENDS
@pytest.mark.parametrize("loss", ["huber", "poisson"])
def test_sweeps_never_raise_it_and_end_where_the_gradient_is_zero(loss, backend):
    data = some_ratings(loss)
    penalty = Penalty(2.0, 1.0, biases=True)
    problem = LowRankObjective(data, 2, loss, 0.0, penalty, mean=0.2, backend=backend)
    sweep = Sweep(problem)
    x, values = sweep.begin(problem.random_start(np.random.default_rng(0))), []
    for _ in range(20):
        x, value = sweep(x)
        values.append(value)
    assert np.all(np.diff(values) <= 1e-12)
    result = accelerate(sweep, x, value=True, tol=1e-7, max_iterations=2000)
    assert result.status is Status.CONVERGED
    assert np.linalg.norm(problem.gradient(sweep.point(result.x))) < 1e-6
    other = minimize(problem.value_and_gradient, x, jac=True, tol=1e-7, method="lbfgs")
    assert other.fun == pytest.approx(result.fun, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["huber", "poisson", Huber(delta=0.5)], ids=str)
@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
def test_the_estimator_fits_predicts_folds_in_saves_and_loads_it(loss, solver, tmp_path):
    data = some_ratings(str(loss))
    model = MatrixCompletion(2, loss=loss, solver=solver, validation_share=0.1).fit(data)
    predicted = model.predict(data)
    assert np.all(np.isfinite(predicted))
    if str(loss) == "poisson":
        assert predicted.min() > 0.0
        assert np.corrcoef(predicted, data.values)[0, 1] > 0.3
    folded = model.fold_in([["new", 1], ["new", 2]], [2.0, 3.0])
    assert "new" in folded.row_ids_.tolist()
    model.save(tmp_path / "m")
    again = MatrixCompletion.load(tmp_path / "m")
    assert again.model_.loss == find_loss(loss)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(data), predicted)
    assert again.model_.evaluate(data) == model.model_.evaluate(data)


def test_outliers_hardly_move_the_huber_fit():
    data, clean = some_ratings("huber"), some_ratings("huber")
    clean = clean.with_values(np.where(clean.values > 10.0, 0.0, clean.values))
    errors = {
        loss: MatrixCompletion(2, loss=loss).fit(data).predict(clean) - clean.values
        for loss in ("squared", "huber")
    }
    assert np.mean(np.abs(errors["huber"])) < 0.6 * np.mean(np.abs(errors["squared"]))


def test_a_model_of_a_loss_that_is_not_registered_is_refused(tmp_path, monkeypatch):
    MatrixCompletion(2, loss="poisson").fit(some_ratings("poisson")).save(tmp_path / "m")
    monkeypatch.delitem(losses.base.LOSSES, "poisson")
    with pytest.raises(ArchiveError, match="loss 'poisson', which is not known here"):
        MatrixCompletion.load(tmp_path / "m")


def test_a_dense_part_needs_a_quadratic_loss():
    class Strange(Poisson):
        name = "strange"
        dense_weight = 1.0

    with pytest.raises(ValueError, match="dense part, so must be quadratic"):
        register_loss(Strange)
