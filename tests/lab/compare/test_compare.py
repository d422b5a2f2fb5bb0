"""Comparisons: alike for all, kept, resumed, and turned into curves, pictures and a page."""

import csv
import dataclasses
import math
import statistics

import numpy as np
import pytest

from momentous import GradientDescent, compare, testbed
from momentous.core.acceptance import has_risen
from momentous.core.status import EventKind
from momentous.lab.compare import MEASURES, Comparison, Row, convergence, performance_profile
from momentous.lab.compare.page import page
from momentous.lab.compare.problems import select
from momentous.lab.compare.profiles import costs, plot_convergence, plot_profiles
from momentous.lab.compare.scoreboard import FUNCTIONS
from momentous.lab.compare.verdicts import duel, heuristics, median, summaries
from momentous.lab.record import Ended, Outcome, RunInfo, RunRecord
from momentous.lab.style import line_styles
from momentous.testbed.suite import Entry, suite

LBFGS_B = "scipy:l-bfgs-b"


def bowl(x):
    """A quadratic with curvatures 1 and 10."""
    scale = np.array([1.0, 10.0])
    return float(0.5 * np.sum(scale * x * x)), scale * x


def row(problem, method, njev, *, reached=True, **changes):
    """A row of a table made by hand."""
    plain = Row(
        problem=problem, family="f", dimension=10, held_back=False, method=method,
        guarantee="none" if ":" in method else "some", status=Ended.CONVERGED, message="",
        reached=reached, nfev=njev, njev=njev, nit=None, time=njev / 100, restarts=None,
        guaranteed_turns=None, fun=0.0, grad_norm=0.0, start_fun=1.0, start_grad_norm=1.0,
        minimum=None, tol=1e-6, rtol=1e-6, max_evaluations=100, max_time=1.0, separate=False,
        setup="by hand",
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def record(columns, events=()):
    """A run made by hand."""
    info = RunInfo("p", "a", {}, "by hand")
    return RunRecord.from_columns(info, Outcome(Ended.CONVERGED, ""), columns, events)


def entry(problem, held_back=False):
    return Entry(problem.name, "tests", problem.dimension, lambda: problem, held_back)


# --- running --------------------------------------------------------------------------------------


def test_reached_is_the_first_row_within_the_tolerance_for_ours_and_for_outside_solvers():
    found = compare(testbed.rosenbrock(4), ["auto", "lbfgs", LBFGS_B], rtol=1e-4, progress=False)
    for each in found.rows:
        history = found.records[each.problem, each.method]
        first = int(np.flatnonzero(history.grad_norm <= each.tol)[0])
        assert each.reached
        assert each.tol == 1e-4 * each.start_grad_norm
        assert each.nfev == history.nfev[first]
        assert each.njev == history.njev[first]
        assert each.time == history.time[first]
        assert each.fun == history.fun[first]
        assert each.grad_norm == history.grad_norm[first] <= each.tol


def test_one_call_counts_alike_for_ours_and_for_outside_solvers():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return bowl(x)

    for method in ("auto", "lbfgs", "cg", LBFGS_B, "scipy:cg"):
        calls = 0
        (each,) = compare(("bowl", counted, [1.0, 1.0]), method, progress=False).rows
        # One more: the tolerance is relative to the start, which nobody pays for.
        assert each.nfev == each.njev == calls - 1, method


def test_separate_functions_count_values_apart():
    (each,) = compare(testbed.rosenbrock(4), "ada-ragd", separate=True, progress=False).rows
    assert each.reached
    assert each.nfev < each.njev
    assert math.isfinite(each.fun)


def test_an_absolute_tolerance_replaces_the_relative_one():
    (each,) = compare(("bowl", bowl, [1.0, 1.0]), "gd", tol=1e-3, progress=False).rows
    assert (each.tol, each.rtol) == (1e-3, None)
    assert each.grad_norm <= 1e-3


def test_the_budget_holds_for_all():
    methods = ["auto", LBFGS_B]
    found = compare(testbed.rosenbrock(10), methods, max_evaluations=20, progress=False)
    for each in found.rows:
        assert (each.reached, each.status) == (False, "max evaluations")
        assert 20 <= each.evaluations <= 24
        seen = found.records[each.problem, each.method].grad_norm
        assert each.grad_norm == np.nanmin(seen)


def test_methods_that_need_constants_get_those_of_the_problem_or_are_not_applicable():
    problems = [testbed.saddle(3, 2), testbed.rosenbrock(2)]
    start = problems[0].start + 0.1
    problems[0] = dataclasses.replace(problems[0], start=start)
    known, unknown = compare(problems, "ragd", progress=False).rows
    assert known.reached
    assert (unknown.status, unknown.reached, unknown.nfev) == ("not applicable", False, 0)
    assert "ragd needs L, rho, and rosenbrock-2 has none" in unknown.message


def test_what_goes_wrong_is_an_outcome():
    def broken(x):
        if x[0] != 1.0:
            raise RuntimeError("no more")
        return bowl(x)

    def unmakable():
        raise OSError("no such data")

    problems = [("broken", broken, [1.0, 1.0]), Entry("lost", "tests", 7, unmakable, True)]
    found = compare(problems, ["gd", LBFGS_B], progress=False)
    assert [each.status for each in found.rows] == ["failed"] * 4
    assert [each.message for each in found.rows] == [
        "failed: RuntimeError: no more", "failed: RuntimeError: no more",
        "failed: OSError: no such data", "failed: OSError: no such data",
    ]  # fmt: skip
    assert found.rows[3].dimension == 7
    assert found.rows[3].held_back


def test_methods_have_names_of_their_own():
    with pytest.raises(ValueError, match="two of the methods are called 'gd'"):
        compare(("bowl", bowl, [1.0, 1.0]), ["gd", GradientDescent], progress=False)
    found = compare(("bowl", bowl, [1.0, 1.0]), ["gd", GradientDescent(step_size=0.05)])
    assert found.methods == ["gd", "gd(step_size=0.05)"]
    found = compare(("bowl", bowl, [1.0, 1.0]), {"mine": "gd", "theirs": LBFGS_B})
    assert found.methods == ["mine", "theirs"]


@pytest.mark.parametrize("name", ["scipy:lbfgsb", "lbgfs"])
def test_a_misspelt_method_gets_the_nearest_name(name):
    with pytest.raises(ValueError, match=r"did you mean '.*l-?bfgs"):
        compare(testbed.rosenbrock(2), name)


def test_repeats_keep_the_same_counts():
    once, thrice = (
        compare(testbed.rosenbrock(2), LBFGS_B, repeats=n, progress=False).rows[0] for n in (1, 3)
    )
    assert once.njev == thrice.njev


def test_ctrl_c_returns_what_is_finished():
    calls = 0

    def impatient(x):
        nonlocal calls
        calls += 1
        if calls > 40:
            raise KeyboardInterrupt
        return bowl(x)

    for method in ("gd", LBFGS_B):  # in ours, and in an outside solver
        calls = 0
        problems = [("first", bowl, [1.0, 1.0]), ("second", _never_done(impatient), [1.0, 1.0])]
        found = compare(problems, method, tol=0.0 if method == "gd" else 1e-9, progress=False,
                        max_evaluations=1000)  # fmt: skip
        assert found.interrupted
        assert [each.problem for each in found.rows] == ["first"]


def _never_done(function):
    """The same function with a gradient that no solver can make small."""

    def noisy(x):
        value, gradient = function(x)
        return value, gradient + 1.0 + np.sin(1e6 * x)

    return noisy


# --- resuming -------------------------------------------------------------------------------------


def test_a_killed_run_resumes_without_repeating_what_is_finished(tmp_path):
    made = []

    def problem(name, deadly=False):
        def make():
            made.append(name)
            if deadly:
                raise SystemExit  # as good as a kill: nothing in the library catches it
            return dataclasses.replace(testbed.rosenbrock(2), name=name)

        return Entry(name, "tests", 2, make, False)

    methods = ["lbfgs", LBFGS_B]
    with pytest.raises(SystemExit):
        compare([problem("a"), problem("b", deadly=True)], methods, folder=tmp_path)
    assert made == ["a", "b"]
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    made.clear()
    found = compare([problem("a"), problem("b")], methods, folder=tmp_path)
    assert made == ["b"]
    assert [(each.problem, each.method) for each in found.rows] == [
        ("a", "lbfgs"), ("a", LBFGS_B), ("b", "lbfgs"), ("b", LBFGS_B)
    ]  # fmt: skip
    assert set(found.records) == {(each.problem, each.method) for each in found.rows}
    made.clear()
    again = compare([problem("a"), problem("b")], methods, folder=tmp_path)
    assert not made
    assert again.rows == found.rows
    for name in ("nfev", "fun", "time"):
        for pair, history in found.records.items():
            np.testing.assert_array_equal(
                getattr(again.records[pair], name), getattr(history, name)
            )


def test_other_settings_and_other_parameters_are_other_runs(tmp_path):
    problem, name = testbed.rosenbrock(2), {"method": GradientDescent(step_size=1e-3)}
    compare(problem, name, folder=tmp_path, max_evaluations=50)
    compare(problem, name, folder=tmp_path, max_evaluations=60)
    compare(problem, {"method": GradientDescent(step_size=1e-4)}, folder=tmp_path,
            max_evaluations=60)  # fmt: skip
    assert len(list(tmp_path.iterdir())) == 3


def test_a_torn_file_is_run_again(tmp_path):
    problem = testbed.rosenbrock(2)
    first = compare(problem, LBFGS_B, folder=tmp_path).rows[0]
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert compare(problem, LBFGS_B, folder=tmp_path).rows[0].njev == first.njev
    assert [p.suffix for p in tmp_path.iterdir()] == [".parquet"]


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_loaded_as_it_was_saved(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    found = compare(
        [testbed.rosenbrock(2), testbed.saddle(3, 2)], ["auto", "ragd", LBFGS_B], progress=False
    )
    found.save(tmp_path / f"table.{suffix}")
    loaded = Comparison.load(tmp_path / f"table.{suffix}")
    assert [repr(each) for each in loaded.rows] == [repr(each) for each in found.rows]


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        Comparison([]).save(tmp_path / "table.xlsx")


def test_traces_are_tidy_columns_with_restarts_in_words():
    found = compare(testbed.rosenbrock(4), ["ada-ragd", LBFGS_B], progress=False)
    traces = found.traces
    assert {len(column) for column in traces.values()} == {
        sum(len(history) for history in found.records.values())
    }
    ours = traces["method"] == "ada-ragd"
    restarts = sum("restart" in text or "rollback" in text for text in traces["event"][ours])
    assert restarts == found.rows[0].restarts > 0
    assert not any(traces["event"][~ours])


def test_the_printed_table_names_every_pair():
    text = str(Comparison([row("p", "auto", 1234), row("p", LBFGS_B, 7)]))
    assert "1,234" in text
    assert LBFGS_B in text


def test_a_plateau_above_the_start_is_not_reached():
    columns = {"nfev": [1, 2, 3], "njev": [1, 2, 3], "time": [0, 1, 2], "fun": [1.0, 5.0, 0.5],
               "grad_norm": [1.0, 1e-9, 1e-9]}  # fmt: skip
    assert record(columns).reached(1e-6, start_fun=1.0) == 2
    assert not has_risen(1.0 + 1e-12, 1.0)


# --- curves ---------------------------------------------------------------------------------------

BY_HAND = [
    row("p1", "a", 10), row("p1", "b", 20), row("p1", "c", 99, reached=False),
    row("p2", "a", 40), row("p2", "b", 10), row("p2", "c", 10),
    row("p3", "a", 99, reached=False), row("p3", "b", 30), row("p3", "c", 90),
    row("p4", "a", 99, reached=False), row("p4", "b", 99, reached=False),
    row("p4", "c", 99, reached=False),
]  # fmt: skip


@pytest.mark.parametrize("measure", MEASURES)
def test_profiles_by_hand(measure):
    """All three measures are multiples of the gradients here, so the ratios are the same."""
    profiles = performance_profile(BY_HAND, measure)
    a, b, c = profiles["a"], profiles["b"], profiles["c"]
    np.testing.assert_allclose(a.ratios, [1, 4])
    np.testing.assert_allclose(a.shares, [0.25, 0.5])
    np.testing.assert_allclose(b.ratios, [1, 2])
    np.testing.assert_allclose(b.shares, [0.5, 0.75])
    np.testing.assert_allclose(c.ratios, [1, 3])
    assert [b(factor) for factor in (0.5, 1, 1.9, 2.001, 1e9)] == [0, 0.5, 0.5, 0.75, 0.75]


def test_a_profile_of_some_methods_compares_those_only():
    profiles = performance_profile(BY_HAND, "gradients", ["a", "c"])
    assert set(profiles) == {"a", "c"}
    np.testing.assert_allclose(profiles["c"].ratios, [1])
    np.testing.assert_allclose(profiles["c"].shares, [0.5])


def test_measures_are_told_apart():
    rows = [row("p", "a", 10, nfev=1, time=5.0)]
    found = {measure: costs(rows, measure)["p"]["a"] for measure in MEASURES}
    assert found == {"time": 5.0, "gradients": 10, "evaluations": 11}
    with pytest.raises(ValueError, match="measure='joules' is not one of time, gradients"):
        costs(rows, "joules")


def test_convergence_is_the_smallest_so_far_above_the_lowest():
    def history(fun, norm):
        counts = np.arange(1, len(fun) + 1)
        columns = {"nfev": counts, "njev": counts, "time": counts / 10, "fun": fun,
                   "grad_norm": norm}  # fmt: skip
        return record(columns, [(1, EventKind.RESTART, 3.0), (2, EventKind.PERTURBED, 1.0)])

    histories = {
        ("p", "a"): history([5.0, 7.0, 3.0], [1.0, 2.0, 0.5]),
        ("p", "b"): history([5.0, math.nan, 2.0], [1.0, math.nan, 3.0]),
    }
    found = Comparison([row("p", "a", 3), row("p", "b", 3)], histories)
    curves = convergence(found, "p")
    np.testing.assert_array_equal(curves["a"].cost, [2, 4, 6])
    np.testing.assert_array_equal(curves["a"].gap, [3, 3, 1])  # the lowest is 2
    np.testing.assert_array_equal(curves["a"].grad_norm, [1, 1, 0.5])
    np.testing.assert_array_equal(curves["b"].grad_norm, [1, 1, 1])
    assert curves["a"].restarts == [1]
    known = Comparison([row("p", "a", 3, minimum=1.0)], histories)
    np.testing.assert_array_equal(convergence(known, "p", "time")["a"].gap, [4, 4, 2])


def test_every_line_of_a_picture_is_unlike_the_others():
    styles = line_styles(FUNCTIONS.methods)
    assert len({repr(style) for style in styles.values()}) == len(FUNCTIONS.methods)


@pytest.mark.slow
def test_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    found = compare(testbed.rosenbrock(2), ["auto", "ragd", LBFGS_B], progress=False)
    plot_convergence(found, "rosenbrock-2", tmp_path / "new" / "convergence.png")
    plot_profiles(BY_HAND, tmp_path / "profiles.png")
    for path in (tmp_path / "new" / "convergence.png", tmp_path / "profiles.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


# --- verdicts and the page ------------------------------------------------------------------------

DUELS = [
    row("p1", "auto", 10), row("p1", LBFGS_B, 20), row("p1", "scipy:cg", 5),
    row("p2", "auto", 30, held_back=True, dimension=200_000, time=2.0, guaranteed_turns=4),
    row("p2", LBFGS_B, 10, held_back=True, dimension=200_000, time=8.0),
    row("p2", "scipy:cg", 99, reached=False, status="gave up", message="too hard"),
    row("p3", "auto", 10), row("p3", LBFGS_B, 10, reached=False, status="max evaluations"),
    row("p3", "scipy:cg", 9), row("p4", "auto", 7, reached=False, status="no progress"),
    row("p4", LBFGS_B, 10, fun=0.5), row("p4", "scipy:cg", 10),
]  # fmt: skip


def test_a_duel_by_hand():
    found = duel(DUELS, "auto", [LBFGS_B])
    assert found.gradients == {"p1": 0.5, "p2": 3.0}
    assert median(found.gradients) == 1.75
    assert found.worst == ("p2", 3.0)
    assert (found.both, found.neither) == (2, 0)
    assert (found.only_method, found.only_others) == (["p3"], ["p4"])
    assert found.time_large == {"p2": 0.25}
    assert found.needs_more() == {"p2": 3.0}
    assert found.needs_less() == {"p1": 0.5}
    assert median({}) is None


def test_the_best_of_several_is_chosen_problem_by_problem():
    assert heuristics(DUELS) == [LBFGS_B, "scipy:cg"]
    found = duel(DUELS, "auto", heuristics(DUELS))
    assert found.gradients == {"p1": 2.0, "p2": 3.0, "p3": 10 / 9}


def test_summaries_by_hand():
    auto, lbfgs, cg = summaries(DUELS)
    assert (auto.solved, auto.problems, auto.best_gradients, auto.higher) == (3, 4, [], 0)
    assert (lbfgs.solved, lbfgs.best_gradients, lbfgs.best_time) == (3, ["p2", "p4"], ["p4"])
    assert lbfgs.higher == 1  # p4: 0.5 where the other found 0
    assert (cg.solved, cg.best_gradients) == (3, ["p1", "p3", "p4"])


def test_the_page_says_plainly_where_the_other_wins():
    text = page(FUNCTIONS, DUELS)
    assert f"`{LBFGS_B}` needs fewer gradients than `auto` by more than 10 % on 1" in text
    assert "Where `scipy:l-bfgs-b` wins (`auto`'s multiple): p2 (3)." in text
    assert "Where `auto` wins (its multiple): p1 (0.5)." in text
    assert "Solved by `scipy:l-bfgs-b` only: p4." in text
    assert "| held back | 1 | 0 | 0 | 0 | 3 | 3 | 3 (p2) | 0.25 | 0.25 (1 problem) |" in text
    assert "had a turn on 1 of 4 problems: p2 (4)." in text
    assert "- `scipy:cg`: too hard" in text
    assert "- `scipy:cg`, 3: p1, p3 and p4." in text
    assert "| p2 * | 200,000 | 30 | 10 | - g |" in text


def test_the_scoreboard_of_a_tiny_list_holds_the_numbers_of_its_rows(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    problems = [entry(testbed.rosenbrock(2)), entry(testbed.rosenbrock(10), held_back=True),
                entry(testbed.qing(10))]  # fmt: skip
    methods = ["auto", "lbfgs", LBFGS_B]
    out, work = tmp_path / "docs", tmp_path / "work"
    found = FUNCTIONS.run(problems, out, methods=methods, work=work, progress=False)
    assert len(found.rows) == 2 * 3 * 3  # fused, and with values apart
    assert all(each.reached for each in found.rows)
    text = (out / "scoreboard.md").read_text()
    fused = {(each.problem, each.method): each for each in found.rows if not each.separate}
    apart = {(each.problem, each.method): each for each in found.rows if each.separate}
    ratios = [fused[p.name, "auto"].njev / fused[p.name, LBFGS_B].njev for p in problems]
    assert f"| all | 3 | 0 | 0 | 0 | {statistics.median(ratios):.3g} |" in text
    one = f"{ratios[1]:.3g}"
    assert f"| held back | 1 | 0 | 0 | 0 | {one} | {one} | {one} (rosenbrock-10)" in text
    for p in problems:
        star = " *" if p.held_back else ""
        gradients = [f"{fused[p.name, m].njev:,}" for m in methods]
        assert f"| {p.name}{star} | {p.dimension} | {' | '.join(gradients)} |" in text
        values = [f"{apart[p.name, m].nfev:,} + {apart[p.name, m].njev:,}" for m in methods]
        assert " | ".join(values) in text
    assert (out / "scoreboard-profiles.png").stat().st_size > 10_000
    before = text
    (out / "scoreboard.md").unlink()
    FUNCTIONS.write(out / "scoreboard.parquet", out)  # from the table alone
    assert (out / "scoreboard.md").read_text() == before


# --- problems -------------------------------------------------------------------------------------


def test_problems_are_selected_by_name_family_and_pattern():
    everything = suite()
    family = select(["rosenbrock"], everything)
    assert {e.family for e in family} == {"rosenbrock"}
    assert select(["rosenbrock-*"], everything) == family
    both = select(["rosenbrock-10", "rosenbrock-1?"], everything)
    assert [e.name for e in both] == ["rosenbrock-10"]


def test_a_misspelt_problem_gets_the_nearest_names():
    with pytest.raises(ValueError, match=r"the nearest are .*rosenbrock"):
        select(["rosenbrok"], suite())


def test_nobody_solves_a_problem_whose_value_is_nan():
    found = compare(("nan", lambda x: (math.nan, x), np.ones(3)), ["auto", LBFGS_B], progress=False)
    assert not any(row.reached for row in found.rows)


def test_a_finished_run_of_another_problem_of_that_name_is_not_taken(tmp_path):
    def bowl(weight):
        return lambda x: (weight * float(x @ x), 2 * weight * x)

    first = compare(("mine", bowl(1), np.ones(3)), ["auto"], folder=tmp_path, progress=False)
    second = compare(("mine", bowl(5), np.full(9, 7.0)), ["auto"], folder=tmp_path, progress=False)
    assert [row.dimension for row in (*first.rows, *second.rows)] == [3, 9]
    assert second.rows[0].start_fun == 5 * 9 * 49


def test_limits_that_are_no_numbers_are_refused_by_name():
    for name in ("max_evaluations", "max_time", "rtol"):
        with pytest.raises(ValueError, match=f"{name}=None"):
            compare(testbed.qing(3), ["auto"], progress=False, **{name: None})


# --- the scoreboard again, in parts ---------------------------------------------------------------


def test_only_the_given_methods_are_run_again_and_the_rest_is_kept(tmp_path):
    problems = [entry(testbed.rosenbrock(2)), entry(testbed.qing(4))]
    options = {"separate": False, "progress": False, "max_evaluations": 2000}
    FUNCTIONS.run(problems, tmp_path, methods=["auto", "gd", LBFGS_B], **options)
    table = tmp_path / "scoreboard.parquet"
    old = Comparison.load(table).rows
    marked = [dataclasses.replace(one, setup="of old") for one in old]
    Comparison(marked).save(table)
    FUNCTIONS.run(problems, tmp_path, methods=["gd"], update=True, **options)
    new = Comparison.load(table).rows
    assert [(one.problem, one.method) for one in new] == [(one.problem, one.method) for one in old]
    assert {one.method for one in new if one.setup != "of old"} == {"gd"}
    text = (tmp_path / "scoreboard.md").read_text()
    assert f"- of old: `auto` and `{LBFGS_B}`" in text


def test_a_table_made_by_other_rules_is_not_updated(tmp_path):
    problems = [entry(testbed.rosenbrock(2))]
    options = {"separate": False, "progress": False}
    FUNCTIONS.run(problems, tmp_path, methods=["gd"], max_evaluations=2000, **options)
    with pytest.raises(ValueError, match="made with max_evaluations=2000, these runs with 500"):
        FUNCTIONS.run(
            problems, tmp_path, methods=["gd"], max_evaluations=500, update=True, **options
        )


def test_a_table_from_before_the_overhead_was_measured_is_read(tmp_path):
    table = tmp_path / "old.csv"
    Comparison([row("p", "auto", 10), row("p", LBFGS_B, 20)]).save(table)
    with table.open(newline="") as file:
        lines = list(csv.reader(file))
    kept = [i for i, name in enumerate(lines[0]) if name not in ("overhead", "goal", "plain_maps")]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([line[i] for i in kept] for line in lines)
    rows = Comparison.load(table).rows
    assert [one.overhead for one in rows] == [None, None]
    assert "Overhead" not in page(FUNCTIONS, rows).split("## How it was made")[0]


def test_the_page_begins_with_three_sentences_a_picture_and_a_table():
    rows = [row("p", "auto", 10, overhead=2e-5), row("p", LBFGS_B, 20, overhead=1e-5)]
    parts = page(FUNCTIONS, rows).split("\n\n")
    assert parts[1].startswith(
        f"On 1 problem with 10 to 10 variables `auto` solves 1, `{LBFGS_B}` 1."
    )
    assert parts[1].count(". ") == 2
    assert parts[2].startswith("![")
    assert "| `auto` | 1 of 1 | 0.5 | 0.5 | 0.5 (p) | 0 | 0 | 1 | 1 | 0 | 20 us |" in parts[3]
    assert f"| `{LBFGS_B}` | 1 of 1 | 1 | 1 | 1 | 0 | 1 | 0 | 0 | 0 | 10 us |" in parts[3]


@pytest.mark.parametrize("method", ["auto", LBFGS_B])
def test_the_time_in_the_function_is_not_overhead(method, monkeypatch):
    """A clock that stands still but for the function: what is outside takes no time."""
    now = [0.0]
    monkeypatch.setattr("momentous.lab.meter.process_time", lambda: now[0])

    def slow(x):
        now[0] += 1.0
        return bowl(x)

    problem = ("slow", slow, np.array([3.0, -1.0]))
    (found,) = compare(problem, [method], progress=False).rows
    assert found.njev > 1
    assert found.overhead == 0.0
