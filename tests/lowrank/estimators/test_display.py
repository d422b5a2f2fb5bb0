"""What people see of a fit: scikit-learn's display, and its progress."""

import logging

import numpy as np
import pytest

from momentous.io import progress
from momentous.lowrank import MatrixCompletion

RNG = np.random.default_rng(0)
CELLS = RNG.permutation(15 * 12)[:120]
PAIRS = np.column_stack([CELLS // 12, CELLS % 12])
STARS = RNG.integers(1, 6, 120).astype(float)
QUICK = {"rank": 2, "max_iterations": 4, "backend": "numpy"}


def test_a_display_computes_no_certificate():
    estimator = MatrixCompletion(**QUICK, ridge="fixed").fit(PAIRS, STARS)
    assert "n_iter_" in estimator._repr_mimebundle_()["text/html"]
    assert estimator._certified[1] is None
    assert "certificate_" not in dir(estimator)
    assert estimator.certificate_.gap >= 0.0
    assert "certificate_" in dir(estimator)


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

    monkeypatch.setattr("momentous.lowrank.estimators.base.progress_bar", lambda wanted: Seen())
    estimator = MatrixCompletion(**QUICK, verbose=1).fit(PAIRS, STARS)
    assert [share for _, share in seen] == [0.25, 0.5, 0.75, 1.0, None]
    assert seen[-1][0] == estimator.message_
    assert capsys.readouterr() == ("", "")
