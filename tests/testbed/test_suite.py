"""The list on which methods are compared: what it says is so, and its halves are fair."""

import itertools

import numpy as np
import pytest

from momentous.testbed import Entry, cutest_names, halves, suite
from momentous.testbed.suite import split

ENTRIES = suite()
SMALL = suite(max_dimension=10_000)
FAMILIES = {e.family: [f for f in ENTRIES if f.family == e.family] for e in ENTRIES}


def built(entry: Entry):
    if entry.family == "network":
        pytest.importorskip("sklearn")
    return entry.make()


def test_names_are_distinct_with_and_without_cutest():
    for entries in (ENTRIES, suite(cutest=True)):
        assert len({e.name for e in entries}) == len(entries)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_an_entry_builds_what_it_says(entry):
    problem = built(entry)
    assert (problem.name, problem.dimension) == (entry.name, entry.dimension)


@pytest.mark.parametrize("entry", SMALL, ids=lambda e: e.name)
def test_value_and_gradient_are_finite_at_the_start_and_agree_with_differences(entry):
    problem = built(entry)
    f, g = problem.value_and_gradient(problem.start)
    assert np.isfinite(f)
    assert np.all(np.isfinite(g))
    assert np.linalg.norm(g) > 1e-6, "solved at the start"
    # Off the start, which for the chains is a corner of their flat parts.
    rng = np.random.default_rng(1)
    x = problem.start + 0.1 * rng.standard_normal(problem.dimension)
    g = problem.gradient(x)
    v = g / np.linalg.norm(g) + rng.standard_normal(g.size) / np.sqrt(g.size)
    near, far = (problem.value(x + h * v) - problem.value(x - h * v) for h in (1e-3, 2e-3))
    assert (8.0 * near - far) / 12e-3 == pytest.approx(g @ v, rel=1e-6)


@pytest.mark.parametrize("entry", SMALL, ids=lambda e: e.name)
def test_an_entry_takes_arrays_of_any_library(entry):
    strict = pytest.importorskip("array_api_strict")
    problem = built(entry)
    f, g = problem.value_and_gradient(problem.start_in(strict))
    assert type(g) is type(f) is type(problem.start_in(strict))
    expected_f, expected_g = problem.value_and_gradient(problem.start)
    assert float(f) == pytest.approx(float(expected_f), rel=1e-12)
    np.testing.assert_allclose(np.asarray(g), expected_g, rtol=1e-9, atol=1e-9)


def test_the_size_can_be_limited_and_does_not_move_thesplit():
    for limit in (10, 1000):
        small = suite(limit)
        assert [e.name for e in small] == [e.name for e in ENTRIES if e.dimension <= limit]
        assert {e.name: e.held_back for e in small}.items() <= {
            e.name: e.held_back for e in ENTRIES
        }.items()


def test_cutest_comes_on_top_and_does_not_move_thesplit():
    entries = suite(cutest=True)
    assert [(e.name, e.held_back) for e in entries[: len(ENTRIES)]] == [
        (e.name, e.held_back) for e in ENTRIES
    ]
    assert tuple(e.name for e in entries[len(ENTRIES) :]) == cutest_names()


def test_within_a_family_every_second_problem_is_held_back():
    for family in FAMILIES.values():
        assert all(a.held_back != b.held_back for a, b in itertools.pairwise(family))


def test_families_begin_in_turn_with_either_half():
    firsts = [family[0].held_back for family in FAMILIES.values()]
    assert firsts == [bool(k % 2) for k in range(len(firsts))]


def test_halves_are_of_equal_size_also_where_problems_are_large():
    for least in (0, 100, 1000, 100_000):
        tuning, held_back = halves(e for e in suite(cutest=True) if e.dimension >= least)
        assert abs(len(tuning) - len(held_back)) <= 2
        assert tuning
        assert not any(e.held_back for e in tuning)
        assert all(e.held_back for e in held_back)


def test_thesplit_depends_on_places_alone():
    def make():
        raise AssertionError("nothing is built for the split")

    rows = [(name, 1, make) for name in "abc"]
    entries = split({"one": rows, "two": rows[:2]})
    assert [e.held_back for e in entries] == [False, True, False, True, False]
