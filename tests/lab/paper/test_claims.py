"""Every statement of section 5 is seen where runs show it, not seen where runs like the paper's
contradict it, and left open, with the reason, where runs are no test of it."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from momentous.core.status import EventKind
from momentous.lab.paper.claims import COUNTS as COUNTED
from momentous.lab.paper.claims import DISTURBED, STATEMENTS, disturbance, judge, rises
from momentous.lab.paper.methods import ADAPTIVE, FIXED, PAPER_METHODS, SEVEN
from momentous.lab.paper.results import RunSet, Verdict, row_at
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


SEEN, NOT_SEEN, CANNOT_TELL = Verdict
EVALUATIONS, TIME = "GD, at equal evaluations", "GD, at equal time"
ERROR, NORM = "decrease the objective error", "decrease the gradient norm"
CURVATURE, CG, COUNTS, GUILTY = (
    "negative curvature",
    "of CG oscillate",
    "takes one gradient",
    "at least two gradients and three values",
)
QUICK, LIKE_GD = "less total time", "almost coincide with that of GD"
ALWAYS = "restart at almost every iteration"
ONCE, RISEN, AGAIN = "only once", "where line 11 is invoked", "after the adaptive update"
REACHED, OFTEN, LOOP = "B0 decreases", "once B0 <= B", "while loop"


def negative_curvature(times: int) -> RunSet:
    events = [(row, EventKind.NEGATIVE_CURVATURE, -1.0) for row in range(1, times + 1)]
    return with_run(short_set(), "Jin's AGD", events=events)


def seldom_restarted() -> RunSet:
    """RHB-NC misses more than one iteration in ten."""
    events = [(row, EventKind.RESTART, 1.0) for row in range(1, 1001) if row % 9]
    return with_run(short_set(), "RHB-NC", events=events)


def slow(method: str, factor: float) -> RunSet:
    run_set = short_set()
    return with_run(run_set, method, time=factor * column(run_set, method, "time"))


def busy(run_set: RunSet) -> RunSet:
    """Every fourth iteration of GD waits for another program."""
    waits = 0.003 * (np.arange(len(column(run_set, "GD", "time"))) // 4)
    return with_run(run_set, "GD", time=column(run_set, "GD", "time") + waits)


def extra_values(method: str) -> RunSet:
    run_set = short_set()
    nfev = column(run_set, method, "nfev")
    return with_run(run_set, method, nfev=nfev + np.arange(len(nfev)) // 10)


def flat_discards() -> RunSet:
    run_set = long_set()
    norm = 0.1 * np.exp(-np.arange(LONG + 1) / LONG)
    return with_run(run_set, "Ada-RHB-NC", grad_norm=norm)


# Statement, runs that show it, runs that contradict it (None: our form of a method says nothing
# against the paper's), runs that cannot tell, and what those lack.
CASES = [
    (EVALUATIONS, short_set, lambda: short_set(CG=(0.002, 2, 1)),
     lambda: without(short_set(), "GD"), "GD"),
    (TIME, short_set, lambda: slow("CG", 50.0),
     lambda: without(short_set(), "heuristic RAGD"), "heuristic RAGD"),
    (ERROR, short_set, lambda: short_set(CG=(0.0105, 2, 1)),
     lambda: without(short_set(), "CG"), "CG"),
    (NORM, short_set, lambda: short_set(CG=(0.05, 2, 1)),
     lambda: without(short_set(), *ADAPTIVE), "Ada-RHB-NC"),
    (QUICK, short_set, lambda: slow("Ada-RHB-NC", 1.6),
     lambda: without(short_set(), "CG"), "CG"),
    (LIKE_GD, short_set, lambda: short_set(**{"RHB-NC": (0.0035, 0, 1)}),
     lambda: without(short_set(), *FIXED), "RAGD-NC and RHB-NC"),
    (ALWAYS, short_set, seldom_restarted,
     lambda: without(short_set(), "RHB-NC"), "RHB-NC"),
    (CG, short_set,
     lambda: with_run(short_set(), "CG", grad_norm=np.exp(-0.01 * np.arange(1001.0))),
     lambda: without(short_set(), "CG"), "CG"),
    (CURVATURE, lambda: negative_curvature(9), lambda: negative_curvature(10),
     lambda: without(short_set(), "convex until guilty"), "convex until guilty"),
    (COUNTS, short_set, lambda: extra_values("Ada-RAGD-NC"),
     lambda: without(short_set(), "Jin's AGD"), "Jin's AGD"),
    (GUILTY, short_set, None, lambda: short_set(convex_until_guilty=(0.005, 2, 2)), "our form"),
    (ONCE, long_set, lambda: long_set(discarded=(812, 90_000)),
     lambda: long_set(n=30_000), "30,000"),
    (AGAIN, long_set, lambda: long_set(discarded=(812, 90_000)),
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
    assert claim.verdict is SEEN, claim.numbers
    assert not claim.reason
    assert any(letter.isdigit() for letter in claim.numbers)
    assert claim.on == "ml-10m twin, matrix completion"


@pytest.mark.parametrize(
    ("part", "contradicted"), [(case[0], case[2]) for case in CASES if case[2] is not None]
)
def test_and_not_seen_where_they_contradict_it(part, contradicted):
    claim = verdict(contradicted(), part)
    assert claim.verdict is NOT_SEEN, claim.numbers
    assert not claim.reason


@each_statement
def test_and_left_open_with_the_reason_where_they_cannot_tell(
    part, shown, contradicted, unclear, lacking
):
    claim = verdict(unclear(), part)
    assert claim.verdict is CANNOT_TELL
    assert lacking in claim.reason


def test_every_statement_has_its_cases():
    covered = {verdict(shown(), part).statement for part, shown, *_ in CASES}
    assert covered == {statement.words for statement in STATEMENTS}


@pytest.mark.parametrize("run_set", [short_set(n=50), long_set(n=50)], ids=["short", "long"])
def test_a_few_iterations_tell_nothing(run_set):
    claims = judge([run_set])
    assert {claim.verdict for claim in claims} == {CANNOT_TELL}
    assert all("50 iterations" in c.reason or "fewer than 100" in c.reason for c in claims)


def test_what_is_contradicted_is_contradicted_whoever_is_missing():
    run_set = without(short_set(CG=(0.002, 2, 1)), "Jin's AGD")
    claim = verdict(run_set, EVALUATIONS)
    assert claim.verdict is NOT_SEEN
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
    assert verdict(demo, ERROR).verdict is SEEN


def test_a_method_that_diverges_is_behind_and_does_not_shorten_the_others():
    run_set = short_set()
    run_set = cut(run_set, "Jin's AGD", 31)
    last = {name: column(run_set, "Jin's AGD", name) for name in ("fun", "grad_norm")}
    last["fun"][-1] = last["grad_norm"][-1] = np.nan
    claim = verdict(with_run(run_set, "Jin's AGD", **last), EVALUATIONS)
    assert claim.verdict is NOT_SEEN
    assert "Jin's AGD at 250, 500 and 1,002" in claim.numbers


def test_run_sets_are_judged_by_the_statements_of_their_figure():
    run_sets = [
        short_set(),
        short_set(figure="fig2"),
        long_set(),
        long_set("one-bit", (4, 3)),
    ]
    claims = judge(run_sets)
    assert len(claims) == 2 * 11 + 2 * 6
    assert {claim.where for claim in claims} == {
        "section 5.1", "sections 5.1 and 5.2", "section 5.3"
    }  # fmt: skip
    one_bit = [c for c in claims if OFTEN in c.statement and "one-bit" in c.on]
    assert [claim.verdict for claim in one_bit] == [SEEN]
    assert "every 4 after" in one_bit[0].numbers


def test_cg_does_not_oscillate_where_an_adaptive_method_does_so_more():
    run_set = short_set()
    k = np.arange(1001)
    restless = np.exp(-0.01 * k) * np.where(k % 2, 5.0, 1.0)
    claim = verdict(with_run(run_set, "Ada-RHB-NC", grad_norm=restless), CG)
    assert claim.verdict is NOT_SEEN
    assert "CG in 50 %" in claim.numbers


def test_a_run_that_ended_before_the_others_is_not_timed():
    claim = verdict(cut(short_set(), "Ada-RHB-NC", 301), QUICK)
    assert claim.verdict is CANNOT_TELL
    assert claim.reason == "ended before iteration 1,000: Ada-RHB-NC"
    claim = verdict(cut(slow("Ada-RHB-NC", 1.6), "Ada-RAGD-NC", 301), QUICK)
    assert claim.verdict is NOT_SEEN  # whoever is missing
    assert "not quicker: Ada-RHB-NC than heuristic RAGD" in claim.numbers


def test_gd_that_is_slower_than_another_contradicts_that_the_three_are_quick():
    claim = verdict(slow("GD", 1.6), QUICK)
    assert claim.verdict is NOT_SEEN
    assert "not quicker: GD than heuristic RAGD" in claim.numbers


def test_curves_of_half_the_papers_length_tell_nothing_of_the_paper_however_they_look():
    against = {"CG": (0.002, 2, 1), "RHB-NC": (0.0035, 0, 1)}
    for run_set in (short_set(n=500), short_set(n=500, **against)):
        for part in (EVALUATIONS, TIME, ERROR, NORM, LIKE_GD, CURVATURE):
            claim = verdict(run_set, part)
            assert claim.verdict is CANNOT_TELL
            assert claim.reason == "500 iterations, not the paper's 1,000"
            assert any(letter.isdigit() for letter in claim.numbers)  # which are there all the same


@pytest.mark.parametrize("part", [COUNTS, CG, QUICK])
def test_what_holds_for_an_iteration_is_seen_in_shorter_runs_too(part):
    assert verdict(short_set(n=500), part).verdict is SEEN


def test_times_of_a_busy_machine_tell_nothing():
    for run_set in (busy(short_set()), busy(slow("CG", 50.0))):
        for part in (TIME, QUICK):
            claim = verdict(run_set, part)
            assert claim.verdict is CANNOT_TELL
            assert "an iteration of GD took 1.7 times its usual time on average" in claim.reason
    assert verdict(busy(short_set()), EVALUATIONS).verdict is SEEN


def test_a_disturbance_is_measured_against_the_quicker_iterations():
    steady = np.arange(101) * 1e-3
    assert disturbance(steady) == pytest.approx(1.0)
    assert disturbance(steady + 0.05 * (np.arange(101) > 50)) == pytest.approx(1.5)
    assert disturbance(np.zeros(5)) == disturbance(np.zeros(1)) == 1.0
    assert 1.1 < DISTURBED < 1.5


def test_what_section_5_1_sees_in_matrix_completion_is_not_asked_of_one_bit_completion():
    runs = [with_info(run, problem="one-bit") for run in short_set().runs]
    asked = [claim.statement for claim in judge([RunSet("fig2", runs, 1000)])]
    assert not [words for words in asked if CG in words or CURVATURE in words]


@pytest.mark.parametrize("other", [{"setup": "elsewhere"}, {"threads": 2}], ids=str)
def test_times_of_different_machines_or_threads_tell_nothing(other):
    run_set = described(slow("CG", 50.0), "GD", **other)
    for part in (TIME, QUICK):
        claim = verdict(run_set, part)
        assert claim.verdict is CANNOT_TELL
        assert f"{other.get('setup', 'here')}; {other.get('threads', 1)} thread" in claim.reason
    assert verdict(run_set, EVALUATIONS).verdict is SEEN


@pytest.mark.parametrize("part", [ONCE, AGAIN, REACHED, OFTEN, LOOP])
def test_a_long_run_that_ended_early_tells_nothing_of_the_long_run(part):
    discarded = {"discarded": (120,)} if part is AGAIN else {}
    claim = verdict(cut(long_set(**discarded), "Ada-RHB-NC", 151, "no progress"), part)
    assert claim.verdict is CANNOT_TELL, claim.numbers
    assert "Ada-RHB-NC has 150 iterations (no progress), not the paper's 100,000" in claim.reason


@pytest.mark.parametrize(
    ("status", "seen"),
    [("completed", NOT_SEEN), ("above tolerance", NOT_SEEN), ("promise broken", NOT_SEEN),
     ("no progress", CANNOT_TELL), ("non finite", CANNOT_TELL), ("max iterations", SEEN)],
)  # fmt: skip
def test_the_while_loop_goes_on_only_in_a_run_that_could_have_gone_on(status, seen):
    assert verdict(ended(long_set(), "Ada-RAGD-NC", status), LOOP).verdict is seen


def test_line_11_once_in_a_thousand_iterations_is_not_once_in_a_hundred_thousand():
    claim = verdict(long_set(discarded=range(1000, 90_000, 1500)), ONCE)
    assert claim.verdict is NOT_SEEN
    assert "in 100,000 iterations" in claim.statement
    assert "Ada-RAGD-NC: 60 times (iteration 1,000, 2,500, 4,000, 5,500, 7,000 and later)" in (
        claim.numbers
    )


def test_what_happened_twice_in_a_short_run_has_not_happened_once():
    run_set = long_set(n=30_000, discarded=(812, 20_000))
    for part in (ONCE, AGAIN):
        assert verdict(run_set, part).verdict is NOT_SEEN


def test_that_line_11_is_not_invoked_again_can_be_told_where_it_was_invoked():
    run_set = long_set(discarded=())
    assert verdict(run_set, ONCE).verdict is SEEN
    assert verdict(run_set, AGAIN).reason == "line 11 is never invoked"
    claim = verdict(dataclasses.replace(
        run_set, runs=[*without(long_set(), "Ada-RHB-NC").runs, run_set.runs[1]]
    ), AGAIN)  # fmt: skip
    assert claim.verdict is SEEN
    assert claim.numbers == ("Ada-RAGD-NC: first in iteration 812, never again; Ada-RHB-NC: never")


def test_a_radius_that_is_not_reached_in_a_whole_run_contradicts_whatever_the_other_did():
    run_set = cut(long_set(reached=LONG + 1), "Ada-RHB-NC", 151, "no progress")
    assert verdict(run_set, REACHED).verdict is NOT_SEEN


def with_rests(method: str, *how) -> RunSet:
    """A run that begins anew in every second iteration."""
    run_set = short_set(**{method.replace(" ", "_"): how})
    return with_run(
        run_set, method, events=[(row, EventKind.RESTART, 1.0) for row in range(1, 1001, 2)]
    )


def test_a_restart_excuses_no_missing_values_of_a_method_that_reuses_none():
    claim = verdict(with_rests("CG", 0.007, 0, 1), COUNTS)
    assert claim.verdict is NOT_SEEN
    assert claim.numbers.endswith("otherwise than stated: CG")
    assert verdict(with_rests("heuristic RAGD", 0.008, 0, 1), COUNTS).verdict is NOT_SEEN
    # At rest y = x, whose value is known.
    assert verdict(with_rests("Jin's AGD", 0.006, 1, 1), COUNTS).verdict is SEEN


def test_when_line_11_was_invoked_is_told():
    assert "Ada-RAGD-NC: once (iteration 812)" in verdict(long_set(), ONCE).numbers


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
    assert sorted((*SEVEN, *FIXED)) == sorted(method.label for method in PAPER_METHODS.values())
    assert set(SEVEN) == {*COUNTED, "convex until guilty"}


@pytest.mark.parametrize("name", ["reproduction-cpu", "reproduction-gpu"])
def test_the_accounts_judge_by_these_statements(name):
    page = (Path(__file__).parents[3] / "benchmarks" / "results" / f"{name}.md").read_text()
    section = " ".join(page.partition("## What the paper says")[2].partition("\n## ")[0].split())
    known = {words[0].upper() + words[1:] for words in (each.words for each in STATEMENTS)}
    said = re.findall(r"\*\*(.+?)\*\* \(section", section)
    assert said
    assert known.issuperset(said)
    counts = [section.count(f"- *{each}* on") for each in Verdict]
    assert f"{counts[0]} seen, {counts[1]} not seen and {counts[2]} cannot be told." in section


def test_long_times_are_told_in_minutes():
    run_set = short_set()
    for run in run_set.runs:
        run.time[:] *= 5000
    assert "compared at 20.9 min, 41.7 min and 83.5 min;" in verdict(run_set, TIME).numbers
