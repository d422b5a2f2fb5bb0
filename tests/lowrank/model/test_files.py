"""Models on disk: what is written is read again, and nothing damaged gets as far as a kernel."""

from __future__ import annotations

import json

import numpy as np
import pytest

from momentous.io.archive import ArchiveError
from momentous.lowrank import OneBitMatrixCompletion, Ratings
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.solvers.fit import FitConfig


def model(loss="squared", **options):
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((20, 12)) < 0.5)
    values = rng.choice([-1.0, 1.0], rows.size) if loss == "logistic" else rng.random(rows.size)
    ratings = Ratings(rows, cols, values, (20, 12))
    config = FitConfig(rank=2, loss=loss, threads=1, max_iterations=3, **options)
    return fit_model(ratings, config).model


@pytest.mark.parametrize("loss", ["squared", "logistic", "implicit"])
@pytest.mark.parametrize("share", [None, 0.2])
def test_what_is_written_is_read_again(loss, share, tmp_path):
    before = model(loss, validation_share=share)
    save_model(before, tmp_path / "m", {"a": [1, 2]})
    after, extra = load_model(tmp_path / "m")
    assert extra == {"a": [1, 2]}
    assert (after.loss, after.mean, after.value_range) == (
        before.loss,
        before.mean,
        before.value_range,
    )
    assert after.penalty == before.penalty
    assert (after.held_out is None) == (share is None)
    for name in ("row_factors", "col_factors", "row_bias", "col_bias"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    np.testing.assert_array_equal(after.scores(before.seen), before.scores(before.seen))
    assert after.training_error() == before.training_error()


def test_a_file_that_is_no_model_is_not_replaced(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(FileExistsError, match=r"notes.txt.*no model.*not replaced"):
        save_model(model(), path)
    assert path.read_text() == "my notes"
    path.write_bytes(b"")  # as `tempfile` makes it
    for _ in range(2):
        save_model(model(), path)
    assert load_model(path)[0].rank == model().rank


def spoilt(name, change):
    def spoil(content, arrays):
        arrays[name] = change(arrays[name])

    return spoil


def put(place, value):
    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


def header(name, value):
    def spoil(content, arrays):
        content[name] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoilt("row_factors", put((3, 1), np.nan)), "row_factors are not all finite"),
        (spoilt("row_factors", lambda a: a.astype(np.float16)), "float16"),
        (spoilt("row_factors", lambda a: a[:-1]), "row_ids are 20, but its factors 19"),
        (spoilt("col_factors", lambda a: a[:, :1]), "with 2 columns, its col_factors .* with 1"),
        (spoilt("col_factors", lambda a: a.astype(np.float32)), "col_bias are not all"),
        (spoilt("col_bias", lambda a: a[:-1]), "col_bias are 11"),
        (spoilt("row_bias", put(0, np.inf)), "row_bias are not all finite"),
        (spoilt("row_ids", put(0, 1)), "an id comes twice"),
        (spoilt("starts", put(4, 10_000)), "starts does not ascend"),
        (spoilt("starts", put(0, 1)), "starts does not ascend"),
        (spoilt("starts", lambda a: a[:-1]), "starts does not ascend"),
        (spoilt("starts", lambda a: a.astype(float)), "expected"),
        (spoilt("others", put(0, -1)), "a column lies outside of 0 to 11"),
        (spoilt("others", put(-1, 12)), "a column lies outside of 0 to 11"),
        (spoilt("others", lambda a: a[::-1]), "columns of a row do not ascend"),
        (spoilt("values", put(2, np.nan)), "of its entries, a value is not finite"),
        (spoilt("values", lambda a: a[:-1]), "values in .* columns"),
        (lambda content, arrays: arrays.pop("values"), "lacks 'values'"),
        (lambda content, arrays: arrays.pop("held_out_starts"), "lacks 'held_out_starts'"),
        (lambda content, arrays: arrays.pop("held_out_values"), "lacks 'held_out_values'"),
        (
            spoilt("held_out_starts", put(1, 2**62)),
            "of its entries held out, starts does not ascend",
        ),
        (spoilt("starts", put(slice(1, 4), [2**62, -(2**63), -(2**62)])), "starts does not ascend"),
        (lambda content, arrays: content.pop("mean"), "lacks 'mean'"),
        (header("mean", 1e308), "its mean is 1e\\+308"),
        (header("penalty", {"ridge": 1e308}), "its penalty is"),
        (header("penalty", {"ridge": 1.0, "weighting": 2**70}), "its penalty is"),
        (header("mean", 10**400), "too large"),
        (header("extra", [1]), "its parameters cannot be read"),
        (header("extra", {"parameters": 7}), "its parameters cannot be read"),
        (header("mean", float("nan")), "its mean is nan"),
        (header("limits", [2.0, 1.0]), "its limits are 2.0 and 1.0"),
        (header("limits", "no"), "damaged"),
        (header("penalty", {"ridge": -1.0}), "ridge=-1.0"),
        (header("penalty", {"ridge": 1.0, "biases": 7}), "its penalty is"),
        (header("loss", {"name": "odd", "parameters": {}}), "loss 'odd', which is not known"),
        (header("loss", {"name": "implicit", "parameters": {"alpha": "x"}}), "no number"),
        (header("loss", {"name": "logistic", "parameters": {}}), "needs labels"),
    ],
)
def test_a_damaged_model_is_refused_with_the_reason(spoil, words, tmp_path):
    save_model(model(validation_share=0.2), tmp_path / "m")
    bad = damaged_copy(tmp_path, spoil)
    with pytest.raises(ArchiveError, match=words) as caught:
        load_model(bad)
    assert "bad.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("extra", None, "damaged"),
        ("parameters", {"tol": "x"}, "tol='x'"),
        ("parameters", {"backend": []}, "its backend is"),
        ("parameters", {"backend": "odd"}, "its backend 'odd' is not known"),
        ("parameters", {"device": "odd"}, "its device is 'odd'"),
        ("parameters", {"solver": {"name": "odd"}}, "odd"),
        ("parameters", {"unknown": 3}, "unknown=3"),
        ("parameters", {"dtype": "odd"}, "odd"),
        ("n_iter", -1, "n_iter=-1"),
        ("threshold", 10**400, "too large"),
        ("threshold", "x", "threshold='x'"),
        ("classes", [1, 2, 3], "its classes are"),
    ],
)
def test_an_estimator_does_not_believe_what_a_file_says_about_it(place, value, words, tmp_path):
    rng = np.random.default_rng(0)
    fitted = OneBitMatrixCompletion(rank=2, max_iterations=2, threads=1)
    pairs = np.argwhere(rng.random((9, 9)) < 0.5)
    fitted.fit(pairs, rng.choice([-1.0, 1.0], len(pairs))).save(tmp_path / "m")

    def spoil(content, arrays):
        (content if place == "extra" else content["extra"])[place] = value

    with pytest.raises(ArchiveError, match=words):
        OneBitMatrixCompletion.load(damaged_copy(tmp_path, spoil))


def damaged_copy(tmp_path, spoil):
    with np.load(tmp_path / "m") as archive:
        arrays = dict(archive)
    whole = json.loads(arrays.pop("header").tobytes())
    spoil(whole["content"], arrays)
    text = np.frombuffer(json.dumps(whole).encode(), np.uint8)
    np.savez(tmp_path / "bad.npz", header=text, **arrays)
    return tmp_path / "bad.npz"
