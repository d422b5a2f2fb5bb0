"""Fits end when what they predict has come to rest, and not beside the saddle that they leave."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from momentous.core.status import Status
from momentous.lowrank import Ratings
from momentous.lowrank.ranks.ratings import owners
from momentous.lowrank.solvers import fit
from momentous.lowrank.solvers.fit import AtRest, FitConfig, solve

M, N, COUNT = 400, 300, 12_000


def noisy(sizes: list[float], seed: int) -> Ratings:
    """A few factors of these sizes, and noise."""
    rng = np.random.default_rng(seed)
    U, V = (rng.standard_normal((size, len(sizes))) for size in (M, N))
    cells = rng.choice(M * N, COUNT, replace=False)
    i, j = cells // N, cells % N
    values = np.einsum("ij,ij->i", U[i] * sizes, V[j]) + 0.3 * rng.standard_normal(COUNT)
    return Ratings(i, j, values, (M, N))


def ended(known: Ratings, held_out: Ratings, **options) -> tuple[int, float, Status, str]:
    config = FitConfig(threads=1, **options)
    objective = config.objective(known)
    x, result = solve(objective, config)
    error = objective.error(x, held_out, known.value_range)
    return result.nit, error, result.status, result.message


@pytest.mark.parametrize("start_scale", [0.1, 1e-2, 1e-3, 1e-6])
@pytest.mark.parametrize(
    ("sizes", "rank", "ridge"),
    [([1.0, 0.5, 0.25], 1, 20.0), ([1.0, 0.5, 0.25], 2, 20.0), ([3.0, 0.3], 1, 20.0),
     ([0.5], 3, 10.0), ([2.0, 0.05], 1, 20.0), ([1.0, 1.0, 1.0, 1.0], 1, None)],
)  # fmt: skip
def test_no_fit_ends_beside_the_saddle_that_it_begins_at(sizes, rank, ridge, start_scale):
    known, held_out = noisy(sizes, 100).split(0.1)
    options = {"rank": rank, "start_scale": start_scale}
    if ridge is not None:
        options |= {"ridge": ridge, "weighting": 0.0}
    _, error, status, _ = ended(known, held_out, **options)
    _, least, _, _ = ended(known, held_out, tol=1e-12, max_iterations=300, **options)
    assert status is Status.CONVERGED
    assert error <= 1.004 * least


def test_growth_of_factors_is_what_keeps_a_fit_going(monkeypatch):
    known, held_out = noisy([1.0, 0.5, 0.25], 100).split(0.1)
    options = {"rank": 1, "ridge": 20.0, "weighting": 0.0, "start_scale": 1e-3}
    _, error, _, _ = ended(known, held_out, **options)
    monkeypatch.setattr(fit, "GROWTH", np.inf)
    assert ended(known, held_out, **options)[1] > 1.2 * error


@pytest.mark.parametrize("loss", ["squared", "logistic", "implicit"])
@pytest.mark.parametrize("rank", [10, 40])
def test_fewer_sweeps_predict_as_well(monkeypatch, rank, loss):
    ratings = Ratings.twin("ml-100k", 1)
    known, held_out = (ratings.signs() if loss == "logistic" else ratings).split(0.1)
    nit, error, status, message = ended(known, held_out, rank=rank, loss=loss)
    monkeypatch.setattr(fit, "CHANGE_PER_TOL", 0.0)
    longer, least, _, _ = ended(known, held_out, rank=rank, loss=loss)
    assert nit <= longer
    assert error <= 1.004 * least
    assert status is Status.CONVERGED
    assert nit == longer or "no factor grows" in message


def test_ranks_look_at_the_entries_that_one_process_looks_at():
    ratings = Ratings.twin("ml-100k", 0)

    def looked_at(own: Ratings, ids: np.ndarray) -> set[tuple[int, int]]:
        part = SimpleNamespace(by_row=own.by_row, row_keys=own.row_keys, whole=ratings)
        found = AtRest(SimpleNamespace(ratings=part, backend=SimpleNamespace(xp=np)), 1e-4)
        return set(zip(ids[found.rows].tolist(), found.cols.tolist(), strict=True))

    whole = looked_at(ratings, np.arange(ratings.shape[0]))
    parts = [ratings.of_users(lambda ids, rank=rank: owners(ids, 3) == rank) for rank in range(3)]
    assert set.union(*(looked_at(own, own.row_ids) for own in parts)) == whole
    assert 10_000 < len(whole) < 40_000
