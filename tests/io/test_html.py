"""Pieces of HTML for notebooks: well-formed, escaped, without a plot of nothing."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from momentous import Result, accelerate, compare, minimize, testbed
from momentous.io.html import MOST_POINTS, beside, curve, facts_table, table


def parsed(text):
    return ElementTree.fromstring(f"<div>{text}</div>")


def texts(text):
    return "".join(parsed(text).itertext())


def test_all_text_is_escaped():
    evil = "<script>alert('x')</script>"
    for piece in (
        facts_table(evil, {evil: evil}, evil),
        table([evil], [[evil]]),
        curve([1.0, 2.0], evil),
    ):
        assert "<script" not in piece
        assert evil in texts(piece)


def test_numbers_are_short():
    assert texts(facts_table("t", {"a": 1 / 3, "b": 1234567})).endswith("a0.333333b1,234,567")


@pytest.mark.parametrize("values", [[], [1.0], [np.nan, np.inf, 3.0]])
def test_a_plot_of_nothing_is_none(values):
    assert curve(values, "objective") == ""
    assert beside("a", "") == beside("a")


def points(text):
    line = parsed(text).find(".//polyline").attrib["points"]
    return [tuple(map(float, pair.split(","))) for pair in line.split()]


def test_a_curve_falls_from_left_to_right():
    falling = points(curve([3.0, np.nan, 2.0, 1.0], "f"))
    assert len(falling) == 3  # what is not known is left out
    assert [x for x, _ in falling] == sorted(x for x, _ in falling)
    assert [y for _, y in falling] == sorted(y for _, y in falling)  # down on the screen
    assert points(curve([1.0, 1.0], "f"))[0][1] == points(curve([1.0, 1.0], "f"))[1][1]


def test_wide_ranges_are_logarithmic_and_long_ones_thinned():
    text = curve([10.0**-k for k in range(9)], "norm")
    assert "logarithmic scale" in text
    heights = [y for _, y in points(text)]
    assert np.allclose(np.diff(heights), heights[1] - heights[0], atol=0.2)
    many = points(curve(np.arange(10_000.0), "f"))
    assert len(many) <= MOST_POINTS + 1
    assert many[-1][0] == max(x for x, _ in many)


def test_a_result_shows_its_ending_and_its_numbers():
    problem = testbed.rosenbrock(4)
    result = minimize(problem.value, problem.start, jac=problem.gradient)
    text = result._repr_html_()
    assert result.message in texts(text)
    assert "success: CONVERGED" in texts(text)
    assert points(text)
    short = minimize(problem.value, problem.start, jac=problem.gradient, trace=False)
    assert "<svg" not in short._repr_html_()
    maps = accelerate(lambda x: x / 2, np.ones(2), lambda x: float(x @ x))
    assert "residual norm from" in maps._repr_html_()
    assert parsed(Result(x=np.ones(2), message="<x>")._repr_html_()) is not None
    assert "ndarray of shape (2,)" in texts(Result(x=np.ones(2))._repr_html_())
    assert "dict" in texts(Result(x={"weight": np.ones(2)})._repr_html_())  # has no shape


def test_a_comparison_shows_a_table_per_problem():
    problem = testbed.rosenbrock(4)
    found = compare([problem], ["auto", "gd"], max_evaluations=200)
    rows = parsed(found._repr_html_()).findall(".//tr")
    assert len(rows) == 3
    assert "".join(rows[2].itertext()).startswith("gd")
