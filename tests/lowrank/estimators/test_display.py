"""What people see of a fit: a summary under scikit-learn's own display, and its progress."""

import logging
import re

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline

from momentous.io import progress
from momentous.lowrank import ImplicitMF, MatrixCompletion, OneBitMatrixCompletion

RNG = np.random.default_rng(0)
CELLS = RNG.permutation(15 * 12)[:120]
PAIRS = np.column_stack([CELLS // 12, CELLS % 12])
STARS = RNG.integers(1, 6, 120).astype(float)
QUICK = {"rank": 2, "max_iterations": 4, "backend": "numpy"}


def html_of(estimator):
    return estimator._repr_mimebundle_()["text/html"]


def test_before_the_fit_it_is_scikit_learns_display_alone():
    estimator = MatrixCompletion(**QUICK)
    assert "sk-" in html_of(estimator)
    assert "fitted</b>" not in html_of(estimator)
    assert "MatrixCompletion" in estimator._repr_mimebundle_()["text/plain"]


@pytest.mark.parametrize("cls", [MatrixCompletion, OneBitMatrixCompletion, ImplicitMF])
def test_after_it_there_is_a_summary_with_a_curve(cls):
    labels = STARS > 3 if cls is OneBitMatrixCompletion else STARS
    estimator = cls(**QUICK).fit(PAIRS, labels)
    text = html_of(estimator)
    assert f"{cls.__name__}, fitted" in text
    assert estimator._repr_html_() != ""
    for name, value in (("ratings", "120"), ("rank", "2"), ("iterations", "4")):
        assert re.search(rf">{name}</th><td[^>]*>{value}</td>", text)
    assert "<polyline" in text
    value = f"{estimator.objective_:.6g}"
    assert re.search(rf">objective of the model</th><td[^>]*>{value}</td>", text)
    assert f"objective during the fit from {estimator.result_.trace['fun'][0]:.6g} to" in text
    assert "held-out error" not in text


def test_the_held_out_error_has_a_curve_of_its_own():
    estimator = MatrixCompletion(**QUICK, validation_share=0.2).fit(PAIRS, STARS)
    assert f"{min(estimator.validation_errors_):.6g}" in html_of(estimator)
    assert html_of(estimator).count("<polyline") == 2


def test_a_loaded_model_has_a_summary_too(tmp_path):
    MatrixCompletion(**QUICK).fit(PAIRS, STARS).save(tmp_path / "m.npz")
    text = html_of(MatrixCompletion.load(tmp_path / "m.npz"))
    assert "MatrixCompletion, fitted" in text
    assert "<polyline" not in text


def test_as_text_and_within_a_pipeline_it_is_scikit_learns():
    estimator = MatrixCompletion(**QUICK).fit(PAIRS, STARS)
    with sklearn.config_context(display="text"):
        assert "text/html" not in estimator._repr_mimebundle_()
    assert "MatrixCompletion" in make_pipeline(estimator)._repr_html_()


@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
def test_a_fit_says_each_iteration_once_and_why_it_ended(capsys, solver, caplog):
    estimator = MatrixCompletion(**QUICK, solver=solver, verbose=1).fit(PAIRS, STARS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == estimator.n_iter_ + 1
    assert lines[-1] == estimator.message_
    caplog.clear()
    with caplog.at_level(logging.INFO, "momentous"):
        MatrixCompletion(**QUICK, solver=solver).fit(PAIRS, STARS)
    said = [record.getMessage() for record in caplog.records if record.name == "momentous.fit"]
    assert said == [estimator.message_]
    assert capsys.readouterr().out == ""


def test_where_people_look_on_a_fit_has_a_bar(monkeypatch, capsys):
    seen = []

    class Seen(progress.Bar):
        def __call__(self, text, share=None):
            seen.append((text, share))

        def end(self, text):
            seen.append((text, None))

    monkeypatch.setattr("momentous.lowrank.estimators.display.progress_bar", lambda wanted: Seen())
    estimator = MatrixCompletion(**QUICK, verbose=1).fit(PAIRS, STARS)
    assert [share for _, share in seen] == [0.25, 0.5, 0.75, 1.0, None]
    assert seen[-1][0] == estimator.message_
    assert capsys.readouterr() == ("", "")
