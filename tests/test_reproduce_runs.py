"""The runs behind the figures: parameters as in section 5.1, counts, files, and going on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from momentous import demo
from momentous.api import iterate
from momentous.comparison.history import History
from momentous.core.checkpoint import load as load_checkpoint
from momentous.lowrank import Ratings
from momentous.reproduce import recording
from momentous.reproduce.companions import run_quasi_newton, run_sweeps
from momentous.reproduce.contenders import CONTENDERS, chosen_contenders
from momentous.reproduce.dataset import DataSet
from momentous.reproduce.display import Display
from momentous.reproduce.folder import Folder
from momentous.reproduce.plan import Figure, Settings, run_figures
from momentous.reproduce.problem import PaperProblem
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.recording import recorded, task_for

pytest.importorskip("pyarrow")

BUT_TIME = ("nfev", "njev", "fun", "grad_norm")
LENGTH = 20
STEPS = {  # stable ones on the small ratings below
    "ada-ragd": 0.5, "ada-rhb": 0.5, "jin-agd": 0.2, "guilty": 0.3, "heuristic-agd": 0.3,
    "gd": 0.5, "cg": 0.5,
}  # fmt: skip


def write_ratings(path, *, seed=0, users=24, items=16, each=10):
    """A file of ratings, 1 to 5."""
    rng = np.random.default_rng(seed)
    lines = [
        f"{user},{item},{rng.integers(1, 6)}"
        for user in range(users)
        for item in rng.choice(items, each, replace=False)
    ]
    path.write_text("\n".join(["user,item,rating", *lines, ""]))
    return path


def same_rows(run: Recorded, other: Recorded, rows: int | None = None) -> None:
    """Bit for bit, but for the clock."""
    for name in BUT_TIME:
        mine, others = (getattr(it.history, name)[:rows] for it in (run, other))
        assert mine.tobytes() == others.tobytes(), name
    assert run.step_sizes[:rows].tobytes() == other.step_sizes[:rows].tobytes()
    last = math.inf if rows is None else rows
    events = [[e for e in it.history.events if e[0] < last] for it in (run, other)]
    assert events[0] == events[1]


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
def runs(problems, tmp_path_factory) -> dict[str, Recorded]:
    """All seven on matrix completion."""
    folder = tmp_path_factory.mktemp("seven")
    problem = problems["completion", "paper"]
    return {
        name: recorded(task_for(CONTENDERS[name], problem, step, LENGTH), folder)
        for name, step in STEPS.items()
    }


def calls(owner, monkeypatch, names=("value", "gradient")) -> list[str]:
    """What is asked of a problem, or an objective, from now on."""
    asked: list[str] = []
    for name in names:

        def counting(name, original, x):
            asked.append(name)
            return original(x)

        monkeypatch.setattr(owner, name, partial(counting, name, getattr(owner, name)))
    return asked


# --- section 5.1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["paper", "authors-code"])
@pytest.mark.parametrize("name", ["ada-ragd", "ada-rhb"])
@pytest.mark.parametrize("eta", [0.5, 40.0, 1700.0])
def test_the_adaptive_methods_have_the_parameters_of_section_5_1(name, profile, eta, problems):
    problem = problems["completion", profile]
    method = CONTENDERS[name].make(eta, "completion", profile)
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
    assert schedule.required_decrease(method.decrease) == pytest.approx(1e-5 * 1e-6)
    assert (method.failure_shrink, method.backoff) == (10.0, 2.0)  # c1, c2


def test_the_wide_radius_shrinks_by_one_plus_a_thousandth_of_the_epoch(problems):
    problem = problems["completion", "paper"]
    method = CONTENDERS["ada-ragd"].make(0.5, "completion", "paper")
    method = replace(method, initial_radius=1.0)  # so that there are restarts soon
    radius, restarts = 1.0, 0
    run = iterate(
        problem.value, problem.start(), jac=problem.gradient, method=method, tol=0.0,
        max_iterations=60,
    )  # fmt: skip
    for step in run:
        for event in step.events:
            assert event.kind.name == "RESTART"
            restarts += 1
            radius /= 1 + 0.001 * restarts
            assert step.memory.schedule.wide_radius == pytest.approx(radius, rel=1e-12)
    assert restarts >= 3


@pytest.mark.parametrize("eta", [0.2, 40.0])
def test_jin_has_theta_gamma_and_s_of_section_5_1(eta):
    found = CONTENDERS["jin-agd"].make(eta, "completion", "paper").resolved(0.0, 10)
    theta = 0.04 * (1e-4 * 1.0 * eta**2) ** 0.25
    assert (found.step_size, found.eps, found.perturbation) == (eta, 1e-4, 0.0)
    assert found.theta == pytest.approx(theta)
    assert found.curvature == pytest.approx(theta**2 / eta)  # gamma
    assert found.curvature_step == pytest.approx(theta**2 / eta / 4)  # s = gamma/(4 rho)


@pytest.mark.parametrize(("name", "eps"), [("completion", 1e-12), ("one-bit", 1e-14)])
def test_guilty_follows_its_theory_but_for_a_hundred_inner_iterations(name, eps):
    found = CONTENDERS["guilty"].make(50.0, name, "paper").resolved(0.0)
    assert (found.eps, found.inner_cap) == (eps, 100)
    assert found.curvature == pytest.approx(2 * math.sqrt(eps))  # alpha = 2 sqrt(rho eps)


def test_conjugate_gradients_are_unguarded_as_in_the_authors_code_only():
    cg = {profile: CONTENDERS["cg"].make(3.0, "completion", profile)
          for profile in ("paper", "authors-code")}  # fmt: skip
    assert cg["paper"].guarded
    assert not cg["authors-code"].guarded
    assert all(each.max_halvings == 10 and each.step_size == 3.0 for each in cg.values())
    assert CONTENDERS["cg"].step_of == "gd"


def test_gd_and_heuristic_ragd_have_nothing_but_a_step_size():
    for name in ("gd", "heuristic-agd"):
        method = CONTENDERS[name].make(7.0, "completion", "paper")
        assert replace(method, step_size=None) == type(method)()
        assert method.step_size == 7.0


def test_unknown_methods_are_refused_by_name_and_known_ones_come_in_their_order():
    with pytest.raises(ValueError, match=r"'sgd' is not one of .* ada-ragd, .* cg"):
        chosen_contenders(["gd", "sgd"])
    assert [each.name for each in chosen_contenders(["cg", " gd"])] == ["gd", "cg"]
    assert len(chosen_contenders(None)) == 7


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
        assert problem.value_and_gradient(x)[0] == problem.value(x)


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
    recorded(task_for(CONTENDERS["gd"], problem, 0.5, LENGTH), tmp_path)
    assert passes.count("value_and_gradient") == LENGTH + 1
    assert passes.count("value") <= 4  # at the start and the end only, though a trace has all


def test_unknown_problems_and_profiles_are_refused(data):
    with pytest.raises(ValueError, match="problem='two-bit' must be one of completion, one-bit"):
        PaperProblem(data, "two-bit")
    with pytest.raises(ValueError, match="profile='mine' must be one of paper, authors-code"):
        PaperProblem(data, "completion", "mine")


# --- data sets ------------------------------------------------------------------------------------


def test_a_data_set_is_a_twin_or_a_file(data):
    assert DataSet.parse("ml-100k") == DataSet("ml-100k")
    assert DataSet.parse("ml-100k").twin
    named = DataSet.parse(f"any-name={data.path}")
    assert (named.name, named.path, named.twin) == ("any-name", data.path, False)
    with pytest.raises(ValueError, match=r"no twin of 'ml-5m'; give its file, ml-5m=PATH, or one"):
        DataSet.parse("ml-5m")
    with pytest.raises(ValueError, match=r"no file nowhere.csv for ml-1m; leave the path out"):
        DataSet.parse("ml-1m=nowhere.csv")
    with pytest.raises(ValueError, match="'ml-1m=' names no file"):
        DataSet.parse("ml-1m=")


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
        history = runs[name].history
        assert len(history) == LENGTH + 1
        return np.diff(history.nfev), np.diff(history.njev)

    values, gradients = spent("gd")
    assert set(values) == {0}
    assert set(gradients) == {1}
    for name in ("ada-ragd", "ada-rhb"):
        values, gradients = spent(name)
        restarts = np.bincount(runs[name].history.restart_rows(), minlength=LENGTH + 1)
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
    recorded(task_for(CONTENDERS["gd"], problem, 0.5, 20), tmp_path)
    assert len(passes) <= 20 + 4  # start, limit and end


def test_an_error_while_a_checkpoint_is_written_does_not_cost_the_one_before(
    problems, monkeypatch, tmp_path
):
    problem = problems["completion", "paper"]
    monkeypatch.setattr("momentous.reproduce.recording.SAVE_EVERY", 0.0)
    task = task_for(CONTENDERS["gd"], problem, 0.5, 30)
    interrupted_at = 15

    def interrupt(nit, fun, norm):
        if nit == interrupted_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded(task, tmp_path, interrupt)
    saved = {path: path.read_bytes() for path in tmp_path.glob("*.checkpoint*")}
    assert saved

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("momentous.core.checkpoint.save", full)
        with pytest.raises(OSError, match="No space left"):
            recorded(task, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.checkpoint*")} == saved
    assert len(recorded(task, tmp_path).history) == 31


def test_the_counts_are_what_was_really_asked_for(problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    for name in ("heuristic-agd", "guilty"):
        asked = calls(problem, monkeypatch)
        run = recorded(task_for(CONTENDERS[name], problem, STEPS[name], LENGTH), tmp_path)
        assert asked.count("gradient") == run.history.njev[-1]
        monkeypatch.undo()


def test_the_objective_of_gd_is_that_of_a_naive_loop(runs, problems):
    problem = problems["completion", "paper"]
    x, history = problem.start(), runs["gd"].history
    for k in range(LENGTH + 1):
        value, gradient = problem.objective.value_and_gradient(x)
        assert history.fun[k] == pytest.approx(value, rel=1e-12)
        assert history.grad_norm[k] == pytest.approx(np.linalg.norm(gradient), rel=1e-10)
        x = x - STEPS["gd"] * gradient


def test_the_objective_of_heuristic_ragd_is_that_of_a_naive_loop(problems, tmp_path):
    problem, eta = problems["completion", "paper"], 1.5  # too long: the momentum is dropped
    task = replace(task_for(CONTENDERS["heuristic-agd"], problem, eta, LENGTH), hopeless=1e9)
    run = recorded(task, tmp_path)
    F = problem.objective
    x = y = problem.start()
    m, restarts = 1, []
    for k in range(1, LENGTH + 1):
        value, gradient = F.value_and_gradient(y)
        assert run.history.fun[k] == pytest.approx(value, rel=1e-10)  # at y, not at x
        assert run.history.grad_norm[k] == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
        x_next = y - eta * gradient
        m = m + 1 if F.value(x_next) <= F.value(x) else 1
        restarts += [k] if m == 1 else []
        x, y = x_next, x_next + (m - 1) / (m + 2) * (x_next - x)
    assert run.history.restart_rows() == restarts
    assert restarts


def test_a_run_is_read_as_it_was_written(runs, tmp_path):
    run = runs["ada-ragd"]
    history = History.from_columns(
        {**run.history.columns(), "fun": np.full(LENGTH + 1, np.nan)},
        [(0, "RESTART", 16.0), (3, "ROLLBACK", math.inf), (3, "RADIUS_REACHED", 0.0123456789)],
    )
    about = replace(run.about, message='ends with "quotes" = signs; and ü', tuning={"trials": 3})
    written = replace(run, about=about, history=history).save(tmp_path / "run.parquet")
    read = Recorded.load(tmp_path / "run.parquet")
    assert read.about == about
    same_rows(read, written)
    assert read.history.time.tobytes() == history.time.tobytes()
    assert np.isnan(read.history.fun).all()
    assert read.path == written.path == tmp_path / "run.parquet"
    assert [each.name for each in tmp_path.iterdir()] == ["run.parquet"]


def test_a_description_says_what_was_run_on_what(runs, data):
    about = runs["ada-rhb"].about
    assert (about.data, about.twin, about.problem) == ("small", False, "completion")
    assert (about.method, about.profile, about.step_size) == ("Ada-RHB-NC", "paper", 0.5)
    assert (about.shape, about.entries, about.rank) == ((24, 16), 240, 10)
    assert about.fingerprint == data.fingerprint
    assert about.parameters["initial_radius"] == 100.0
    assert about.status == "max iterations"
    json.dumps(about.parameters)


# --- files ----------------------------------------------------------------------------------------


def test_a_run_that_is_there_is_not_run_again(problems, monkeypatch, tmp_path):
    task = task_for(CONTENDERS["gd"], problems["completion", "paper"], 0.5, LENGTH)
    first = recorded(task, tmp_path)
    asked = calls(task.problem, monkeypatch)
    again = recorded(task, tmp_path)
    assert not asked
    same_rows(again, first)
    assert again.history.time.tobytes() == first.history.time.tobytes()
    shorter = recorded(replace(task, iterations=5), tmp_path)
    assert len(shorter.history) == LENGTH + 1


def damaged(content: bytes) -> list[bytes]:
    """Torn, zeroed, and with single bits flipped among the columns, which come first."""
    middle = len(content) // 2
    torn = [b"", b"PAR1", content[:middle], content[:-20], content[:middle] + b"\0" * middle]
    places = np.random.default_rng(0).integers(4, len(content) // 4, 20)
    flips = [content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :] for at in places]
    return torn + flips


def test_a_damaged_file_is_run_again(problems, tmp_path):
    task = task_for(CONTENDERS["gd"], problems["completion", "paper"], 0.5, LENGTH)
    whole = recorded(task, tmp_path)
    content = whole.path.read_bytes()
    for bad in damaged(content):
        recording.forget_checkpoint(whole)
        whole.path.write_bytes(bad)
        same_rows(recorded(task, tmp_path), whole)
        same_rows(Recorded.load(whole.path), whole)
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"a": [1.0]}), whole.path)  # somebody else's
    same_rows(recorded(task, tmp_path), whole)


def test_what_makes_another_run_makes_another_file(problems, tmp_path):
    other = DataSet("small", write_ratings(tmp_path / "other.csv", seed=1))
    gd = CONTENDERS["gd"]
    tasks = [
        task_for(gd, problems["completion", "paper"], 0.5, LENGTH),
        task_for(gd, problems["completion", "authors-code"], 0.5, LENGTH),
        task_for(gd, problems["one-bit", "paper"], 0.5, LENGTH),
        task_for(gd, problems["completion", "paper"], 0.50001, LENGTH),
        task_for(CONTENDERS["cg"], problems["completion", "paper"], 0.5, LENGTH),
        task_for(gd, PaperProblem(other, "completion", threads=1), 0.5, LENGTH),
        task_for(gd, problems["completion", "paper"], 0.5, LENGTH, trial=True),
        task_for(gd, problems["completion", "paper"], 0.5, LENGTH + 1, trial=True),
    ]
    assert len({task.path(tmp_path) for task in tasks}) == len(tasks)
    longer = replace(tasks[0], iterations=10**6)
    assert longer.path(tmp_path) == tasks[0].path(tmp_path)  # it is extended


def test_a_hopeless_run_ends_and_stays_ended(problems, monkeypatch, tmp_path):
    task = task_for(CONTENDERS["gd"], problems["completion", "paper"], 1e3, LENGTH)
    run = recorded(task, tmp_path)
    assert run.about.status in ("stopped", "non finite")
    assert len(run.history) < LENGTH
    assert (run.history.fun[:-1] <= run.history.fun[0] * (1 + 1e-8)).all()
    asked = calls(task.problem, monkeypatch)
    same_rows(recorded(task, tmp_path), run)
    assert not asked


# --- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(CONTENDERS))
def test_an_extended_run_begins_as_the_shorter_one(name, runs, problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    task = task_for(CONTENDERS[name], problem, STEPS[name], LENGTH)
    short = recorded(task, tmp_path)
    same_rows(short, runs[name])
    asked = calls(problem, monkeypatch)
    longer = recorded(replace(task, iterations=2 * LENGTH), tmp_path)
    assert len(longer.history) == 2 * LENGTH + 1
    same_rows(longer, short, LENGTH + 1)
    if name != "guilty":  # two an iteration
        assert asked.count("gradient") <= LENGTH + 2  # from the checkpoint, not from the start
    at_once = recorded(replace(task, iterations=2 * LENGTH), tmp_path / "elsewhere")
    same_rows(longer, at_once)


@pytest.mark.parametrize("broken", ["the last", "both", "torn beside"])
def test_a_damaged_checkpoint_costs_time_only(broken, problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    monkeypatch.setattr(recording, "SAVE_EVERY", 0.0)  # after every iteration
    task = task_for(CONTENDERS["heuristic-agd"], problem, 0.3, LENGTH)
    short = recorded(task, tmp_path)
    kept = short.path.with_suffix(".checkpoint")
    before = kept.with_name(kept.name + ".previous")
    assert load_checkpoint(kept, np.asarray)["progress"].nit == LENGTH
    content = kept.read_bytes()
    if broken == "torn beside":
        kept.with_name(kept.name + ".partial").write_bytes(content[:100])
        short.path.with_name(short.path.name + ".partial").write_bytes(b"PAR1")
    else:
        kept.write_bytes(content[: len(content) // 2])
    if broken == "both":
        before.write_bytes(b"")
    asked = calls(problem, monkeypatch)
    longer = recorded(replace(task, iterations=LENGTH + 5), tmp_path)
    assert asked.count("gradient") == (LENGTH + 5 if broken == "both" else 5)
    assert not list(tmp_path.glob("*.partial"))
    same_rows(longer, recorded(replace(task, iterations=LENGTH + 5), tmp_path / "elsewhere"))


def test_killed_between_its_end_and_its_file_a_run_is_not_run_again(
    problems, monkeypatch, tmp_path
):
    problem = problems["completion", "paper"]
    for name, step in (("ada-rhb", 0.5), ("cg", 0.5), ("gd", 10.0)):  # the last one is hopeless
        task = task_for(CONTENDERS[name], problem, step, LENGTH)
        whole = recorded(task, tmp_path)
        whole.path.unlink()
        asked = calls(problem, monkeypatch)
        same_rows(recorded(task, tmp_path), whole)
        assert asked.count("gradient") <= 2  # that of the output, and of one step past the end
        monkeypatch.undo()
    assert whole.about.status == "stopped"


@pytest.mark.parametrize("step", [0.5, 20.0], ids=["to the end", "hopeless"])
def test_ctrl_c_in_any_call_goes_through_and_nothing_is_lost(step, problems, monkeypatch, tmp_path):
    problem = problems["completion", "paper"]
    task = task_for(CONTENDERS["gd"], problem, step, 4)
    whole = recorded(task, tmp_path / "whole")
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
            recorded(task, folder)
        except KeyboardInterrupt:
            monkeypatch.setattr(problem, "gradient", original)
            same_rows(recorded(task, folder), whole)
        else:
            assert count < last  # there are no more calls
            break
    assert last > len(whole.history)


def test_the_two_lowest_go_on_for_the_sake_of_the_lowest_value(data, tmp_path):
    figure = Figure("fig1", ("completion",), 10, 20)
    settings = Settings(methods=["ada-ragd", "jin-agd", "gd", "cg"], trial_iterations=5, threads=1)
    folder = Folder(tmp_path)
    run_figures([figure], [data], settings, folder, Display(shown=False))
    (group,) = folder.groups()
    assert group.plotted == 10
    ends = {run.about.method: run.history.fun[10] for run in group.runs}
    longer = [run.about.method for run in group.runs if len(run.history) > 11]
    assert set(longer) == set(sorted(ends, key=ends.__getitem__)[:2])
    assert group.lowest[0] == min(run.history.fun.min() for run in group.runs)
    assert group.lowest[0] < min(ends.values())
    assert not list(tmp_path.rglob("*.checkpoint*"))


# --- companions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["completion", "one-bit"])
def test_every_sweep_lowers_the_paper_s_objective(name, problems):
    problem = problems[name, "paper"]
    run = run_sweeps(problem, 15)
    history = run.history
    assert len(history) == 15
    assert (np.diff(history.fun) <= 1e-10 * history.fun[0]).all()
    assert history.fun[0] < problem.value(problem.start())
    assert (history.njev > 0).all()
    assert (np.diff(history.njev) == 1).all()
    assert (np.diff(history.time) >= 0).all()
    assert run.about.step_size is None


def test_l_bfgs_b_is_charged_one_value_and_one_gradient_an_evaluation(problems):
    problem = problems["completion", "paper"]
    run = run_quasi_newton(problem, 40)
    rows = np.arange(1, len(run.history) + 1)
    assert run.history.nfev.tolist() == run.history.njev.tolist() == rows.tolist()
    assert run.history.nfev[-1] + run.history.njev[-1] <= 41
    assert run.history.fun[0] == problem.value(problem.start())
    assert run.history.fun[-1] < run.history.fun[0]
    assert np.isnan(run.step_sizes).all()


def test_labels_are_signs_of_rating_minus_mean(data):
    ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1.0, 3.0, 3.0, 5.0])
    assert ratings.signs().values.tolist() == [-1.0, -1.0, -1.0, 1.0]  # -1 at the mean


# --- the demonstration ----------------------------------------------------------------------------


def test_a_second_demo_runs_none_of_the_seven_again_and_leaves_other_figures_alone(
    data, monkeypatch, tmp_path, capsys
):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("momentous.reproduce.report.draw_pictures", lambda *_: {})
    monkeypatch.setattr(demo, "DataSet", partial(DataSet, path=data.path))  # not the twin
    folder, settings = Folder(tmp_path), Settings(methods=["gd"], trial_iterations=4)
    run_figures([Figure("fig1", ("completion",), 8, 8)], [data], settings, folder, Display(False))
    demo.run_demo(tmp_path, 10)
    groups = folder.groups()
    found = [(group.figure, group.runs[0].about.problem, len(group.runs)) for group in groups]
    assert found == [("demo", "completion", 9), ("demo", "one-bit", 9), ("fig1", "completion", 1)]
    before = {run.path: run.path.stat().st_mtime_ns for group in groups for run in group.runs}
    asked = calls(PaperProblem, monkeypatch, ("gradient",))
    capsys.readouterr()
    demo.run_demo(tmp_path, 10)
    assert not asked
    again = [run.path for group in folder.groups() for run in group.runs]
    assert again == list(before)
    beside = [path for path in again if path.stat().st_mtime_ns != before[path]]
    assert len(beside) == 4  # L-BFGS-B and the sweeps
    assert "after 10 iterations" in " ".join(capsys.readouterr().out.split())
