"""The search for a step size finds what it documents, ends whatever it meets, and runs once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from momentous.reproduce import tuning
from momentous.reproduce.contenders import AUTHORS_STEPS, CONTENDERS
from momentous.reproduce.dataset import DataSet
from momentous.reproduce.folder import Folder
from momentous.reproduce.problem import PaperProblem
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.recording import recorded, task_for
from momentous.reproduce.tuning import MOST_DOUBLINGS, Trial, descend, first_guess, search, tune
from test_reproduce_runs import calls, write_ratings

pytest.importorskip("pyarrow")


def made_up(stable_up_to: float, best: float | None = None):
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
    trials = search(made_up(limit), 1.0)
    best = max(trial.step_size for trial in trials if trial.stable)
    assert best <= limit < best * 2**0.25 * (1 + 1e-12)


def test_it_doubles_then_halves_the_bracket_in_logs():
    tried = made_up(5.0)
    search(tried, 1.0)
    assert tried.steps == pytest.approx([1, 2, 4, 8, 32**0.5, (4 * 32**0.5) ** 0.5])
    tried = made_up(0.3)
    search(tried, 1.0)
    assert tried.steps == pytest.approx([1, 0.5, 0.25, 0.125**0.5, (0.25 * 0.125**0.5) ** 0.5])


def test_smaller_steps_are_tried_while_the_smallest_is_the_best():
    tried = made_up(5.0, best=0.1)
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
    tried = made_up(5.0, best=1e-300)
    search(tried, 1.0)
    assert len(tried.steps) == 2 * MOST_DOUBLINGS + 1


def test_ties_end_the_search_and_go_to_the_first():
    trials = search(lambda step: Trial(step, step <= 5, 1.0 if step <= 5 else math.inf), 1.0)
    assert len(trials) == 7  # one below the first, which was no better
    assert min(trials, key=lambda trial: trial.fun).step_size == 1.0


def test_the_descent_goes_on_until_a_smaller_step_ends_no_lower():
    tried = made_up(math.inf, best=0.5)
    runs = descend(tried, 1.0)
    assert [run.step_size for run in runs] == pytest.approx([1, 0.5**0.5, 0.5, 0.5**1.5])
    tried = made_up(0.3)  # the first three do not reach the end
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
def run(problem, tmp_path_factory) -> Recorded:
    return recorded(task_for(CONTENDERS["gd"], problem, 0.5, 10), tmp_path_factory.mktemp("run"))


def altered(run: Recorded, *, events=(), status="max iterations", **rows) -> Recorded:
    fun = run.history.fun.copy()
    for row, value in rows.items():
        fun[int(row[1:])] = value
    history = replace(run.history, fun=fun, events=list(events))
    return replace(run, history=history, about=replace(run.about, status=status))


def test_stable_is_finite_never_above_the_start_and_without_discarded_epochs(run):
    start = run.history.fun[0]
    assert Trial.of(run, 10) == Trial(0.5, True, run.history.fun[10])
    for bad in (math.nan, math.inf):
        assert Trial.of(altered(run, r4=bad), 10) == Trial(0.5, False, math.inf)
    above = Trial.of(altered(run, r4=1.01 * start), 10)
    assert (above.stable, above.fun) == (False, run.history.fun[10])
    for kind, stable in (("ROLLBACK", False), ("NON_FINITE", False), ("RESTART", True)):
        assert Trial.of(altered(run, events=[(4, kind, 1.0)]), 10).stable is stable


def test_of_a_longer_run_only_the_beginning_counts(run):
    bad = altered(run, r9=math.nan, events=[(8, "ROLLBACK", 1.0)])
    assert Trial.of(bad, 7) == Trial(0.5, True, run.history.fun[7])
    assert not Trial.of(bad, 8).stable


def test_a_run_that_was_given_up_is_lost_but_one_that_found_its_end_is_not(run):
    for status in ("max iterations", "stopped", "non finite"):
        assert Trial.of(altered(run, status=status), 20).fun == math.inf
    for status in ("completed", "no progress"):
        found = Trial.of(altered(run, status=status), 20)
        assert found == Trial(0.5, True, run.history.fun[10])


# --- tuning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gd", "ada-ragd", "jin-agd"])
def test_a_search_is_kept_and_runs_nothing_the_second_time(name, problem, tmp_path, monkeypatch):
    options = {"iterations": 12, "trial_iterations": 6}
    asked = calls(problem, monkeypatch)
    found, chosen = tune(CONTENDERS[name], problem, Folder(tmp_path), **options)
    spent = asked.count("gradient")
    assert spent > 0
    asked.clear()
    again, same = tune(CONTENDERS[name], problem, Folder(tmp_path), **options)
    assert not [each for each in asked if each == "gradient"]
    assert (again.trials, again.full, again.cost) == (found.trials, found.full, found.cost)
    assert same.path == chosen.path
    others = [Recorded.load(path) for path in tmp_path.rglob("*.parquet") if path != chosen.path]
    for column, history in (("values", "nfev"), ("gradients", "njev")):
        assert found.cost[column] == sum(getattr(run.history, history)[-1] for run in others)
    assert found.cost["trials"] + found.cost["longer runs"] == len(others)
    # With the run that is shown, that is all that was spent, but for the output of each run.
    unseen = spent - found.cost["gradients"] - chosen.history.njev[-1]
    assert 0 <= unseen <= len(others) + 1
    ends = {trial.step_size: trial.fun for trial in found.full}
    assert found.step_size == chosen.about.step_size == min(ends, key=ends.__getitem__)
    assert chosen.history.fun[12] == min(ends.values())


def test_a_search_that_was_interrupted_goes_on(problem, tmp_path):
    options = {"iterations": 12, "trial_iterations": 6}
    whole, _ = tune(CONTENDERS["gd"], problem, Folder(tmp_path / "whole"), **options)
    watched = []

    def watch(nit, fun, norm):
        watched.append(nit)
        if len(watched) == 20:
            raise RuntimeError("the lights went out")

    with pytest.raises(RuntimeError, match="lights"):
        tune(CONTENDERS["gd"], problem, Folder(tmp_path / "cut"), watch=watch, **options)
    before = len(watched)
    found, _ = tune(CONTENDERS["gd"], problem, Folder(tmp_path / "cut"), watch=watch, **options)
    assert (found.trials, found.full) == (whole.trials, whole.full)
    alone = []
    tune(CONTENDERS["gd"], problem, Folder(tmp_path / "alone"),
         watch=lambda *_: alone.append(1), **options)  # fmt: skip
    assert len(watched) == len(alone)  # every iteration once
    assert 0 < before < len(alone)


def test_longer_runs_of_another_day_do_not_raise_the_cost(problem, tmp_path):
    folder, gd = Folder(tmp_path), CONTENDERS["gd"]
    found, _ = tune(gd, problem, folder, iterations=12, trial_iterations=6)
    for trial in found.full:
        recorded(task_for(gd, problem, trial.step_size, 30), folder.runs)
    again, _ = tune(gd, problem, folder, iterations=12, trial_iterations=6)
    assert {**again.cost, "seconds": 0} == {**found.cost, "seconds": 0}


def test_a_step_that_the_method_refuses_is_not_stable(problem, tmp_path, monkeypatch):
    jin = CONTENDERS["jin-agd"]
    with pytest.raises(ValueError, match="theta <= 1/4"):  # what it says to such a step
        jin.make(1e5, "completion", "paper").resolved(0.0, 3)
    monkeypatch.setattr(tuning, "first_guess", lambda *_: 1e3)
    found, _ = tune(jin, problem, Folder(tmp_path), iterations=12, trial_iterations=6)
    assert not found.trials[0].stable
    assert 0 < found.step_size < 10


def test_where_no_step_leads_downwards_that_is_said(problem, tmp_path):
    def refuse(*_):
        raise ValueError("no step is good enough")

    with pytest.raises(ValueError, match=r"no step size from .* lets GD lower .* on small") as e:
        tune(replace(CONTENDERS["gd"], make=refuse), problem, Folder(tmp_path),
             iterations=12, trial_iterations=6)  # fmt: skip
    assert "no step is good enough" in str(e.value.__cause__)


def test_ratings_that_the_start_already_fits_are_no_failure(tmp_path):
    lines = [f"{i},{j},{(1 + i % 2) * (1 + j % 3)}" for i in range(6) for j in range(5)]
    (tmp_path / "exact.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    exact = PaperProblem(DataSet("exact", tmp_path / "exact.csv"), "completion", threads=1)
    found, run = tune(
        CONTENDERS["guilty"], exact, Folder(tmp_path), iterations=12, trial_iterations=6
    )
    assert run.about.status == "completed"
    assert found.step_size > 0


def test_the_first_guess_is_the_authors_or_one_over_the_curvature_of_the_start(problem):
    named = DataSet("ml-10m", problem.data.path)
    for name in ("completion", "one-bit"):
        known = PaperProblem(named, name, threads=1)
        for contender in CONTENDERS.values():
            if not contender.step_of:
                wanted = AUTHORS_STEPS[name, "ml-10m"][contender.name]
                assert first_guess(contender, known) == wanted
    assert AUTHORS_STEPS["one-bit", "netflix"]["gd"] == 1700
    # Elsewhere 1/L, with L the largest curvature at the start: here by the power method.
    x, h = problem.start(), 1e-5
    direction = np.random.default_rng(0).standard_normal(x.shape)
    for _ in range(100):
        direction /= np.linalg.norm(direction)
        ahead, behind = (problem.gradient(x + t * h * direction) for t in (1, -1))
        direction = (ahead - behind) / (2 * h)
    curvature = np.linalg.norm(direction)
    assert first_guess(CONTENDERS["gd"], problem) == pytest.approx(1 / curvature, rel=0.05)
