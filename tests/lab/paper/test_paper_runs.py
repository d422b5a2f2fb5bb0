"""The runs behind the figures: parameters as in section 5.1, counts, files, and going on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from momentous.api import iterate
from momentous.core.checkpoint import load as load_checkpoint
from momentous.core.machine import NUMBERS
from momentous.core.status import EventKind
from momentous.lab import studies
from momentous.lab.paper import runs as paper_runs_module
from momentous.lab.paper.baselines import run_quasi_newton, run_sweeps
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import PAPER_METHODS, select_methods
from momentous.lab.paper.plan import Figure, Settings, run_figures
from momentous.lab.paper.problems import DataSet, PaperProblem
from momentous.lab.paper.runs import PaperRun, Task, load_run, run_task
from momentous.lab.progress import StudyProgress
from momentous.lowrank import Ratings
from paper_runs import calls, same_rows, write_ratings

pytest.importorskip("pyarrow")

LENGTH = 20
STEPS = {  # stable ones on the small ratings below
    "ada-ragd": 0.5, "ada-rhb": 0.5, "jin-agd": 0.2, "guilty": 0.3, "heuristic-agd": 0.3,
    "gd": 0.5, "cg": 0.5, "ragd": 0.5, "rhb": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> DataSet:
    return DataSet("small", write_ratings(tmp_path_factory.mktemp("data") / "small.csv"))


@pytest.fixture(scope="module")
def problems(data) -> dict[tuple[str, str], PaperProblem]:
    return {
        (name, profile): PaperProblem(data, name, profile, threads=1)
        for name in ("completion", "one-bit")
        for profile in ("paper", "authors-code")
    }


@pytest.fixture(scope="module")
def runs(problems, tmp_path_factory) -> dict[str, PaperRun]:
    """All of them on matrix completion."""
    folder = tmp_path_factory.mktemp("all")
    problem = problems["completion", "paper"]
    return {
        name: run_task(Task(PAPER_METHODS[name], problem, step, LENGTH), folder)
        for name, step in STEPS.items()
    }


# --- section 5.1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["paper", "authors-code"])
@pytest.mark.parametrize("name", ["ada-ragd", "ada-rhb"])
@pytest.mark.parametrize("eta", [0.5, 40.0, 1700.0])
def test_the_adaptive_methods_have_the_parameters_of_section_5_1(name, profile, eta, problems):
    problem = problems["completion", profile]
    method = PAPER_METHODS[name].make(eta, "completion", profile)
    run = iterate(
        problem.value, problem.start(), jac=problem.gradient, method=method, tol=0.0,
        max_iterations=1,
    )  # fmt: skip
    schedule = run.memory.schedule  # what a run really goes by
    theta = 0.005 * (1e-4 * 1.0 * eta**2) ** 0.25
    assert schedule.theta == pytest.approx(theta, rel=1e-12)
    assert schedule.epoch_length == math.floor(1 / theta)
    assert schedule.step_size == eta
    assert schedule.eps == 1e-4
    assert schedule.hessian_lipschitz == 1.0
    assert schedule.radius == pytest.approx(1e-2, rel=1e-14)  # B, for the heavy ball as well
    assert schedule.wide_radius == 100.0  # B0
    required = method._required_decrease(NUMBERS, schedule)
    assert required == pytest.approx(1e-5 * 1e-6)
    assert (method.failure_shrink, method.backoff) == (10.0, 2.0)  # c1, c2


def test_the_wide_radius_shrinks_by_one_plus_a_thousandth_of_the_epoch(problems):
    problem = problems["completion", "paper"]
    method = PAPER_METHODS["ada-ragd"].make(0.5, "completion", "paper")
    method = replace(method, initial_radius=1.0)  # so that there are restarts soon
    radius, restarts = 1.0, 0
    run = iterate(
        problem.value, problem.start(), jac=problem.gradient, method=method, tol=0.0,
        max_iterations=60,
    )  # fmt: skip
    for step in run:
        for event in step.events:
            assert event.kind is EventKind.RESTART
            restarts += 1
            radius /= 1 + 0.001 * restarts
            assert step.memory.schedule.wide_radius == pytest.approx(radius, rel=1e-12)
    assert restarts >= 3


@pytest.mark.parametrize("eta", [0.2, 40.0])
def test_jin_has_theta_gamma_and_s_of_section_5_1(eta):
    found = PAPER_METHODS["jin-agd"].make(eta, "completion", "paper").resolved(0.0, 10)
    theta = 0.04 * (1e-4 * 1.0 * eta**2) ** 0.25
    assert (found.step_size, found.eps, found.perturbation) == (eta, 1e-4, 0.0)
    assert found.theta == pytest.approx(theta)
    assert found.curvature == pytest.approx(theta**2 / eta)  # gamma
    assert found.curvature_step == pytest.approx(theta**2 / eta / 4)  # s = gamma/(4 rho)


@pytest.mark.parametrize(("name", "eps"), [("completion", 1e-12), ("one-bit", 1e-14)])
def test_guilty_follows_its_theory_but_for_a_hundred_inner_iterations(name, eps):
    found = PAPER_METHODS["guilty"].make(50.0, name, "paper").resolved(0.0)
    assert (found.eps, found.inner_cap) == (eps, 100)
    assert found.curvature == pytest.approx(2 * math.sqrt(eps))  # alpha = 2 sqrt(rho eps)


def test_conjugate_gradients_are_unguarded_as_in_the_authors_code_only():
    cg = {profile: PAPER_METHODS["cg"].make(3.0, "completion", profile)
          for profile in ("paper", "authors-code")}  # fmt: skip
    assert cg["paper"].guarded
    assert not cg["authors-code"].guarded
    assert all(each.max_halvings == 10 and each.step_size == 3.0 for each in cg.values())
    assert PAPER_METHODS["cg"].step_of == "gd"


@pytest.mark.parametrize("name", ["ragd", "rhb"])
def test_the_fixed_methods_are_what_the_adaptive_ones_become_with_the_step_of_gd(name):
    fixed, adaptive = (PAPER_METHODS[n].make(40.0, "completion", "paper")
                       for n in (name, f"ada-{name}"))  # fmt: skip
    for parameter in ("step_size", "momentum", "radius", "epoch_length"):
        assert getattr(fixed, parameter) == getattr(adaptive, parameter)
    assert PAPER_METHODS[name].step_of == "gd"


def test_restarted_in_every_iteration_the_fixed_methods_make_the_steps_of_gd(runs):
    gd = runs["gd"]
    alone = int(np.argmax(STEPS["gd"] * gd.grad_norm <= 1e-2)) or LENGTH  # steps longer than B
    assert alone > 3
    for name in ("ragd", "rhb"):
        assert STEPS[name] == PAPER_METHODS[name].step_factor * STEPS["gd"]
        # A row is where a gradient was taken: the first two are at the start.
        np.testing.assert_allclose(runs[name].fun[1:alone], gd.fun[: alone - 1], rtol=1e-3)
        assert runs[name].rows_with(EventKind.RESTART)[: alone - 1] == list(range(1, alone))


def test_gd_and_heuristic_ragd_have_nothing_but_a_step_size():
    for name in ("gd", "heuristic-agd"):
        method = PAPER_METHODS[name].make(7.0, "completion", "paper")
        assert replace(method, step_size=None) == type(method)()
        assert method.step_size == 7.0


def test_unknown_methods_are_refused_by_name_and_known_ones_come_in_their_order():
    with pytest.raises(ValueError, match=r"'sgd' is not one of .* ada-ragd, .* cg"):
        select_methods(["gd", "sgd"])
    assert [each.name for each in select_methods(["cg", "gd"])] == ["gd", "cg"]
    assert len(select_methods(None)) == 9


# --- the problems ---------------------------------------------------------------------------------


def naive_value(problem: PaperProblem, x, balance: float = 1.0) -> float:
    """F as section 5 writes it, entry by entry."""
    given, N = problem.data.ratings, problem.ratings.nnz
    m, n = given.shape
    rank = min(10, m, n)
    U, V = x[: m * rank].reshape(m, rank), x[m * rank :].reshape(n, rank)
    total = 0.0
    for i, j, rating in zip(given.rows, given.cols, given.values, strict=True):
        z = float(U[i] @ V[j])
        if problem.name == "completion":
            total += 0.5 * (z - rating) ** 2
        else:
            label = 1 if rating > given.mean else -1
            total += math.log1p(math.exp(-label * z))
    return total / N + balance * float(np.sum((U.T @ U - V.T @ V) ** 2)) / (2 * N)


@pytest.mark.parametrize("name", ["completion", "one-bit"])
def test_value_and_gradient_are_those_of_section_5(name, problems):
    draw = np.random.default_rng(3)
    for profile, balance in (("paper", 1.0), ("authors-code", 0.5)):
        problem = problems[name, profile]
        x = problem.start() + 0.1 * draw.standard_normal(problem.start().shape)
        along = draw.standard_normal(x.shape)
        h = 1e-5
        assert problem.value(x) == pytest.approx(naive_value(problem, x), rel=1e-12)
        slope = (
            naive_value(problem, x + h * along, balance)
            - naive_value(problem, x - h * along, balance)
        ) / (2 * h)
        # The authors' gradient has half of the balance term, their value all of it.
        assert problem.gradient(x) @ along == pytest.approx(slope, rel=1e-6)


def test_the_two_profiles_differ_where_the_factors_are_out_of_balance(problems):
    paper, code = (problems["completion", profile] for profile in ("paper", "authors-code"))
    x = paper.start()
    assert paper.gradient(x) == pytest.approx(code.gradient(x), abs=1e-9)  # balanced: no term
    x[: x.size // 3] *= 1.5
    assert np.linalg.norm(paper.gradient(x) - code.gradient(x)) > 1e-2
    assert paper.value(x) == code.value(x)


def test_a_value_that_was_kept_is_that_of_the_point(problems):
    problem = problems["completion", "paper"]
    x, y = problem.start(), problem.start() * 1.1
    fx, fy = (problem.objective.value_and_gradient(each)[0] for each in (x, y))
    x.flags.writeable = y.flags.writeable = False
    problem.gradient(x)
    assert (problem.value(y), problem.value(x)) == (fy, fx)
    problem.gradient(y)
    assert (problem.value(x), problem.value(y)) == (fx, fy)
    assert problem.value(x.copy()) == pytest.approx(fx, rel=1e-14)


def test_nothing_is_kept_of_an_array_that_can_be_written_to(problems):
    problem = problems["completion", "paper"]
    x = problem.start()
    problem.gradient(x)
    x *= 2
    assert problem.value(x) == problem.objective.value(x) != problem.objective.value(x / 2)


def test_an_iteration_takes_one_pass_over_the_entries(problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    passes = calls(problem.objective, monkeypatch, ("value", "value_and_gradient"))
    run_task(Task(PAPER_METHODS["gd"], problem, 0.5, LENGTH), tmp_path)
    assert passes.count("value_and_gradient") == LENGTH + 1
    assert passes.count("value") <= 4  # at the start and the end only, though a trace has all


def test_unknown_problems_and_profiles_are_refused(data):
    with pytest.raises(ValueError, match="problem='two-bit' must be one of completion, one-bit"):
        PaperProblem(data, "two-bit")
    with pytest.raises(ValueError, match="profile='mine' must be one of paper, authors-code"):
        PaperProblem(data, "completion", "mine")


# --- data sets ------------------------------------------------------------------------------------


def test_a_data_set_is_a_twin_or_a_file(data):
    assert DataSet("ml-100k").twin
    assert not DataSet("any-name", data.path).twin
    with pytest.raises(ValueError, match=r"no twin of 'ml-5m': give a file with it, or take one"):
        DataSet("ml-5m")
    with pytest.raises(ValueError, match=r"no file nowhere.csv for ml-1m; without a file the"):
        DataSet("ml-1m", Path("nowhere.csv"))


def test_one_rating_makes_another_fingerprint(data, tmp_path):
    path = tmp_path / "other.csv"
    lines = data.path.read_text().splitlines()
    path.write_text("\n".join(lines) + "\n")
    assert DataSet("copy", path).fingerprint == data.fingerprint  # whatever it is called
    user, item, rating = lines[5].split(",")
    lines[5] = f"{user},{item},{6 - int(rating) if rating != '3' else 4}"
    path.write_text("\n".join(lines) + "\n")
    assert DataSet("small", path).fingerprint != data.fingerprint


# --- what is counted and recorded -----------------------------------------------------------------


def test_values_and_gradients_are_counted_as_the_paper_counts_them(runs):
    def spent(name):  # in the iterations, without the start
        run = runs[name]
        assert len(run) == LENGTH + 1
        return np.diff(run.nfev), np.diff(run.njev)

    values, gradients = spent("gd")
    assert set(values) == {0}
    assert set(gradients) == {1}
    for name in ("ada-ragd", "ada-rhb"):
        values, gradients = spent(name)
        restarts = np.bincount(runs[name].restart_rows(), minlength=LENGTH + 1)
        assert values.tolist() == restarts[1:].tolist()
        # The first gradient of the first epoch is that of the start.
        assert gradients.tolist() == [0] + [1] * (LENGTH - 1)
    values, gradients = spent("heuristic-agd")
    assert set(values) == {1}
    assert set(gradients[1:]) == {1}
    values, gradients = spent("jin-agd")
    assert set(values[1:]) == {2}
    assert set(gradients[1:]) == {1}
    values, gradients = spent("cg")
    assert min(values) >= 1
    assert set(gradients) == {1}
    values, gradients = spent("guilty")
    assert set(gradients[1:]) == {2}
    assert min(values[1:]) >= 2


def test_a_view_that_is_read_only_may_still_change(problems):
    problem = problems["completion", "paper"]
    x = problem.start()
    view = x[:]
    view.flags.writeable = False
    problem.gradient(view)
    x *= 2
    assert problem.value(view) == problem.objective.value(x)


def test_the_published_code_s_profile_takes_one_value_pass_an_iteration(
    problems, monkeypatch, tmp_path
):
    problem, passes = problems["completion", "authors-code"], []
    original = type(problem.objective).value
    monkeypatch.setattr(
        type(problem.objective), "value", lambda self, x: passes.append(1) or original(self, x)
    )
    run_task(Task(PAPER_METHODS["gd"], problem, 0.5, 20), tmp_path)
    assert len(passes) <= 20 + 4  # start, limit and end


def test_an_error_while_a_checkpoint_is_written_does_not_cost_the_one_before(
    problems, monkeypatch, tmp_path
):
    problem = problems["completion", "paper"]
    monkeypatch.setattr("momentous.lab.paper.runs.SAVE_EVERY", 0.0)
    task = Task(PAPER_METHODS["gd"], problem, 0.5, 30)
    interrupted_at = 15

    def interrupt(nit, fun, norm):
        if nit == interrupted_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(task, tmp_path, interrupt)
    saved = {path: path.read_bytes() for path in tmp_path.glob("*.checkpoint*")}
    assert saved

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("momentous.core.checkpoint.Checkpoint.save", full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            assert len(run_task(task, tmp_path)) == 31
    assert {path: path.read_bytes() for path in tmp_path.glob("*.checkpoint*")} == saved
    assert len(run_task(task, tmp_path)) == 31


def test_the_counts_are_what_was_really_asked_for(problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    for name in ("heuristic-agd", "guilty"):
        asked = calls(problem, monkeypatch)
        run = run_task(Task(PAPER_METHODS[name], problem, STEPS[name], LENGTH), tmp_path)
        assert asked.count("gradient") == run.njev[-1]
        monkeypatch.undo()


def test_the_objective_of_gd_is_that_of_a_naive_loop(runs, problems):
    problem = problems["completion", "paper"]
    x, run = problem.start(), runs["gd"]
    for k in range(LENGTH + 1):
        value, gradient = problem.objective.value_and_gradient(x)
        assert run.fun[k] == pytest.approx(value, rel=1e-12)
        assert run.grad_norm[k] == pytest.approx(np.linalg.norm(gradient), rel=1e-10)
        x = x - STEPS["gd"] * gradient


def test_the_objective_of_heuristic_ragd_is_that_of_a_naive_loop(problems, tmp_path):
    problem, eta = problems["completion", "paper"], 1.5  # too long: the momentum is dropped
    method = replace(PAPER_METHODS["heuristic-agd"], divergence_factor=1e9)
    task = Task(method, problem, eta, LENGTH)
    run = run_task(task, tmp_path)
    F = problem.objective
    x = y = problem.start()
    m, restarts = 1, []
    for k in range(1, LENGTH + 1):
        value, gradient = F.value_and_gradient(y)
        assert run.fun[k] == pytest.approx(value, rel=1e-10)  # at y, not at x
        assert run.grad_norm[k] == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
        x_next = y - eta * gradient
        m = m + 1 if F.value(x_next) <= F.value(x) else 1
        restarts += [k] if m == 1 else []
        x, y = x_next, x_next + (m - 1) / (m + 2) * (x_next - x)
    assert run.restart_rows() == restarts
    assert restarts


def test_a_run_is_read_as_it_was_written(runs, tmp_path):
    run = runs["ada-ragd"]
    info = replace(run.info, setup='here, "quotes" = signs; and ü', tuning={"trials": 3})
    events = [
        (0, EventKind.RESTART, 16.0),
        (3, EventKind.ROLLBACK, math.inf),
        (3, EventKind.RADIUS_REACHED, 0.0123456789),
    ]
    run = replace(run, info=info, fun=np.full(LENGTH + 1, np.nan), events=events)
    written = run.save(tmp_path / "run.parquet")
    read = load_run(tmp_path / "run.parquet")
    assert (read.info, read.outcome) == (info, run.outcome)
    same_rows(read, written)
    assert read.time.tobytes() == run.time.tobytes()
    assert np.isnan(read.fun).all()
    assert read.path == written.path == tmp_path / "run.parquet"
    assert [each.name for each in tmp_path.iterdir()] == ["run.parquet"]


def test_a_description_says_what_was_run_on_what(runs, data):
    info = runs["ada-rhb"].info
    assert (info.data, info.twin, info.problem) == ("small", False, "completion")
    assert (info.method, info.profile, info.step_size) == ("Ada-RHB-NC", "paper", 0.5)
    assert (info.shape, info.entries, info.rank) == ((24, 16), 240, 10)
    assert info.fingerprint == data.fingerprint
    assert info.parameters["initial_radius"] == 100.0
    assert runs["ada-rhb"].status == "max iterations"
    json.dumps(info.parameters)


# --- files ----------------------------------------------------------------------------------------


def test_a_run_that_is_there_is_not_run_again(problems, monkeypatch, tmp_path):
    task = Task(PAPER_METHODS["gd"], problems["completion", "paper"], 0.5, LENGTH)
    first = run_task(task, tmp_path)
    asked = calls(task.problem, monkeypatch)
    again = run_task(task, tmp_path)
    assert not asked
    same_rows(again, first)
    assert again.time.tobytes() == first.time.tobytes()
    shorter = run_task(replace(task, iterations=5), tmp_path)
    assert len(shorter) == LENGTH + 1


def damaged(content: bytes) -> list[bytes]:
    """Torn, zeroed, and with single bits flipped among the columns, which come first."""
    middle = len(content) // 2
    torn = [b"", b"PAR1", content[:middle], content[:-20], content[:middle] + b"\0" * middle]
    places = np.random.default_rng(0).integers(4, len(content) // 4, 20)
    flips = [content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :] for at in places]
    return torn + flips


def test_a_damaged_file_is_run_again(problems, tmp_path):
    task = Task(PAPER_METHODS["gd"], problems["completion", "paper"], 0.5, LENGTH)
    whole = run_task(task, tmp_path)
    content = whole.path.read_bytes()
    for bad in damaged(content):
        paper_runs_module.remove_checkpoint(whole)
        whole.path.write_bytes(bad)
        same_rows(run_task(task, tmp_path), whole)
        same_rows(load_run(whole.path), whole)
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"a": [1.0]}), whole.path)  # somebody else's
    same_rows(run_task(task, tmp_path), whole)


def test_what_makes_another_run_makes_another_file(problems, tmp_path):
    other = DataSet("small", write_ratings(tmp_path / "other.csv", seed=1))
    gd = PAPER_METHODS["gd"]
    tasks = [
        Task(gd, problems["completion", "paper"], 0.5, LENGTH),
        Task(gd, problems["completion", "authors-code"], 0.5, LENGTH),
        Task(gd, problems["one-bit", "paper"], 0.5, LENGTH),
        Task(gd, problems["completion", "paper"], 0.50001, LENGTH),
        Task(PAPER_METHODS["cg"], problems["completion", "paper"], 0.5, LENGTH),
        Task(gd, PaperProblem(other, "completion", threads=1), 0.5, LENGTH),
        Task(gd, problems["completion", "paper"], 0.5, LENGTH, trial=True),
        Task(gd, problems["completion", "paper"], 0.5, LENGTH + 1, trial=True),
    ]
    assert len({task.path(tmp_path) for task in tasks}) == len(tasks)
    longer = replace(tasks[0], iterations=10**6)
    assert longer.path(tmp_path) == tasks[0].path(tmp_path)  # it is extended


def test_a_diverging_run_ends_and_stays_ended(problems, monkeypatch, tmp_path):
    task = Task(PAPER_METHODS["gd"], problems["completion", "paper"], 1e3, LENGTH)
    run = run_task(task, tmp_path)
    assert run.status in ("stopped", "non finite")
    assert len(run) < LENGTH
    assert (run.fun[:-1] <= run.fun[0] * (1 + 1e-8)).all()
    asked = calls(task.problem, monkeypatch)
    same_rows(run_task(task, tmp_path), run)
    assert not asked


# --- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PAPER_METHODS))
def test_an_extended_run_begins_as_the_shorter_one(name, runs, problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    task = Task(PAPER_METHODS[name], problem, STEPS[name], LENGTH)
    short = run_task(task, tmp_path)
    same_rows(short, runs[name])
    asked = calls(problem, monkeypatch)
    longer = run_task(replace(task, iterations=2 * LENGTH), tmp_path)
    assert len(longer) == 2 * LENGTH + 1
    same_rows(longer, short, LENGTH + 1)
    if name != "guilty":  # two an iteration
        assert asked.count("gradient") <= LENGTH + 2  # from the checkpoint, not from the start
    at_once = run_task(replace(task, iterations=2 * LENGTH), tmp_path / "elsewhere")
    same_rows(longer, at_once)


@pytest.mark.parametrize("broken", ["the last", "both"])
def test_a_damaged_checkpoint_costs_time_only(broken, problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    monkeypatch.setattr(paper_runs_module, "SAVE_EVERY", 0.0)  # after every iteration
    task = Task(PAPER_METHODS["heuristic-agd"], problem, 0.3, LENGTH)
    short = run_task(task, tmp_path)
    kept = short.path.with_suffix(".checkpoint")
    before = kept.with_name(kept.name + ".previous")
    assert load_checkpoint(kept).progress.nit == LENGTH
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    if broken == "both":
        before.write_bytes(b"")
    asked = calls(problem, monkeypatch)
    longer = run_task(replace(task, iterations=LENGTH + 5), tmp_path)
    # A resumed run looks at the function once.
    assert asked.count("gradient") == (LENGTH + 5 if broken == "both" else 6)
    assert not list(tmp_path.glob("*.partial"))
    same_rows(longer, run_task(replace(task, iterations=LENGTH + 5), tmp_path / "elsewhere"))


def test_killed_between_its_end_and_its_file_a_run_is_not_run_again(
    problems, monkeypatch, tmp_path
):
    problem = problems["completion", "paper"]
    for name, step in (("ada-rhb", 0.5), ("cg", 0.5), ("gd", 10.0)):  # the last one diverges
        task = Task(PAPER_METHODS[name], problem, step, LENGTH)
        whole = run_task(task, tmp_path)
        whole.path.unlink()
        asked = calls(problem, monkeypatch)
        same_rows(run_task(task, tmp_path), whole)
        # That of the output, of one step past the end, and the look before it.
        assert asked.count("gradient") <= 3
        monkeypatch.undo()
    assert whole.status == "stopped"


@pytest.mark.parametrize("step", [0.5, 20.0], ids=["to the end", "diverges"])
def test_ctrl_c_in_any_call_goes_through_and_nothing_is_lost(step, problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    task = Task(PAPER_METHODS["gd"], problem, step, 4)
    whole = run_task(task, tmp_path / "whole")
    original = problem.gradient
    for last in range(1, 100):
        count = 0

        def interrupted(x, last=last):
            nonlocal count
            count += 1
            if count == last:
                raise KeyboardInterrupt
            return original(x)

        monkeypatch.setattr(problem, "gradient", interrupted)
        folder = tmp_path / str(last)
        try:
            run_task(task, folder)
        except KeyboardInterrupt:
            monkeypatch.setattr(problem, "gradient", original)
            same_rows(run_task(task, folder), whole)
        else:
            assert count < last  # there are no more calls
            break
    assert last > len(whole)


def test_the_two_lowest_go_on_for_the_sake_of_the_lowest_value(data, tmp_path):
    figure = Figure("fig1", ("completion",), 10, 20)
    settings = Settings(methods=["ada-ragd", "jin-agd", "gd", "cg"], trial_iterations=5, threads=1)
    folder = StudyFolder(tmp_path)
    run_figures([figure], [data], settings, folder, StudyProgress())
    (run_set,) = folder.run_sets()
    assert run_set.plotted == 10
    ends = {run.info.method: run.fun[10] for run in run_set.runs}
    longer = [run.info.method for run in run_set.runs if len(run) > 11]
    assert set(longer) == set(sorted(ends, key=ends.__getitem__)[:2])
    assert run_set.lowest[0] == min(run.fun.min() for run in run_set.runs)
    assert run_set.lowest[0] < min(ends.values())
    assert not list(tmp_path.rglob("*.checkpoint*"))


# --- baselines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["completion", "one-bit"])
def test_every_sweep_lowers_the_paper_s_objective(name, problems):
    problem = problems[name, "paper"]
    run = run_sweeps(problem, 15)
    assert len(run) == 15
    # The first row of one-bit completion is the start, and equal to it but for rounding.
    values = np.array([problem.value(problem.start()), *run.fun])
    assert (np.diff(values) <= 1e-10 * values[0]).all()
    assert values[-1] < 0.99 * values[0]
    assert (run.njev > 0).all()
    assert (np.diff(run.njev) == 1).all()
    assert (np.diff(run.time) >= 0).all()
    assert run.info.step_size is None


def test_l_bfgs_b_is_charged_one_value_and_one_gradient_an_evaluation(problems):
    problem = problems["completion", "paper"]
    run = run_quasi_newton(problem, 40)
    rows = np.arange(1, len(run) + 1)
    assert run.nfev.tolist() == run.njev.tolist() == rows.tolist()
    assert run.nfev[-1] + run.njev[-1] <= 41
    assert run.fun[0] == problem.value(problem.start())
    assert run.fun[-1] < run.fun[0]
    assert np.isnan(run.step_size).all()


def test_labels_are_signs_of_rating_minus_mean(data):
    ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1.0, 3.0, 3.0, 5.0])
    assert ratings.signs().values.tolist() == [-1.0, -1.0, -1.0, 1.0]  # -1 at the mean


# --- the demonstration ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_demo_runs_no_method_of_the_paper_again_and_leaves_other_figures_alone(
    data, monkeypatch, tmp_path
):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("momentous.lab.report.documents.draw_pictures", lambda *_: {})
    monkeypatch.setattr(studies, "DataSet", partial(DataSet, path=data.path))  # not the twin
    folder, settings = StudyFolder(tmp_path), Settings(methods=["gd"], trial_iterations=4)
    figure = Figure("fig1", ("completion",), 8, 8)
    run_figures([figure], [data], settings, folder, StudyProgress())
    studies.run_demo(tmp_path, 10)
    run_sets = folder.run_sets()
    found = [(each.figure, each.problem, len(each.runs)) for each in run_sets]
    assert found == [("demo", "completion", 11), ("demo", "one-bit", 11), ("fig1", "completion", 1)]
    before = {run.path: run.path.stat().st_mtime_ns for run_set in run_sets for run in run_set.runs}
    asked = calls(PaperProblem, monkeypatch, ("gradient",))
    _, study = studies.run_demo(tmp_path, 10)
    assert not asked
    again = [run.path for run_set in folder.run_sets() for run in run_set.runs]
    assert again == list(before)
    beside = [path for path in again if path.stat().st_mtime_ns != before[path]]
    assert len(beside) == 4  # L-BFGS-B and the sweeps
    assert "after 10 iterations" in studies.what_to_look_at(study)
