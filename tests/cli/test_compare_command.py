"""`momentous compare` and `momentous scoreboard`, run as a person would run them."""

from __future__ import annotations

import pytest
from command_line import momentous

from momentous.lab.compare import Comparison, compare
from momentous.lab.compare.scoreboard import MAPS
from momentous.testbed.maps.expectation import poisson_mixture
from momentous.testbed.suite import suite

LBFGS_B = "scipy:l-bfgs-b"


def test_the_command_compares_two_problems_and_writes_tables_and_pictures(tmp_path):
    pytest.importorskip("pyarrow")
    done = momentous(
        "compare", "rosenbrock-10", "qing-10", "--methods", f"auto,{LBFGS_B}", "--out", "here",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "here").iterdir()}
    assert written == {"table.csv", "table.parquet", "traces.parquet", "profiles.png",
                       "rosenbrock-10.png", "qing-10.png", "runs"}  # fmt: skip
    table = Comparison.load(tmp_path / "here" / "table.csv")
    assert len(table.rows) == 4
    for each in table.rows:
        assert f"{each.njev:,}" in done.stdout
        assert each.problem in done.stdout


def test_the_command_tells_the_nearest_names(tmp_path):
    done = momentous("compare", "rosenbrok-10", cwd=tmp_path)
    assert done.returncode == 2
    assert "rosenbrock-10" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_lists_the_names(tmp_path):
    done = momentous("compare", "--list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for e in suite():
        assert e.name in done.stdout


def test_the_page_of_the_maps_is_written_from_its_table(tmp_path):
    pytest.importorskip("pyarrow")
    table = tmp_path / "t.parquet"
    compare(poisson_mixture(), MAPS.methods, progress=False).save(table)
    done = momentous("scoreboard", "--maps", "--table", str(table), "--out", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The page is map-scoreboard.md." in done.stdout
    text = (tmp_path / "map-scoreboard.md").read_text()
    assert all(f"`{name}`" in text for name in MAPS.methods)


def test_a_misspelt_solver_of_maps_is_refused(tmp_path):
    done = momentous("scoreboard", "--maps", "--methods", "andersen", "--out", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "anderson-5" in done.stderr
    assert not list(tmp_path.iterdir())
