"""Models in shards: files of others stay, shards belong to their model, nobody else may read."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from fuzz_files import InTurn
from momentous.core.checkpoint import shard_path
from momentous.io.archive import ArchiveError
from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.model.shards import OfRank, WithIds
from momentous.lowrank.solvers.fit import FitConfig

OTHERS = ["m.shard-list.txt", "m.shard-b", "m.shard-0000000007-0.npz", "m.shard-7-0",
          "other.shard-0000000007-0"]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((20, 12)) < 0.5)
    ratings = Ratings(rows, cols, rng.random(rows.size), (20, 12))
    return fit_model(ratings, FitConfig(rank=2, threads=1, max_iterations=2)).model


def save_in_shards(model, path, token=7):
    """As two ranks do."""
    whole = path.with_name("whole")
    save_model(model, whole)
    shards = []
    for rank in (1, 0):
        ranks = InTurn(rank)
        ranks.sum = lambda number: token
        save_model(load_model(whole, OfRank(rank, 2))[0], path, None, ranks)
        shards.append(shard_path(path, token, rank))
    whole.unlink()
    return shards[::-1]


def test_saving_removes_old_shards_and_nothing_else(model, tmp_path):
    path = tmp_path / "m"
    for name in OTHERS:
        (tmp_path / name).write_text("mine")
    old = save_in_shards(model, path, 7)
    new = save_in_shards(model, path, 8)
    assert {one.name for one in tmp_path.iterdir()} == {*OTHERS, "m", *(one.name for one in new)}
    save_model(model, path)
    assert {one.name for one in tmp_path.iterdir()} == {*OTHERS, "m"}
    assert not [one for one in (*old, *new) if one.exists()]


@pytest.mark.parametrize("wanted", [None, WithIds([0, 1, 2, 3, 4, 5]), OfRank(0, 3)])
def test_swapped_and_foreign_shards_are_refused(model, tmp_path, wanted):
    path = tmp_path / "m"
    first, second = save_in_shards(model, path)
    assert len(load_model(path)[0].rows) == 20
    foreign = save_in_shards(model, tmp_path / "n", 9)[1].read_bytes()
    kept = first.read_bytes(), second.read_bytes()
    second.write_bytes(foreign)
    with pytest.raises(ArchiveError, match=r"token 9, where shard 1 of 2 .* token 7"):
        load_model(path, wanted)
    first.write_bytes(kept[1])
    second.write_bytes(kept[0])
    with pytest.raises(ArchiveError, match=r"shard 1 of 2 .* where shard 0 of 2"):
        load_model(path, wanted)


def test_one_row_of_a_model_has_its_error_whatever_the_rank(model, tmp_path):
    save_in_shards(model, tmp_path / "m")
    one, _ = load_model(tmp_path / "m", WithIds([3]))
    assert len(one.rows) == 1 < one.rank
    seen = model.seen.rows == 3
    cols, values = model.seen.cols[seen], model.seen.by_row.values[seen]
    answers = model.predict(np.column_stack([np.full(cols.size, 3), cols]))
    assert one.training_error() == pytest.approx(np.sqrt(np.mean((answers - values) ** 2)))


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_a_model_and_its_shards_keep_its_permissions(model, tmp_path):
    path = tmp_path / "m"
    save_model(model, path)
    path.chmod(0o600)
    save_model(model, path)
    for file in (path, *save_in_shards(model, path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
