"""Low-rank models on ranks: the same model on any number of them, files, and what is sent."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")  # the ranks of these tests are those of torch.distributed

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "distributed")]

import fit_kills as kills  # noqa: E402
import launch  # noqa: E402
import rank_cases as cases  # noqa: E402

from momentous.distributed import Alone  # noqa: E402
from momentous.lowrank import Ratings  # noqa: E402
from momentous.lowrank.backends import RowStep, find_backend  # noqa: E402
from momentous.lowrank.data.draws import keys_of, normals  # noqa: E402
from momentous.lowrank.model import load_model, save_model  # noqa: E402
from momentous.lowrank.model.shards import WithIds  # noqa: E402
from momentous.lowrank.ranks import RankRatings  # noqa: E402
from momentous.lowrank.ranks.ratings import owners  # noqa: E402
from momentous.lowrank.tasks import (  # noqa: E402
    evaluate_file,
    fit_file,
    predict_file,
    recommend_items,
)

pytestmark = pytest.mark.slow

SIZE = 4
SIZES = range(1, SIZE + 1)
PARTS = "sources/parts"
OPTIONS = {"rank": 3, "threads": 1, "backend": "numpy", "validation_share": 0.1}


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """The folder, and what every rank has found."""

    def prepare(folder: Path) -> None:
        cases.write_sources(folder / "sources")
        for name in ("alone", "begun"):
            fit_file(folder / PARTS, folder / name, max_iterations=4, **OPTIONS)

    return launch.launched("torch", SIZE, tmp_path_factory, str(HERE / "rank_program.py"), prepare)


def same_fit(found: list[dict], expected: dict) -> None:
    for name in ("nit", "restarts"):
        assert {each[name] for each in found} == {expected[name]}
    for each in found:
        assert each["objective"] == pytest.approx(expected["objective"], rel=1e-10)
        assert each["training"] == pytest.approx(expected["training"], rel=1e-8)
        np.testing.assert_allclose(each["held out"], expected["held out"], rtol=1e-6)


# --- the same model -------------------------------------------------------------------------------


@functools.cache
def fit_of_one_process(name: str) -> dict:
    return cases.fit(None, name)


@pytest.mark.parametrize(
    ("size", "name"), [(size, name) for size in SIZES for name in cases.cases_on(size)]
)
def test_a_fit_is_that_of_one_process_on_any_number_of_ranks(launched, size, name):
    _, ranks = launched
    found = [rank["fits"][str(size)][name] for rank in ranks[:size]]
    same_fit(found, fit_of_one_process(name))


@pytest.mark.parametrize("name", cases.STEPS)
def test_conjugate_gradients_are_those_of_one_process(launched, name):
    _, ranks = launched
    expected = cases.conjugate(None, name)
    assert all(after < before for before, after in itertools.pairwise(expected))
    np.testing.assert_allclose(cases.conjugate(Alone(), name), expected, rtol=1e-10)
    for rank in ranks[:3]:
        np.testing.assert_allclose(rank["conjugate"][name], expected, rtol=1e-10)


@pytest.mark.parametrize("loss", ["squared", "logistic", "implicit"])
def test_the_best_rank_and_its_proof_are_those_of_one_process(launched, loss):
    _, ranks = launched
    expected = cases.certified(None, loss)
    for found in (cases.certified(Alone(), loss), *(rank["certified"][loss] for rank in ranks[:3])):
        assert found["rank"] == expected["rank"]
        assert max(found["gaps"]) < 1e-6
        np.testing.assert_allclose(found["fit"], expected["fit"], rtol=1e-6)


def test_every_user_is_on_one_rank(launched):
    _, ranks = launched
    users = [user for rank in ranks for user in rank["fits"][str(SIZE)]["squared"]["users"]]
    assert len(users) == len({*users}) == 4 * SIZE


@pytest.mark.parametrize("loss", ["squared", "logistic", "implicit"])
def test_one_rank_has_the_objective_of_one_process(loss):
    ratings = cases.whole_ratings(loss)
    config = cases.FitConfig(loss=loss, rank=3, ridge="fixed", backend="numpy")
    on_rank = config.objective(RankRatings.share_of(ratings, Alone()))
    alone = config.objective(ratings)
    assert (on_rank.mean, on_rank.ridge) == pytest.approx((alone.mean, alone.ridge), rel=1e-14)
    x = on_rank.random_start(np.random.default_rng(1)) + 0.1
    for found, expected in zip(
        (*on_rank.value_and_gradient(x), on_rank.value(x, balance=0.5)),
        (*alone.value_and_gradient(x), alone.value(x, balance=0.5)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
    P, Q = alone.split(x)
    for which, own, other in ((0, P, Q), (1, Q, P), (1, None, P)):
        rows, value = alone.half_sweep(which, own, other)
        new_rows, new_value = on_rank.half_sweep(which, own, other)
        np.testing.assert_allclose(new_rows, rows, rtol=1e-8, atol=1e-10)
        assert new_value == pytest.approx(value, rel=1e-10)


def test_the_svd_start_is_that_of_one_process():
    ratings = cases.whole_ratings("squared")
    config = cases.FitConfig(rank=3, backend="numpy")
    on_rank = config.objective(RankRatings.share_of(ratings, Alone()))
    np.testing.assert_allclose(
        on_rank.start(), config.objective(ratings).start(), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("size", [4, 13, 17])
def test_compiled_sums_are_those_of_numpy(size):
    ratings = cases.whole_ratings("squared")
    rng = np.random.default_rng(0)
    step = RowStep(
        np.ones((25, size)), rng.standard_normal((90, size)), rng.standard_normal(90),
        rng.standard_normal((25, size)),
    )  # fmt: skip
    loss = cases.FitConfig().loss_object
    for given in (step, step._replace(offsets=None, current=None)):
        (lines, value), (expected, total) = (
            find_backend(name).side(ratings.by_col, loss, 1).row_sums(given, 3, 21)
            for name in ("numba", "numpy")
        )
        np.testing.assert_allclose(lines, expected, rtol=1e-11, atol=1e-11)
        assert value == pytest.approx(total, rel=1e-12)


# --- what is sent ---------------------------------------------------------------------------------


def test_traffic_is_that_of_the_table(launched):
    """In numbers of 8 bytes, with n = 25 items, filled up to 27 for sums, and w = 4 parameters."""
    _, ranks = launched
    n, full, w = 25, 27, 4
    line = w * (w + 1) // 2 + w
    value = 2 + (w + 1) ** 2
    for rank in ranks[:3]:
        for loss, found in rank["traffic"].items():
            sent = {name: count // 8 for name, count in found.items()}
            assert sent["users"] == n * w
            assert sent["gradient"] == 2 * n * w + value
            more = (0,) if loss != "logistic" else (2, 2 + n * w + n)
            assert sent["items"] - full * line in more


# --- files ----------------------------------------------------------------------------------------


def test_a_model_in_shards_is_read_in_one_process(launched):
    folder, ranks = launched
    model, extra = load_model(folder / f"model-{SIZE}")
    assert extra == {"n_iter": 1}
    assert model.rows.ids.tolist() == sorted(cases.whole_ratings("squared").row_ids)
    for rank in ranks:
        fitted = rank["fits"][str(SIZE)]["squared"]
        pairs = np.array([[u, 7 * k] for k, u in enumerate(fitted["users"])], dtype=object)
        np.testing.assert_allclose(model.predict(pairs), fitted["predictions"], rtol=1e-12)
        assert rank["files"]["kept"] == sorted(rank["files"]["of"])
    assert len([*folder.glob(f"model-{SIZE}.shard-*")]) == SIZE


def test_shards_are_read_by_other_numbers_of_ranks(launched):
    _, ranks = launched
    every = cases.whole_ratings("squared").row_ids
    for number, rank in enumerate(ranks):
        expected = every[owners(every, 6) == number]
        assert rank["files"]["of six"] == sorted(expected)


def test_only_the_shards_of_the_users_asked_for_are_read(launched, tmp_path):
    folder, ranks = launched
    files = [folder / "begun", *folder.glob("begun.shard-*")]
    user = ranks[2]["files"]["of"][0]
    for file in files:
        if file.name == "begun" or file.name.endswith("-2"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "pairs.csv").write_text(f"user,item\n{user},7\n{user},14\n")
    pairs = np.array([[user, 7], [user, 14]], dtype=object)
    expected = load_model(folder / "begun")[0].predict(pairs)
    found = predict_file(tmp_path / "begun", tmp_path / "pairs.csv")["prediction"]
    np.testing.assert_array_equal(found, expected)
    assert len(recommend_items(tmp_path / "begun", [user], 2)[user]) == 2
    with pytest.raises(ValueError, match=r"there is no file .*shard"):
        recommend_items(tmp_path / "begun", ["nobody"])
    with pytest.warns(RuntimeWarning, match=r"not in .*: 'nobody', for whom .* 90 users are"):
        assert len(recommend_items(folder / "begun", ["nobody"], 2)["nobody"]) == 2


def test_texts_find_the_shards_of_numbers():
    numbers, texts = WithIds([7, 120]), WithIds(["7", "120", "007", "x"])
    assert [*numbers.shards(5, "i")] == [*texts.shards(5, "i")]
    assert [*WithIds(["x"]).shards(5, "i")] == [0]
    assert [*numbers.shards(5, "U")] == [*WithIds(["7", "120"]).shards(5, "U")]
    assert texts.chosen(np.array([7, 8, 120])).tolist() == [True, False, True]


def test_a_model_is_evaluated_by_all_ranks(launched):
    folder, ranks = launched
    expected = evaluate_file(folder / "begun", folder / PARTS, cache=False)
    for rank in ranks:
        assert rank["evaluated"] == pytest.approx(expected, rel=1e-12)


def test_a_missing_shard_is_named(launched, tmp_path):
    folder, _ = launched
    (tmp_path / "model").write_bytes((folder / f"model-{SIZE}").read_bytes())
    with pytest.raises(ValueError, match=r"there is no file .*shard"):
        load_model(tmp_path / "model")


def test_files_are_read_by_all_ranks(launched):
    folder, ranks = launched
    (facts,) = {json.dumps(rank["read"] | {"seconds": 0}) for rank in ranks}
    facts, ratings = json.loads(facts), cases.whole_ratings("squared")
    assert (facts["ratings"], facts["users"], facts["items"]) == (ratings.nnz, *ratings.shape)
    expected = cases.fit_model(ratings, cases.FitConfig(**OPTIONS))
    assert facts["objective"] == pytest.approx(expected.objective, rel=1e-10)
    model, _ = load_model(folder / "model")
    read = Ratings.read(folder / PARTS, cache=False)
    assert model.rows.ids.tolist() == read.row_ids.tolist()
    assert model.cols.ids.tolist() == read.col_ids.tolist()
    assert evaluate_file(folder / "model", folder / PARTS, cache=False)["unknown_users"] == 0
    assert len(recommend_items(folder / "model", ["user 3"], 2)["user 3"]) == 2


def test_a_fit_goes_on_with_another_number_of_ranks(launched):
    """On four ranks what one process had begun, and the other way round: at the last model."""
    folder, ranks = launched
    begun, extra = load_model(folder / "alone")
    save_model(dataclasses.replace(begun, run=None), folder / "alone", extra)
    expected = fit_file(folder / PARTS, folder / "alone", resume=True)
    for rank in ranks:
        assert rank["resumed"]["iterations"] == expected["iterations"]
        for name in ("objective", "held_out_error"):
            assert rank["resumed"][name] == pytest.approx(expected[name], rel=1e-10)
    again = fit_file(folder / PARTS, folder / "model", resume=True)
    assert again["objective"] <= ranks[0]["read"]["objective"] * (1 + 1e-6)
    assert not [*folder.glob("model.shard-*")]


def test_a_fit_goes_on_with_as_many_ranks_as_if_it_had_not_ended(launched):
    for rank in launched[1]:
        assert all(rank["going on"].values()), rank["going on"]


@pytest.mark.parametrize("name", ["parts", "one.csv", "one.parquet", "quoted.csv"])
def test_every_rank_gets_its_users(launched, name):
    _, ranks = launched
    expected = cases.lines_of(cases.whole_ratings("squared"))
    found = [rank["reads"][name] for rank in ranks]
    assert sorted(line for each in found for line in each) == sorted(expected)
    assert all(found)


@pytest.mark.parametrize("name", ["bad", "bad.csv"])
def test_a_bad_line_ends_all_ranks(launched, name):
    folder, ranks = launched
    file = folder / "sources" / {"bad": "bad/part-3.csv"}.get(name, name)
    line = file.read_text().splitlines().index("user 3,7") + 1
    for rank in ranks:
        assert f"{file}, line {line}: expected 3 fields" in rank["reads"][name]


# --- faults ---------------------------------------------------------------------------------------


def test_a_full_disk_on_one_rank_ends_all_and_leaves_the_old_model(launched):
    _, ranks = launched
    for rank in ranks:
        found = rank["full disk"]
        assert found["problem"].startswith("rank 1: ")
        assert found["kept"]
        assert any("could not be saved meanwhile" in note for note in found["notes"])


def test_a_rank_that_hangs_is_not_waited_for_for_ever(launched):
    _, ranks = launched
    for rank in ranks[:2]:
        assert "has waited 1 s in" in rank["hang"]
    assert all(rank["hang"] != "it has ended well" for rank in ranks)


def test_a_killed_worker_is_started_again_and_the_fit_goes_on(tmp_path):
    kills.write_parts(tmp_path / "parts", cases.whole_ratings("squared"))
    chance = random.Random(3)
    found = kills.trial(tmp_path / "trial", tmp_path / "parts", "worker", chance, size=2)
    assert found["went on from"] > 0
    assert found["good"], found


# --- random numbers that belong to ids ------------------------------------------------------------


def test_keys_do_not_depend_on_how_ids_are_stored():
    short, long = np.array(["a", "bc"]), np.array(["a", "bc", "longer"])
    assert keys_of(short).tolist() == keys_of(long)[:2].tolist()
    assert keys_of(np.array([7], np.int32)) == keys_of(np.array([7], np.int64))
    assert len({*keys_of(np.arange(10_000)).tolist()}) == 10_000


def test_normals_are_normal():
    drawn = normals(keys_of(np.arange(20_000)), 3, np.uint64(1))
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(drawn.T @ drawn / 20_000, np.eye(3), atol=0.04)


def test_a_share_is_held_out_exactly():
    own = RankRatings.share_of(cases.whole_ratings("squared"), Alone())
    kept, held = own.split(0.25, 3)
    assert held.nnz == round(0.25 * own.nnz)
    assert kept.nnz + held.nnz == own.nnz
    assert not np.array_equal(held.cols, own.split(0.25, 4)[1].cols)
