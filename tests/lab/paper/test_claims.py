"""Every statement of section 5 is seen where runs show it, not seen where they contradict it."""

import dataclasses
import itertools

import numpy as np
import pytest

from momentous.lab.paper.claims import COUNTS as COUNTED
from momentous.lab.paper.claims import STATEMENTS, judge, rises
from momentous.lab.paper.methods import ADAPTIVE, PAPER_METHODS, SEVEN
from momentous.lab.paper.results import RunSet, row_at
from paper_runs import LONG, long_set, short_run, short_set, with_info, with_outcome, without


def with_run(run_set: RunSet, method: str, **columns) -> RunSet:
    """The same, with other columns or events in one run."""
    return changed(run_set, method, lambda run: dataclasses.replace(run, **columns))


def described(run_set: RunSet, method: str, **info) -> RunSet:
    """The same, with something else said of one run."""
    return changed(run_set, method, lambda run: with_info(run, **info))


def ended(run_set: RunSet, method: str, status: str) -> RunSet:
    return changed(run_set, method, lambda run: with_outcome(run, status))


def changed(run_set: RunSet, method: str, change) -> RunSet:
    runs = [change(run) if run.info.method == method else run for run in run_set.runs]
    return dataclasses.replace(run_set, runs=runs)


def cut(run_set: RunSet, method: str, rows: int, status: str = "max iterations") -> RunSet:
    """The same, with one run that ended after so many rows."""
    return ended(changed(run_set, method, lambda run: run.first_rows(rows)), method, status)


def column(run_set: RunSet, method: str, name: str) -> np.ndarray:
    return next(getattr(r, name) for r in run_set.runs if r.info.method == method).copy()


def verdict(run_set: RunSet, part: str):
    (claim,) = [claim for claim in judge([run_set]) if part in claim.statement]
    return claim


EVALUATIONS, TIME = "GD, at equal evaluations", "GD, at equal time"
ERROR, LEAST = "decrease the objective error", "by the smallest so far"
NORM = "gradient norm to a low level quickly (here: lower than that of the other five at equal"
CURVATURE, CG, COUNTS, THREE = (
    "negative curvature",
    "of CG oscillate",
    "takes one gradient",
    "at least three values",
)
QUICK, LIKE_GD = "less total time", "as quick as GD"
SELDOM, RISEN = "line 11 is seldom", "where line 11 is invoked"
REACHED, OFTEN, LOOP = "B0 decreases", "once B0 <= B", "while loop"


def negative_curvature(times: int) -> RunSet:
    events = [(row, "NEGATIVE_CURVATURE", -1.0) for row in range(1, times + 1)]
    return with_run(short_set(), "Jin's AGD", events=events)


def slow(method: str, factor: float) -> RunSet:
    run_set = short_set()
    return with_run(run_set, method, time=factor * column(run_set, method, "time"))


def dipping_norm() -> RunSet:
    """Another method whose norm was once, early, lower than that of anybody else."""
    run_set = short_set()
    norm = column(run_set, "heuristic RAGD", "grad_norm")
    norm[10] = 1e-12
    return with_run(run_set, "heuristic RAGD", grad_norm=norm)


def extra_values(method: str) -> RunSet:
    run_set = short_set()
    nfev = column(run_set, method, "nfev")
    return with_run(run_set, method, nfev=nfev + np.arange(len(nfev)) // 10)


def flat_discards() -> RunSet:
    run_set = long_set()
    norm = 0.1 * np.exp(-np.arange(LONG + 1) / LONG)
    return with_run(run_set, "Ada-RHB-NC", grad_norm=norm)


# Statement, runs that show it, runs that contradict it, runs that cannot tell, and what those lack.
CASES = [
    (EVALUATIONS, short_set, lambda: short_set(CG=(0.002, 2, 1)),
     lambda: without(short_set(), "GD"), "GD"),
    (TIME, short_set, lambda: slow("CG", 50.0),
     lambda: without(short_set(), "heuristic RAGD"), "heuristic RAGD"),
    (ERROR, short_set, lambda: short_set(CG=(0.0105, 2, 1)),
     lambda: without(short_set(), "CG"), "CG"),
    (NORM, short_set, lambda: short_set(CG=(0.05, 2, 1)),
     lambda: without(short_set(), *ADAPTIVE), "Ada-RHB-NC"),
    (LEAST, short_set, dipping_norm, lambda: without(short_set(), "GD"), "GD"),
    (QUICK, short_set, lambda: slow("Ada-RHB-NC", 1.6),
     lambda: without(short_set(), "CG"), "CG"),
    (LIKE_GD, short_set, lambda: slow("Ada-RHB-NC", 1.3),
     lambda: without(short_set(), "GD"), "GD"),
    (CG, short_set,
     lambda: with_run(short_set(), "CG", grad_norm=np.exp(-0.01 * np.arange(1001.0))),
     lambda: without(short_set(), "CG"), "CG"),
    (CURVATURE, lambda: negative_curvature(9), lambda: negative_curvature(10),
     lambda: without(short_set(), "convex until guilty"), "convex until guilty"),
    (COUNTS, short_set, lambda: extra_values("Ada-RAGD-NC"),
     lambda: without(short_set(), "Jin's AGD"), "Jin's AGD"),
    (THREE, short_set, lambda: short_set(convex_until_guilty=(0.005, 2, 2)),
     lambda: without(short_set(), "convex until guilty"), "convex until guilty"),
    (SELDOM, long_set, lambda: long_set(discarded=range(300, 90_000, 700)),
     lambda: long_set(n=30_000), "30,000"),
    (RISEN, long_set, flat_discards, lambda: long_set(discarded=()), "never"),
    (REACHED, long_set, lambda: long_set(reached=LONG + 1),
     lambda: long_set(n=30_000, reached=LONG), "30,000"),
    (OFTEN, long_set, lambda: long_set(periods=(16, 30)),
     lambda: long_set(reached=LONG + 1), "to the end"),
    (LOOP, long_set, lambda: ended(long_set(), "Ada-RHB-NC", "completed"),
     lambda: long_set(n=30_000), "30,000"),
]  # fmt: skip
each_statement = pytest.mark.parametrize(
    ("part", "shown", "contradicted", "unclear", "lacking"), CASES, ids=[case[0] for case in CASES]
)


@each_statement
def test_a_statement_is_seen_where_the_runs_show_it(part, shown, contradicted, unclear, lacking):
    claim = verdict(shown(), part)
    assert claim.seen is True, claim.numbers
    assert any(letter.isdigit() for letter in claim.numbers)
    assert claim.on == "ml-10m twin, matrix completion"


@each_statement
def test_and_not_seen_where_they_contradict_it(part, shown, contradicted, unclear, lacking):
    claim = verdict(contradicted(), part)
    assert claim.seen is False, claim.numbers


@each_statement
def test_and_left_open_with_the_reason_where_they_cannot_tell(
    part, shown, contradicted, unclear, lacking
):
    claim = verdict(unclear(), part)
    assert claim.seen is None
    assert lacking in claim.numbers


def test_every_statement_has_its_cases():
    covered = {verdict(shown(), part).statement for part, shown, *_ in CASES}
    assert covered == {statement.words for statement in STATEMENTS}


@pytest.mark.parametrize("run_set", [short_set(n=50), long_set(n=50)], ids=["short", "long"])
def test_a_few_iterations_tell_nothing(run_set):
    assert {claim.seen for claim in judge([run_set])} == {None}


def test_what_is_contradicted_is_contradicted_whoever_is_missing():
    run_set = without(short_set(CG=(0.002, 2, 1)), "Jin's AGD")
    claim = verdict(run_set, EVALUATIONS)
    assert claim.seen is False
    assert "CG at 250, 500 and 1,002" in claim.numbers
    assert "fewer than 100 iterations: Jin's AGD" in claim.numbers


def test_the_numbers_say_who_is_behind_at_what():
    claim = verdict(slow("CG", 50.0), TIME)
    assert "not ahead of GD: CG at" in claim.numbers
    late = verdict(short_set(CG=(0.0025, 2, 1)), EVALUATIONS)
    assert "Jin" not in late.numbers.split("not ahead")[1].split(";")[0]


def test_methods_that_the_paper_does_not_compare_are_not_judged():
    run_set = short_set(figure="demo")
    winner = with_info(short_run("CG", 0.5, 0, 1), method="L-BFGS-B", iterations=9)
    demo = dataclasses.replace(run_set, runs=[winner, *run_set.runs])
    assert verdict(demo, ERROR).seen is True


def test_a_method_that_diverges_is_behind_and_does_not_shorten_the_others():
    run_set = short_set()
    run_set = cut(run_set, "Jin's AGD", 31)
    last = {name: column(run_set, "Jin's AGD", name) for name in ("fun", "grad_norm")}
    last["fun"][-1] = last["grad_norm"][-1] = np.nan
    claim = verdict(with_run(run_set, "Jin's AGD", **last), EVALUATIONS)
    assert claim.seen is False
    assert "Jin's AGD at 250, 500 and 1,002" in claim.numbers


def test_run_sets_are_judged_by_the_statements_of_their_figure():
    run_sets = [
        short_set(),
        short_set(figure="fig2"),
        long_set(),
        long_set("one-bit", (4, 3)),
    ]
    claims = judge(run_sets)
    assert len(claims) == 2 * 11 + 2 * 5
    assert {claim.where for claim in claims} == {
        "section 5.1", "sections 5.1 and 5.2", "section 5.3"
    }  # fmt: skip
    one_bit = [c for c in claims if OFTEN in c.statement and "one-bit" in c.on]
    assert [claim.seen for claim in one_bit] == [True]
    assert "every 4 after" in one_bit[0].numbers


def test_cg_does_not_oscillate_where_an_adaptive_method_does_so_more():
    run_set = short_set()
    k = np.arange(1001)
    restless = np.exp(-0.01 * k) * np.where(k % 2, 5.0, 1.0)
    claim = verdict(with_run(run_set, "Ada-RHB-NC", grad_norm=restless), CG)
    assert claim.seen is False
    assert "CG in 50 %" in claim.numbers


def test_a_run_that_ended_before_the_others_is_not_timed():
    for part in (QUICK, LIKE_GD):
        claim = verdict(cut(short_set(), "Ada-RHB-NC", 301), part)
        assert claim.seen is None
        assert "ended before iteration 1,000: Ada-RHB-NC" in claim.numbers
    claim = verdict(cut(slow("Ada-RHB-NC", 1.6), "Ada-RAGD-NC", 301), QUICK)
    assert claim.seen is False  # whoever is missing
    assert "not quicker: Ada-RHB-NC than heuristic RAGD; " in claim.numbers


def test_gd_that_is_slower_than_another_contradicts_that_the_three_are_quick():
    claim = verdict(slow("GD", 1.6), QUICK)
    assert claim.seen is False
    assert "not quicker: GD than heuristic RAGD" in claim.numbers
    assert verdict(slow("GD", 1.6), LIKE_GD).seen is True


@pytest.mark.parametrize("other", [{"setup": "elsewhere"}, {"threads": 2}], ids=str)
def test_times_of_different_machines_or_threads_tell_nothing(other):
    run_set = described(slow("CG", 50.0), "GD", **other)
    for part in (TIME, QUICK, LIKE_GD):
        claim = verdict(run_set, part)
        assert claim.seen is None
        assert f"{other.get('setup', 'here')}; {other.get('threads', 1)} thread" in claim.numbers
    assert verdict(run_set, EVALUATIONS).seen is True


@pytest.mark.parametrize("part", [SELDOM, REACHED, OFTEN, LOOP])
def test_a_long_run_that_ended_early_tells_nothing_of_the_long_run(part):
    claim = verdict(cut(long_set(), "Ada-RHB-NC", 151, "no progress"), part)
    assert claim.seen is None, claim.numbers
    assert "150" in claim.numbers or part is OFTEN


@pytest.mark.parametrize(
    ("status", "seen"),
    [("completed", False), ("above tolerance", False), ("promise broken", False),
     ("no progress", None), ("non finite", None), ("max iterations", True)],
)  # fmt: skip
def test_the_while_loop_goes_on_only_in_a_run_that_could_have_gone_on(status, seen):
    assert verdict(ended(long_set(), "Ada-RAGD-NC", status), LOOP).seen is seen


def test_one_discarded_epoch_in_a_short_run_does_not_make_line_11_frequent():
    run_set = cut(long_set(discarded=(120,)), "Ada-RHB-NC", 151, "no progress")
    assert verdict(run_set, SELDOM).seen is None


def test_a_radius_that_is_not_reached_in_a_whole_run_contradicts_whatever_the_other_did():
    run_set = cut(long_set(reached=LONG + 1), "Ada-RHB-NC", 151, "no progress")
    assert verdict(run_set, REACHED).seen is False


def test_the_threshold_of_line_11_is_told():
    assert "(in the paper: once by each method; here: at most once in 1,000 iterations)" in (
        verdict(long_set(), SELDOM).statement
    )


def with_rests(method: str, *how) -> RunSet:
    """A run that begins anew in every second iteration."""
    run_set = short_set(**{method.replace(" ", "_"): how})
    return with_run(run_set, method, events=[(row, "RESTART", 1.0) for row in range(1, 1001, 2)])


def test_a_restart_excuses_no_missing_values_of_a_method_that_reuses_none():
    claim = verdict(with_rests("CG", 0.007, 0, 1), COUNTS)
    assert claim.seen is False
    assert claim.numbers.endswith("otherwise than stated: CG")
    assert verdict(with_rests("heuristic RAGD", 0.008, 0, 1), COUNTS).seen is False
    # At rest y = x, whose value is known.
    assert verdict(with_rests("Jin's AGD", 0.006, 1, 1), COUNTS).seen is True


def test_when_line_11_was_invoked_is_told():
    assert "Ada-RAGD-NC once (iteration 812)" in verdict(long_set(), SELDOM).numbers


def test_rises_are_what_a_naive_loop_finds():
    norm = np.exp(np.random.default_rng(3).normal(size=60).cumsum() / 3)
    share, swing = rises(norm)
    largest = [
        max(norm[j] / norm[i] for i in range(at, at + 20) for j in range(i, at + 20))
        for at in range(len(norm) - 19)
    ]
    assert share == np.mean([b > a for a, b in itertools.pairwise(norm)])
    assert swing == pytest.approx(np.median(largest), rel=1e-12)
    assert rises(np.geomspace(1, 1e-3, 50)) == (0.0, 1.0)


def test_the_row_at_a_budget_does_not_exceed_it():
    cost = np.array([2, 4, 4, 6])
    assert [row_at(cost, budget) for budget in (1, 2, 3, 4, 5, 6, 99)] == [0, 0, 0, 2, 2, 3, 3]


def test_the_methods_are_those_that_are_run():
    assert sorted(SEVEN) == sorted(method.label for method in PAPER_METHODS.values())
    assert set(SEVEN) == set(COUNTED)


def test_long_times_are_told_in_minutes():
    run_set = short_set()
    for run in run_set.runs:
        run.time[:] *= 5000
    assert "compared at 20.9 min, 41.7 min and 83.5 min;" in verdict(run_set, TIME).numbers
