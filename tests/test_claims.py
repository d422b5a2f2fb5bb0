"""Every statement of section 5 is seen where runs show it, not seen where they contradict it."""

import dataclasses
import itertools

import numpy as np
import pytest

from momentous.comparison.history import History
from momentous.reproduce.claims import STATEMENTS, judge
from momentous.reproduce.comparison_claims import COUNTS as COUNTED
from momentous.reproduce.comparison_claims import rises
from momentous.reproduce.contenders import ADAPTIVE, CONTENDERS, SEVEN
from momentous.reproduce.long_run_claims import LONG
from momentous.reproduce.recorded import About, Recorded
from momentous.reproduce.study import Group, row_at

GRADIENT, VALUE = 1e-3, 5e-4  # seconds
# The rate at which the error falls with evaluations; values and gradients an iteration.
SHORT = {
    "Ada-RAGD-NC": (0.010, 0, 1),
    "Ada-RHB-NC": (0.011, 0, 1),
    "heuristic RAGD": (0.008, 1, 1),
    "CG": (0.007, 2, 1),
    "Jin's AGD": (0.006, 2, 1),
    "convex until guilty": (0.005, 3, 2),
    "GD": (0.003, 0, 1),
}


def about(method: str, problem: str, iterations: int) -> About:
    return About(
        data="ml-10m", twin=True, problem=problem, method=method, profile="paper", parameters={},
        step_size=1.0, step_from="tuned", iterations=iterations, status="max iterations",
        message="", shape=(20, 10), entries=100, rank=2, fingerprint="", threads=1, setup="here",
    )  # fmt: skip


def recorded(method, error, norm, nfev, njev, events=(), problem="completion") -> Recorded:
    history = History(nfev, njev, GRADIENT * njev + VALUE * nfev, 1.0 + error, norm, sorted(events))
    return Recorded(about(method, problem, len(error) - 1), history, np.ones(len(error)))


def short_run(method, rate, values, gradients, n=1000, restart=100) -> Recorded:
    k = np.arange(n + 1)
    events = [(int(row), "RESTART", float(restart)) for row in k[restart::restart]]
    nfev, njev = 1 + values * k, 1 + gradients * k
    if method in ADAPTIVE:
        nfev = nfev + k // restart
    error = np.exp(-rate * (nfev + njev))
    norm = 0.1 * np.sqrt(error) * (np.where(k % 2, 3.0, 1.0) if method == "CG" else 1.0)
    return recorded(method, error, norm, nfev, njev, events if method in ADAPTIVE else ())


def short_group(n=1000, figure="fig1", **changed) -> Group:
    """Runs that show all that the paper says; `changed` holds other rates and counts."""
    settings = SHORT | {name.replace("_", " "): how for name, how in changed.items()}
    runs = [short_run(name, *how, n=n) for name, how in settings.items()]
    return Group(figure, runs, 1000)


def long_run(method, problem, period, n=LONG, reached=5000, discarded=(812,)) -> Recorded:
    """Epochs of 200 iterations, one of them discarded, and of `period` once B0 <= B."""
    k = np.arange(n + 1)
    error, norm = np.exp(-k / n), 0.1 * np.exp(-k / n)
    rows = [*range(200, min(reached, n + 1), 200), *range(reached, n + 1, period)]
    events = [(row, "RESTART", 200.0) for row in rows]
    for row in discarded:
        events.append((row, "ROLLBACK", 10.0))
        error[row - 3 : row + 1] *= 50
        norm[row - 3 : row + 1] *= 40
    if reached <= n:
        events.append((reached, "RADIUS_REACHED", 0.01))
    nfev = 1 + np.searchsorted(sorted(row for row, *_ in events), k, side="right")
    return recorded(method, error, norm, nfev, 1 + k, events, problem)


def long_group(problem="completion", periods=(16, 10), **how) -> Group:
    pairs = zip(ADAPTIVE, periods, strict=True)
    return Group("fig3", [long_run(name, problem, p, **how) for name, p in pairs], LONG)


def without(group: Group, *methods: str) -> Group:
    kept = [run for run in group.runs if run.about.method not in methods]
    return dataclasses.replace(group, runs=kept)


def with_run(group: Group, method: str, **history) -> Group:
    """The same, with other columns or events in one run."""
    runs = [
        dataclasses.replace(run, history=dataclasses.replace(run.history, **history))
        if run.about.method == method
        else run
        for run in group.runs
    ]
    return dataclasses.replace(group, runs=runs)


def told_otherwise(group: Group, method: str, **about) -> Group:
    """The same, with something else said about one run."""
    runs = [
        dataclasses.replace(run, about=dataclasses.replace(run.about, **about))
        if run.about.method == method
        else run
        for run in group.runs
    ]
    return dataclasses.replace(group, runs=runs)


def ended(group: Group, method: str, status: str) -> Group:
    return told_otherwise(group, method, status=status)


def cut(group: Group, method: str, rows: int, status: str = "max iterations") -> Group:
    """The same, with one run that ended after so many rows."""
    names = ("nfev", "njev", "time", "fun", "grad_norm")
    short = {name: column(group, method, name)[:rows] for name in names}
    (run,) = [run for run in group.runs if run.about.method == method]
    events = [event for event in run.history.events if event[0] < rows]
    return ended(with_run(group, method, **short, events=events), method, status)


def column(group: Group, method: str, name: str) -> np.ndarray:
    return next(getattr(r.history, name) for r in group.runs if r.about.method == method).copy()


def verdict(group: Group, part: str):
    (claim,) = [claim for claim in judge([group]) if part in claim.statement]
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


def negative_curvature(times: int) -> Group:
    events = [(row, "NEGATIVE_CURVATURE", -1.0) for row in range(1, times + 1)]
    return with_run(short_group(), "Jin's AGD", events=events)


def slow(method: str, factor: float) -> Group:
    group = short_group()
    return with_run(group, method, time=factor * column(group, method, "time"))


def dipping_norm() -> Group:
    """A rival whose norm was once, early, lower than that of anybody else."""
    group = short_group()
    norm = column(group, "heuristic RAGD", "grad_norm")
    norm[10] = 1e-12
    return with_run(group, "heuristic RAGD", grad_norm=norm)


def extra_values(method: str) -> Group:
    group = short_group()
    nfev = column(group, method, "nfev")
    return with_run(group, method, nfev=nfev + np.arange(len(nfev)) // 10)


def flat_discards() -> Group:
    group = long_group()
    norm = 0.1 * np.exp(-np.arange(LONG + 1) / LONG)
    return with_run(group, "Ada-RHB-NC", grad_norm=norm)


# Statement, runs that show it, runs that contradict it, runs that cannot tell, and what those lack.
CASES = [
    (EVALUATIONS, short_group, lambda: short_group(CG=(0.002, 2, 1)),
     lambda: without(short_group(), "GD"), "GD"),
    (TIME, short_group, lambda: slow("CG", 50.0),
     lambda: without(short_group(), "heuristic RAGD"), "heuristic RAGD"),
    (ERROR, short_group, lambda: short_group(CG=(0.0105, 2, 1)),
     lambda: without(short_group(), "CG"), "CG"),
    (NORM, short_group, lambda: short_group(CG=(0.05, 2, 1)),
     lambda: without(short_group(), *ADAPTIVE), "Ada-RHB-NC"),
    (LEAST, short_group, dipping_norm, lambda: without(short_group(), "GD"), "GD"),
    (QUICK, short_group, lambda: slow("Ada-RHB-NC", 1.6),
     lambda: without(short_group(), "CG"), "CG"),
    (LIKE_GD, short_group, lambda: slow("Ada-RHB-NC", 1.3),
     lambda: without(short_group(), "GD"), "GD"),
    (CG, short_group,
     lambda: with_run(short_group(), "CG", grad_norm=np.exp(-0.01 * np.arange(1001.0))),
     lambda: without(short_group(), "CG"), "CG"),
    (CURVATURE, lambda: negative_curvature(9), lambda: negative_curvature(10),
     lambda: without(short_group(), "convex until guilty"), "convex until guilty"),
    (COUNTS, short_group, lambda: extra_values("Ada-RAGD-NC"),
     lambda: without(short_group(), "Jin's AGD"), "Jin's AGD"),
    (THREE, short_group, lambda: short_group(convex_until_guilty=(0.005, 2, 2)),
     lambda: without(short_group(), "convex until guilty"), "convex until guilty"),
    (SELDOM, long_group, lambda: long_group(discarded=range(300, 90_000, 700)),
     lambda: long_group(n=30_000), "30,000"),
    (RISEN, long_group, flat_discards, lambda: long_group(discarded=()), "never"),
    (REACHED, long_group, lambda: long_group(reached=LONG + 1),
     lambda: long_group(n=30_000, reached=LONG), "30,000"),
    (OFTEN, long_group, lambda: long_group(periods=(16, 30)),
     lambda: long_group(reached=LONG + 1), "to the end"),
    (LOOP, long_group, lambda: ended(long_group(), "Ada-RHB-NC", "completed"),
     lambda: long_group(n=30_000), "30,000"),
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


@pytest.mark.parametrize("group", [short_group(n=50), long_group(n=50)], ids=["short", "long"])
def test_a_few_iterations_tell_nothing(group):
    assert {claim.seen for claim in judge([group])} == {None}


def test_what_is_contradicted_is_contradicted_whoever_is_missing():
    group = without(short_group(CG=(0.002, 2, 1)), "Jin's AGD")
    claim = verdict(group, EVALUATIONS)
    assert claim.seen is False
    assert "CG at 250, 500 and 1,002" in claim.numbers
    assert "fewer than 100 iterations: Jin's AGD" in claim.numbers


def test_the_numbers_say_who_is_behind_at_what():
    claim = verdict(slow("CG", 50.0), TIME)
    assert "not ahead of GD: CG at" in claim.numbers
    late = verdict(short_group(CG=(0.0025, 2, 1)), EVALUATIONS)
    assert "Jin" not in late.numbers.split("not ahead")[1].split(";")[0]


def test_methods_that_the_paper_does_not_compare_are_not_judged():
    group = short_group(figure="demo")
    winner = dataclasses.replace(
        short_run("CG", 0.5, 0, 1), about=about("L-BFGS-B", "completion", 9)
    )
    demo = dataclasses.replace(group, runs=[winner, *group.runs])
    assert verdict(demo, ERROR).seen is True


def test_a_method_that_diverges_is_behind_and_does_not_shorten_the_others():
    group = short_group()
    gone = {name: column(group, "Jin's AGD", name)[:31] for name in
            ("nfev", "njev", "time", "fun", "grad_norm")}  # fmt: skip
    gone["fun"][-1] = gone["grad_norm"][-1] = np.nan
    claim = verdict(with_run(group, "Jin's AGD", **gone), EVALUATIONS)
    assert claim.seen is False
    assert "Jin's AGD at 250, 500 and 1,002" in claim.numbers


def test_groups_are_judged_by_the_statements_of_their_figure():
    groups = [
        short_group(),
        short_group(figure="fig2"),
        long_group(),
        long_group("one-bit", (4, 3)),
    ]
    claims = judge(groups)
    assert len(claims) == 2 * 11 + 2 * 5
    assert {claim.where for claim in claims} == {
        "section 5.1", "sections 5.1 and 5.2", "section 5.3"
    }  # fmt: skip
    one_bit = [c for c in claims if OFTEN in c.statement and "one-bit" in c.on]
    assert [claim.seen for claim in one_bit] == [True]
    assert "every 4 after" in one_bit[0].numbers


def test_cg_does_not_oscillate_where_an_adaptive_method_does_so_more():
    group = short_group()
    k = np.arange(1001)
    restless = np.exp(-0.01 * k) * np.where(k % 2, 5.0, 1.0)
    claim = verdict(with_run(group, "Ada-RHB-NC", grad_norm=restless), CG)
    assert claim.seen is False
    assert "CG in 50 %" in claim.numbers


def test_a_run_that_ended_before_the_others_is_not_timed():
    for part in (QUICK, LIKE_GD):
        claim = verdict(cut(short_group(), "Ada-RHB-NC", 301), part)
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
    group = told_otherwise(slow("CG", 50.0), "GD", **other)
    for part in (TIME, QUICK, LIKE_GD):
        claim = verdict(group, part)
        assert claim.seen is None
        assert f"{other.get('setup', 'here')}; {other.get('threads', 1)} thread" in claim.numbers
    assert verdict(group, EVALUATIONS).seen is True


@pytest.mark.parametrize("part", [SELDOM, REACHED, OFTEN, LOOP])
def test_a_long_run_that_ended_early_tells_nothing_of_the_long_run(part):
    claim = verdict(cut(long_group(), "Ada-RHB-NC", 151, "no progress"), part)
    assert claim.seen is None, claim.numbers
    assert "150" in claim.numbers or part is OFTEN


@pytest.mark.parametrize(
    ("status", "seen"),
    [("completed", False), ("above tolerance", False), ("promise broken", False),
     ("no progress", None), ("non finite", None), ("max iterations", True)],
)  # fmt: skip
def test_the_while_loop_goes_on_only_in_a_run_that_could_have_gone_on(status, seen):
    assert verdict(ended(long_group(), "Ada-RAGD-NC", status), LOOP).seen is seen


def test_one_discarded_epoch_in_a_short_run_does_not_make_line_11_frequent():
    group = cut(long_group(discarded=(120,)), "Ada-RHB-NC", 151, "no progress")
    assert verdict(group, SELDOM).seen is None


def test_a_radius_that_is_not_reached_in_a_whole_run_contradicts_whatever_the_other_did():
    group = cut(long_group(reached=LONG + 1), "Ada-RHB-NC", 151, "no progress")
    assert verdict(group, REACHED).seen is False


def test_the_threshold_of_line_11_is_told():
    assert "(in the paper: once by each method; here: at most once in 1,000 iterations)" in (
        verdict(long_group(), SELDOM).statement
    )


def with_rests(method: str, *how) -> Group:
    """A run that begins anew in every second iteration."""
    group = short_group(**{method.replace(" ", "_"): how})
    return with_run(group, method, events=[(row, "RESTART", 1.0) for row in range(1, 1001, 2)])


def test_a_restart_excuses_no_missing_values_of_a_method_that_reuses_none():
    claim = verdict(with_rests("CG", 0.007, 0, 1), COUNTS)
    assert claim.seen is False
    assert claim.numbers.endswith("otherwise than told: CG")
    assert verdict(with_rests("heuristic RAGD", 0.008, 0, 1), COUNTS).seen is False
    # At rest y = x, whose value is known.
    assert verdict(with_rests("Jin's AGD", 0.006, 1, 1), COUNTS).seen is True


def test_when_line_11_was_invoked_is_told():
    assert "Ada-RAGD-NC once (iteration 812)" in verdict(long_group(), SELDOM).numbers


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
    assert sorted(SEVEN) == sorted(contender.label for contender in CONTENDERS.values())
    assert set(SEVEN) == set(COUNTED)


def test_long_times_are_told_in_minutes():
    group = short_group()
    for run in group.runs:
        run.history.time[:] *= 5000
    assert "compared at 20.9 min, 41.7 min and 83.5 min;" in verdict(group, TIME).numbers
