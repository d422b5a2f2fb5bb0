"""The search for a step size finds what it documents, ends whatever it meets, and runs once."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from momentous.core.status import EventKind
from momentous.lab.paper import plan, tuning
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import AUTHORS_STEPS, PAPER_METHODS
from momentous.lab.paper.problems import DataSet, PaperProblem
from momentous.lab.paper.runs import PaperRun, Task, load_run, run_task
from momentous.lab.paper.tuning import (
    MOST_DOUBLINGS,
    Trial,
    descend,
    first_guess,
    instability,
    search,
    tune,
)
from momentous.lab.progress import StudyProgress
from paper_runs import calls, made_up, with_outcome, write_ratings

pytest.importorskip("pyarrow")


def like_a_method(stable_up_to: float, best: float | None = None):
    """Trials of a method that is stable up to there, and lowest at ``best``: by default there."""

    def tried(step: float) -> Trial:
        tried.steps.append(step)
        if step > stable_up_to:
            return Trial(step, False, math.inf)
        return Trial(step, True, abs(math.log(step / (best or stable_up_to))))

    tried.steps = []
    return tried


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0123, 0.99, 1.0, 1.7, 37.0, 2000.0])
def test_the_largest_stable_step_is_found_to_within_a_fifth(limit):
    trials = search(like_a_method(limit), 1.0)
    best = max(trial.step_size for trial in trials if trial.stable)
    assert best <= limit < best * 2**0.25 * (1 + 1e-12)


def test_it_doubles_then_halves_the_bracket_in_logs():
    tried = like_a_method(5.0)
    search(tried, 1.0)
    assert tried.steps == pytest.approx([1, 2, 4, 8, 32**0.5, (4 * 32**0.5) ** 0.5])
    tried = like_a_method(0.3)
    search(tried, 1.0)
    assert tried.steps == pytest.approx([1, 0.5, 0.25, 0.125**0.5, (0.25 * 0.125**0.5) ** 0.5])


def test_smaller_steps_are_tried_while_the_smallest_is_the_best():
    tried = like_a_method(5.0, best=0.1)
    trials = search(tried, 1.0)
    assert tried.steps[-4:] == pytest.approx([0.5, 0.25, 0.125, 0.0625])
    assert min(trials, key=lambda trial: trial.fun).step_size == 0.125


@pytest.mark.parametrize("stable", [True, False])
def test_it_gives_up_where_there_is_no_end_in_sight(stable):
    tried = []

    def same(step):
        tried.append(step)
        return Trial(step, stable, 1.0 if stable else math.inf)

    trials = search(same, 1.0)
    assert len(trials) == MOST_DOUBLINGS + 1
    assert tried[-1] == (2.0 if stable else 0.5) ** MOST_DOUBLINGS


def test_a_best_step_of_zero_is_not_looked_for_for_ever():
    tried = like_a_method(5.0, best=1e-300)
    search(tried, 1.0)
    assert len(tried.steps) == 2 * MOST_DOUBLINGS + 1


def test_ties_end_the_search_and_go_to_the_first():
    trials = search(lambda step: Trial(step, step <= 5, 1.0 if step <= 5 else math.inf), 1.0)
    assert len(trials) == 7  # one below the first, which was no better
    assert min(trials, key=lambda trial: trial.fun).step_size == 1.0


def test_the_descent_goes_on_until_a_smaller_step_ends_no_lower():
    tried = like_a_method(math.inf, best=0.5)
    runs = descend(tried, 1.0)
    assert [run.step_size for run in runs] == pytest.approx([1, 0.5**0.5, 0.5, 0.5**1.5])
    tried = like_a_method(0.3)  # the first three do not reach the end
    runs = descend(tried, 1.0)
    assert [math.isfinite(run.fun) for run in runs] == [False] * 4 + [True] * 2
    runs = descend(lambda step: Trial(step, True, 1.0), 1.0)
    assert len(runs) == 2  # a tie is not lower
    for fun in (math.inf, None):
        runs = descend(lambda step, fun=fun: Trial(step, False, fun or step), 1.0)
        assert len(runs) == MOST_DOUBLINGS + 1


# --- trials ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem(tmp_path_factory) -> PaperProblem:
    path = write_ratings(tmp_path_factory.mktemp("data") / "small.csv")
    return PaperProblem(DataSet("small", path), "completion", threads=1)


@pytest.fixture(scope="module")
def run(problem, tmp_path_factory) -> PaperRun:
    task = Task(PAPER_METHODS["gd"], problem, 0.5, 10)
    return run_task(task, tmp_path_factory.mktemp("run"))


def altered(run: PaperRun, *, events=(), status="max iterations", **rows) -> PaperRun:
    fun = run.fun.copy()
    for row, value in rows.items():
        fun[int(row[1:])] = value
    return replace(with_outcome(run, status), fun=fun, events=list(events))


def test_stable_is_finite_never_above_the_start_and_without_discarded_epochs(run):
    start = run.fun[0]
    assert Trial.of(run, 10) == Trial(0.5, True, run.fun[10])
    for bad in (math.nan, math.inf):
        found = Trial.of(altered(run, r4=bad), 10)
        assert found == Trial(0.5, False, math.inf, "not finite at iteration 4")
    above = Trial.of(altered(run, r4=1.01 * start), 10)
    assert (above.stable, above.fun) == (False, run.fun[10])
    for kind, stable in (
        (EventKind.ROLLBACK, False),
        (EventKind.NON_FINITE, False),
        (EventKind.RESTART, True),
    ):
        assert Trial.of(altered(run, events=[(4, kind, 1.0)]), 10).stable is stable


def test_of_a_longer_run_only_the_beginning_counts(run):
    bad = altered(run, r9=math.nan, events=[(8, EventKind.ROLLBACK, 1.0)])
    assert Trial.of(bad, 7) == Trial(0.5, True, run.fun[7])
    assert not Trial.of(bad, 8).stable


def test_a_run_that_was_given_up_is_lost_but_one_that_found_its_end_is_not(run):
    for status in ("max iterations", "stopped", "non finite"):
        assert Trial.of(altered(run, status=status), 20).fun == math.inf
    for status in ("completed", "no progress"):
        found = Trial.of(altered(run, status=status), 20)
        assert found == Trial(0.5, True, run.fun[10])


# --- tuning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gd", "ada-ragd", "jin-agd"])
def test_a_search_is_kept_and_runs_nothing_the_second_time(name, problem, tmp_path, monkeypatch):
    options = {"iterations": 12, "trial_iterations": 6}
    asked = calls(problem, monkeypatch)
    found, chosen = tune(PAPER_METHODS[name], problem, StudyFolder(tmp_path), **options)
    spent = asked.count("gradient")
    assert spent > 0
    asked.clear()
    again, same = tune(PAPER_METHODS[name], problem, StudyFolder(tmp_path), **options)
    assert not [each for each in asked if each == "gradient"]
    assert (again.trials, again.full, again.summary) == (found.trials, found.full, found.summary)
    assert same.path == chosen.path
    others = [load_run(path) for path in tmp_path.rglob("*.parquet") if path != chosen.path]
    for column, count in (("values", "nfev"), ("gradients", "njev")):
        assert found.summary[column] == sum(getattr(run, count)[-1] for run in others)
    assert found.summary["trials"] + found.summary["longer runs"] == len(others)
    # With the run that is shown, that is all that was spent, but for the output of each run.
    unseen = spent - found.summary["gradients"] - chosen.njev[-1]
    assert 0 <= unseen <= len(others) + 1
    ends = {trial.step_size: trial.fun for trial in found.full}
    assert found.step_size == chosen.info.step_size == min(ends, key=ends.__getitem__)
    assert chosen.fun[12] == min(ends.values())


def test_a_search_that_was_interrupted_goes_on(problem, tmp_path):
    watched, alone = [], []

    def search_in(folder, on_iteration=None):
        options = {"iterations": 12, "trial_iterations": 6, "on_iteration": on_iteration}
        return tune(PAPER_METHODS["gd"], problem, StudyFolder(tmp_path / folder), **options)[0]

    def interrupt(nit, fun, norm):
        watched.append(nit)
        if len(watched) == 20:
            raise RuntimeError("the lights went out")

    whole = search_in("whole", lambda *_: alone.append(1))
    with pytest.raises(RuntimeError, match="lights"):
        search_in("cut", interrupt)
    before = len(watched)
    found = search_in("cut", interrupt)
    assert (found.trials, found.full) == (whole.trials, whole.full)
    assert len(alone) <= len(watched) < len(alone) + 6  # but those of the trial that was cut
    assert 0 < before < len(alone)


def test_longer_runs_of_another_day_do_not_raise_the_cost(problem, tmp_path):
    folder, gd = StudyFolder(tmp_path), PAPER_METHODS["gd"]
    found, _ = tune(gd, problem, folder, iterations=12, trial_iterations=6)
    for trial in found.full:
        run_task(Task(gd, problem, trial.step_size, 30), folder.runs)
    again, _ = tune(gd, problem, folder, iterations=12, trial_iterations=6)
    assert {**again.summary, "seconds": 0} == {**found.summary, "seconds": 0}


def test_a_step_that_the_method_refuses_is_not_stable(problem, tmp_path, monkeypatch):
    jin = PAPER_METHODS["jin-agd"]
    with pytest.raises(ValueError, match="theta <= 1/4"):  # what it says to such a step
        jin.make(1e5, "completion", "paper").resolved(0.0, 3)
    monkeypatch.setattr(tuning, "first_guess", lambda *_: 1e3)
    found, _ = tune(jin, problem, StudyFolder(tmp_path), iterations=12, trial_iterations=6)
    assert not found.trials[0].stable
    assert 0 < found.step_size < 10


def test_where_no_step_leads_downwards_that_is_said(problem, tmp_path):
    def refuse(*_):
        raise ValueError("no step is good enough")

    with pytest.raises(ValueError, match=r"no step size from .* lets GD lower .* on small") as e:
        tune(replace(PAPER_METHODS["gd"], make=refuse), problem, StudyFolder(tmp_path),
             iterations=12, trial_iterations=6)  # fmt: skip
    assert "no step is good enough" in str(e.value.__cause__)


def test_ratings_that_the_start_already_fits_are_no_failure(tmp_path):
    lines = [f"{i},{j},{(1 + i % 2) * (1 + j % 3)}" for i in range(6) for j in range(5)]
    (tmp_path / "exact.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    exact = PaperProblem(DataSet("exact", tmp_path / "exact.csv"), "completion", threads=1)
    found, run = tune(
        PAPER_METHODS["guilty"], exact, StudyFolder(tmp_path), iterations=12, trial_iterations=6
    )
    assert run.status == "completed"
    assert found.step_size > 0


def test_the_first_guess_is_the_authors_or_one_over_the_curvature_of_the_start(problem):
    named = DataSet("ml-10m", problem.data.path)
    for name in ("completion", "one-bit"):
        known = PaperProblem(named, name, threads=1)
        for method in PAPER_METHODS.values():
            if not method.step_of:
                wanted = AUTHORS_STEPS[name, "ml-10m"][method.name]
                assert first_guess(method, known) == wanted
    assert AUTHORS_STEPS["one-bit", "netflix"]["gd"] == 1700
    # Elsewhere 1/L, with L the largest curvature at the start: here by the power method.
    x, h = problem.start(), 1e-5
    direction = np.random.default_rng(0).standard_normal(x.shape)
    for _ in range(100):
        direction /= np.linalg.norm(direction)
        ahead, behind = (problem.gradient(x + t * h * direction) for t in (1, -1))
        direction = (ahead - behind) / (2 * h)
    curvature = np.linalg.norm(direction)
    assert first_guess(PAPER_METHODS["gd"], problem) == pytest.approx(1 / curvature, rel=0.05)


# --- runs to the end ------------------------------------------------------------------------------


def falling(*, events=(), rows=101, **changed) -> PaperRun:
    """An error that falls from 1 to exp(-5), with other values in some rows."""
    k = np.arange(rows)
    error = np.exp(-k / 20)
    for row, value in changed.items():
        error[int(row[1:]) :] = value
    return made_up("GD", error, error, k, k + 1, events)


def test_a_run_that_falls_and_stays_down_is_stable():
    assert instability(falling(), 100) == ""
    flat = falling(r0=0.0)
    assert instability(flat, 100) == ""  # nothing gained, nothing lost


def test_a_run_that_ends_above_its_lowest_value_by_some_of_its_decrease_is_unstable():
    lowest = np.exp(-90 / 20)
    just = {0.04: "", 0.06: "ends above its lowest value, that of iteration 90, by 6 % of its"}
    for rise, reason in just.items():
        run = falling(r91=lowest + rise * (1 - lowest))
        assert instability(run, 100).startswith(reason)
        assert bool(instability(run, 100)) is bool(reason)
        assert instability(run, 90) == ""  # half way nothing is to be seen


def test_a_run_that_climbed_above_its_start_is_unstable_though_it_came_down_again():
    run = falling(r50=1.5, r52=0.01)
    assert instability(run, 100) == "climbs above its start at iteration 50"
    assert instability(run, 49) == ""


def test_a_climb_that_the_method_itself_takes_back_does_not_count():
    discarded = [(51, EventKind.ROLLBACK, 4.0)]
    assert instability(falling(r50=1.5, r52=0.01, events=discarded), 100) == ""
    too_late = [(60, EventKind.ROLLBACK, 4.0)]
    assert "climbs" in instability(falling(r50=1.5, r52=0.01, events=too_late), 100)


def test_a_run_that_ended_before_its_time_is_unstable_but_not_one_that_found_its_end():
    run = falling(rows=51)
    assert instability(with_outcome(run, "stopped"), 100) == "stopped after 50 of 100 iterations"
    assert instability(with_outcome(run, "completed"), 100) == ""


class LateDivergence:
    """f(x, y) = 100 - x + c(x) y^2/2 with c = 1 up to x = 30 and rising slowly from there.

    A step of 2 is the longest with which y does not grow at first, and so the best half way; once
    x > 30 it is too long.  The next smaller one has brought y to zero by then.
    """

    name, profile = "completion", "paper"
    data = SimpleNamespace(name="valley", twin=False, fingerprint="valley")
    ratings = SimpleNamespace(shape=(2, 1), nnz=1)
    objective = SimpleNamespace(rank=1, threads=1)
    device, software = "CPU", ""

    def start(self):
        return np.array([0.0, 1.0])

    def value(self, at):
        x, y = at
        return float(100 - x + (1 + 0.02 * max(x - 30, 0)) * y * y / 2)

    def gradient(self, at):
        x, y = at
        return np.array([-1 + 0.02 * (x > 30) * y * y / 2, (1 + 0.02 * max(x - 30, 0)) * y])


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (18, None),  # not long enough for anything to go wrong
        (23, "ends above its lowest value, that of iteration 20, by 51.5 % of its decrease"),
        (24, "climbs above its start at iteration 24"),
        (30, "climbs above its start at iteration 24"),  # where it ends
    ],
)
def test_a_step_that_is_best_half_way_and_goes_wrong_later_gives_way_to_the_next_smaller_one(
    length, reason, monkeypatch, tmp_path
):
    monkeypatch.setattr(plan, "PaperProblem", lambda *_: LateDivergence())
    monkeypatch.setattr(tuning, "first_guess", lambda *_: 1.0)
    figure = plan.Figure("fig1", ("completion",), length, length)
    settings = plan.Settings(methods=["gd", "cg"], trial_iterations=6)
    for _ in range(2):  # the second time from the files
        folder = StudyFolder(tmp_path)
        plan.run_figures([figure], ["valley"], settings, folder, StudyProgress())
        runs = folder.run_sets()[0].by_method
        gd = runs["GD"]
        if reason is None:
            assert gd.info.step_size == 2.0
            assert gd.info.tuning["unstable"] == []
            continue
        assert gd.info.step_size == 1.414
        assert gd.info.tuning["unstable"] == [{"step_size": 2.0, "reason": reason}]
        assert runs["CG"].info.step_size == 1.414  # it takes that of GD
        kept = {run.info.step_size: run for run in map(load_run, folder.runs.glob("*GD*"))}
        assert len(kept[2.0]) == min(length, 24) + 1  # both are there
        longer = {"values": "nfev", "gradients": "njev"}
        trials = list(map(load_run, folder.tuning.glob("*GD*")))
        for key, column in longer.items():  # what was given up is part of the cost
            spent = sum(getattr(run, column)[-1] for run in (*trials, kept[2.0]))
            assert gd.info.tuning[key] == spent
    assert not list(tmp_path.rglob("*.checkpoint*"))


def test_where_no_step_is_stable_the_lowest_is_shown_and_marked(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "PaperProblem", lambda *_: LateDivergence())
    monkeypatch.setattr(tuning, "first_guess", lambda *_: 1.0)
    monkeypatch.setattr(tuning, "instability", lambda run, length: f"at {run.info.step_size:g}")
    figure, folder = plan.Figure("fig1", ("completion",), 18, 18), StudyFolder(tmp_path)
    settings = plan.Settings(methods=["gd"], trial_iterations=6)
    plan.run_figures([figure], ["valley"], settings, folder, StudyProgress())
    (run,) = folder.run_sets()[0].runs
    assert run.info.step_size == 2.0
    steps = [each["step_size"] for each in run.info.tuning["unstable"]]
    assert steps == [2.0, 1.414, 0.9998, 0.707, 0.4999]
