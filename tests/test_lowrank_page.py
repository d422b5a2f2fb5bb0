"""What docs/low-rank.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "low-rank.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def write_movielens(path: Path) -> None:
    """Ratings of rank 1 with biases, in the form of MovieLens 1M."""
    rng = np.random.default_rng(0)
    taste, kind = rng.standard_normal(80), rng.standard_normal(50)
    full = 3.5 + 0.5 * rng.standard_normal((80, 1)) + np.outer(taste, kind)
    stars = np.clip(np.round(full), 1, 5).astype(int)
    users, items = np.nonzero(rng.random(full.shape) < 0.5)
    lines = [
        f"{u + 1}::{i + 101}::{stars[u, i]}::978300000" for u, i in zip(users, items, strict=True)
    ]
    path.write_text("\n".join([*lines, ""]))


def test_the_first_example_runs_on_a_file_of_ratings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    write_movielens(tmp_path / "ratings.dat")
    names: dict[str, Any] = {}
    exec(compile(EXAMPLES[0], "docs/low-rank.md", "exec"), names)
    assert names["ratings"].shape == (80, 50)
    score, *_ = capsys.readouterr().out.splitlines()
    assert float(score) > 0.5  # of what the fit has not seen
    model, again, held_out = (names[name] for name in ("model", "again", "held_out"))
    np.testing.assert_array_equal(again.predict(held_out), model.predict(held_out))
    items, scores = names["items"], names["scores"]
    assert len(items) == 5
    assert np.all(np.diff(scores) <= 0)
    assert set(items) <= set(names["ratings"].col_ids)


def test_the_example_of_the_estimators_in_use_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    names: dict[str, Any] = {}
    exec(compile(EXAMPLES[1], "docs/low-rank.md", "exec"), names)
    assert len(EXAMPLES) == 2
    assert capsys.readouterr().out.startswith("RankingMetrics(ndcg=")
    assert all(len(one.items) == 5 and "item3" not in one.items for one in names["best"])
    assert "user40" in names["model"].row_ids_
    assert "item30" in names["wider"].col_ids_
