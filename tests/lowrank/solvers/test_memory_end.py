"""Memory that ends in the middle of a fit costs one iteration, not the fit."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.backends import BACKENDS
from momentous.lowrank.backends.device import gpu_available
from momentous.lowrank.backends.numpy import NumpyBackend
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.solvers.fit import FitConfig

gpu = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="no GPU to use")]


class Small(NumpyBackend):
    """NumPy's, whose memory ends after so many calls to its sides."""

    def __init__(self, calls=15):
        self.left = calls

    def side(self, groups, loss, threads):
        side = super().side(groups, loss, threads)
        for name in ("solve_rows", "add_gradient"):
            setattr(side, name, self.counted(getattr(side, name)))
        return side

    def counted(self, work):
        def call(*arguments):
            self.left -= 1
            if self.left < 0:
                raise MemoryError("Out of memory allocating 4,096 bytes.")
            return work(*arguments)

        return call


def some_ratings():
    rng = np.random.default_rng(0)
    pairs = rng.choice(60 * 40, 900, replace=False)
    return Ratings(pairs // 40, pairs % 40, rng.integers(1, 6, 900).astype(float), (60, 40))


@pytest.mark.parametrize("solver", ["auto", "sweep", "ada-ragd"])
def test_the_last_point_is_kept_and_can_be_saved(solver, tmp_path):
    options = {"rank": 3, "tol": 0.0, "max_iterations": 50, "solver": solver, "ridge": 2.0}
    found = fit_model(some_ratings(), FitConfig(backend=Small(15), **options))
    assert 2 <= found.result.nit < 15
    assert isinstance(found.error, MemoryError)
    assert found.message == (
        f"memory ended after iteration {found.result.nit}, whose point is kept: Out of memory "
        "allocating 4,096 bytes; take a lower rank, fewer entries or another device"
    )
    whole = fit_model(
        some_ratings(), FitConfig(backend="numpy", **options | {"max_iterations": found.result.nit})
    )
    assert found.objective == pytest.approx(whole.objective, rel=1e-2)
    save_model(found.model, tmp_path / "model", {})
    again, _ = load_model(tmp_path / "model")
    assert again.training_error() == found.model.training_error()


def test_without_a_point_yet_the_error_itself_is_raised():
    with pytest.raises(MemoryError, match="4,096 bytes"):
        fit_model(some_ratings(), FitConfig(rank=3, backend=Small(0)))


def test_an_estimator_has_the_model_when_it_says_that_memory_ended():
    estimators = pytest.importorskip("momentous.lowrank.estimators")
    estimator = estimators.MatrixCompletion(rank=3, tol=0.0, max_iterations=50, backend=Small(15))
    with pytest.raises(MemoryError, match="memory ended after iteration"):
        estimator.fit(some_ratings())
    assert np.isfinite(estimator.predict(np.array([[0, 0], [5, 7]]))).all()


def test_the_command_writes_the_model_and_says_why_it_ended(tmp_path, monkeypatch):
    testing = pytest.importorskip("click.testing")
    from momentous.cli.fit import command

    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(BACKENDS, "small", type("Small15", (Small,), {"name": "small"}))
    ratings = some_ratings()
    table = np.column_stack([ratings.rows, ratings.cols, ratings.values.astype(int)])
    np.savetxt("ratings.csv", table, "%d", ",")
    words = ["ratings.csv", "--out", "model", "--rank", "3", "--tol", "0", "--backend", "small"]
    done = testing.CliRunner().invoke(command, words)
    assert done.exit_code == 1
    assert "Error: memory ended after iteration" in done.output
    assert "the model as it stands is in model" in done.output
    assert load_model("model")[0].training_error() < 1.5


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu)])
def test_memory_that_ends_on_the_gpu(device):
    import cupy

    rng = np.random.default_rng(0)
    pairs = rng.choice(3000 * 2000, 300_000, replace=False)
    values = rng.integers(1, 6, pairs.size).astype(np.float32)
    ratings = Ratings(pairs // 2000, pairs % 2000, values, (3000, 2000))
    pool = cupy.get_default_memory_pool()

    def watch(step):
        if step.nit == 3:  # from now on the sums of a half sweep do not fit
            pool.free_all_blocks()
            pool.set_limit(size=pool.used_bytes() + (4 << 20))

    try:
        config = FitConfig(rank=40, tol=0.0, max_iterations=20, device=device)
        found = fit_model(ratings, config, watch=watch)
    finally:
        pool.set_limit(size=0)
    assert found.result.nit == 3
    assert "memory ended after iteration 3" in found.message
    assert "bytes" in found.message
    assert found.model.training_error() < 1.5
