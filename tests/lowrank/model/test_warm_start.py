"""Fits that go on from a model: nobody is forgotten, and what is held out was never fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.solvers.fit import FitConfig
from momentous.lowrank.tasks import OptionError, fit_file


def entries(rows, seed=0):
    """Ratings of these users for half of 20 items each."""
    rng = np.random.default_rng(seed)
    users = np.repeat(rows, 10)
    items = np.concatenate([rng.choice(20, 10, replace=False) for _ in rows])
    return users, items, rng.integers(1, 6, users.size).astype(float)


def ratings_of(*parts):
    users, items, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    ids, rows = np.unique(users, return_inverse=True)
    return Ratings(rows, items, values, (len(ids), 20), row_ids=ids)


def cells(model, ratings):
    """The pairs (user, item) of entries by position."""
    users = model.rows.ids[ratings.rows]
    return set(zip(users.tolist(), model.cols.ids[ratings.cols].tolist(), strict=True))


CONFIG = FitConfig(rank=2, threads=1, validation_share=0.2, max_iterations=3)
OLD, NEW_USERS = entries(np.arange(10, 40)), entries(np.arange(10), seed=1)


def test_what_was_held_out_stays_so_as_the_ratings_grow(tmp_path):
    save_model(fit_model(ratings_of(OLD), CONFIG).model, tmp_path / "m")
    first = load_model(tmp_path / "m")[0]
    grown = ratings_of(OLD, NEW_USERS)
    # Another seed and share, too: what the model has been fitted to is known from the model.
    for config in (CONFIG, FitConfig(rank=2, threads=1, validation_share=0.5, random_state=7)):
        second = fit_model(grown, config, start=first).model
        held_out, fitted = cells(second, second.held_out), cells(second, second.seen)
        assert not held_out & cells(first, first.seen)
        assert cells(first, first.held_out) <= held_out
        added = len(held_out) - first.held_out.nnz
        assert added == round(config.validation_share * len(NEW_USERS[0]))
        assert not held_out & fitted
        assert len(held_out) + len(fitted) == grown.nnz


def test_a_model_that_has_seen_all_cannot_be_validated_on_it():
    ratings = ratings_of(OLD)
    start = fit_model(ratings, FitConfig(rank=2, threads=1)).model
    with pytest.raises(ValueError, match="was fitted to 300 of these 300 entries"):
        fit_model(ratings, CONFIG, start=start)
    # Of folded-in entries, too.
    first = fit_model(ratings, CONFIG).model
    folded = first.fold_in(ratings_of(NEW_USERS))
    second = fit_model(ratings_of(OLD, NEW_USERS), CONFIG, start=folded).model
    assert cells(second, second.held_out) == cells(first, first.held_out)


def test_resuming_on_another_file_drops_nobody(tmp_path):
    def write(name, *parts):
        users, items, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        lines = [f"u{u},{i},{v:g}" for u, i, v in zip(users, items, values, strict=True)]
        Path(tmp_path / name).write_text("\n".join(["user,item,rating", *lines, ""]))
        return tmp_path / name

    out, options = tmp_path / "model", {"threads": 1, "rank": 2}
    fit_file(write("old.csv", OLD), out, **options)
    before = out.read_bytes()
    few = tuple(part[:30] for part in OLD)
    with pytest.raises(OptionError, match=r"27 users and \d+ items of the model are not in .*new"):
        fit_file(write("new.csv", few, NEW_USERS), out, resume=True)
    assert out.read_bytes() == before
    fit_file(write("both.csv", OLD, NEW_USERS), out, resume=True)
    assert len(load_model(out)[0].rows) == 40


def test_the_command_goes_on_with_the_solver_of_an_estimator(tmp_path):
    pytest.importorskip("sklearn")
    from momentous import LBFGS
    from momentous.lowrank import MatrixCompletion

    lines = [f"{u},{i},{v:g}" for u, i, v in zip(*OLD, strict=True)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    out = tmp_path / "model"
    estimator = MatrixCompletion(2, threads=1, solver=LBFGS(memory=3), max_iterations=3)
    estimator.fit(Ratings.read(tmp_path / "r.csv")).save(out)
    fit_file(tmp_path / "r.csv", out, resume=True)
    assert MatrixCompletion.load(out).solver == LBFGS(memory=3)
