"""`momentous reproduce` and `momentous tune`: killed anywhere they go on; what is wrong is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import PAPER_METHODS
from momentous.lab.paper.plan import FIGURES
from momentous.lab.paper.problems import PROBLEMS, PROFILES, DataSet, PaperProblem
from momentous.lab.paper.runs import PaperRun, PaperRunInfo, load_run
from momentous.lab.record import RunRecord
from paper_runs import a_record, an_info, same_rows, write_ratings

pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")
testing = pytest.importorskip("click.testing")

JIN = "Jin's AGD"
SHORT = ("--iterations", "8", "--trial-iterations", "4", "--threads", "1")


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> Path:
    return write_ratings(tmp_path_factory.mktemp("data") / "small.csv")


def momentous(*arguments, **options):
    """The command, in this process; what goes wrong unexpectedly goes through."""
    from momentous.cli.app import momentous

    done = testing.CliRunner().invoke(momentous, [str(each) for each in arguments], **options)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture(autouse=True, scope="module")
def _without_pictures():
    """They take most of the time, and have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("momentous.lab.report.documents.draw_pictures", lambda *_, **__: {})
        yield


@contextmanager
def counted() -> Iterator[list[int]]:
    """One entry for every gradient that is taken."""
    taken, original = [], PaperProblem.gradient

    def counting(self, x):
        taken.append(1)
        return original(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaperProblem, "gradient", counting)
        yield taken


@pytest.fixture
def gradients() -> Iterator[list[int]]:
    with counted() as taken:
        yield taken


# --- killed ---------------------------------------------------------------------------------------

# A process that runs the command in children, each of which is killed in another place: the n-th
# time that a function is called, before or after it does its work.
DRIVER = """
import importlib, json, os, signal, sys, warnings
import momentous.lab.studies, momentous.cli.reproduce, pyarrow.parquet
from momentous.lab.paper import runs
from momentous import cli
warnings.simplefilter("ignore")
runs.SAVE_EVERY = 0.0  # after every iteration
os.fsync = lambda file: None  # the machine goes on
children = []
for folder, module, name, count, when, which, arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        owner = importlib.import_module(module)
        for part in name.split(".")[:-1]:
            owner = getattr(owner, part)
        name = name.split(".")[-1]
        original, calls = getattr(owner, name), 0
        def dying(*given, **named):
            global calls
            calls += 1
            if calls == count and when == "before":
                os.kill(os.getpid(), getattr(signal, which))
            made = original(*given, **named)
            if calls == count and when == "after":
                os.kill(os.getpid(), getattr(signal, which))
            return made
        setattr(owner, name, dying)
        sys.argv = ["momentous", *arguments]
        sys.stdout = open(folder + ".out", "w")
        sys.stderr = open(folder + ".err", "w")
        os.dup2(sys.stderr.fileno(), 2)
        cli.main()
        os._exit(99)
    children.append(child)
for child in children:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

GRADIENT = ("momentous.lab.paper.problems", "PaperProblem.gradient")
RUN_SAVED = ("momentous.lab.record", "RunRecord.save")
RENAMED = ("os", "replace")
KILLS = {
    "in a run": (*GRADIENT, -10, "after", "SIGKILL"),  # the tenth last
    "between files": (*RUN_SAVED, 9, "after", "SIGKILL"),
    "with torn files": (*RENAMED, 31, "before", "SIGKILL"),
    "by Ctrl-C": (*GRADIENT, -15, "before", "SIGINT"),
}


def arguments_for(ratings: Path, out: Path) -> list[str]:
    return ["reproduce", "fig1", "--data", f"small={ratings}", "--methods", "ada-ragd,gd",
            "--iterations", "20", "--trial-iterations", "4", "--threads", "1",
            "--out", str(out)]  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(ratings, tmp_path_factory) -> tuple[dict[str, PaperRun], int]:
    """All files, and how many gradients they took."""
    out = tmp_path_factory.mktemp("whole")
    with counted() as taken:
        assert momentous(*arguments_for(ratings, out)).exit_code == 0
    return files(out), len(taken)


def files(out: Path) -> dict[str, PaperRun]:
    return {
        str(p.relative_to(out)): RunRecord.load(p, PaperRunInfo)
        for p in sorted(out.rglob("*.parquet"))
    }


@pytest.fixture(scope="module")
def killed(ratings, uninterrupted, tmp_path_factory) -> dict[str, tuple[Path, int]]:
    """A folder for every way to be killed, and the exit status."""
    top = tmp_path_factory.mktemp("killed")
    folders = {name: top / name.replace(" ", "-") for name in KILLS}
    plan = []
    for name, folder in folders.items():
        *function, count, when, which = KILLS[name]
        count += uninterrupted[1] + 1 if count < 0 else 0
        given = arguments_for(ratings, folder)
        plan.append((str(folder), *function, count, when, which, given))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(plan)],
        capture_output=True, text=True, timeout=100, check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    statuses = [int(line) for line in done.stdout.split()]
    return {
        name: (folder, status)
        for (name, folder), status in zip(folders.items(), statuses, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("where", list(KILLS))
def test_killed_anywhere_the_same_command_goes_on(where, killed, uninterrupted, ratings, gradients):
    out, status = killed[where]
    assert status == (130 if "Ctrl-C" in where else -9)
    assert not (out / "index.html").exists()
    had = files(out) if out.exists() else {}
    kept = [each for each in out.rglob("*.checkpoint*") if not each.name.endswith(".partial")]
    assert had or kept
    done = momentous(*arguments_for(ratings, out))
    assert done.exit_code == 0, done.output
    assert (out / "index.html").exists()
    expected, now = uninterrupted[0], files(out)
    assert now.keys() == expected.keys()
    for name, run in now.items():
        same_rows(run, expected[name])
        if name in had:  # not run again, perhaps extended
            before = had[name].time
            assert before.tobytes() == run.time[: before.size].tobytes(), name
    if where == "in a run":  # lost is the step that was under way, not the run
        assert 9 <= len(gradients) <= 12
    assert not list(out.rglob("*.partial"))
    assert not list(out.rglob("*.checkpoint*"))


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(killed):
    for where in KILLS:
        if "Ctrl-C" in where:
            told = Path(f"{killed[where][0]}.err").read_text()
            assert "what was run is kept: the same command goes on from there" in told
            assert told.endswith("interrupted\n")
            assert "Traceback" not in told


# --- what can be asked for ------------------------------------------------------------------------


def said(*arguments) -> str:
    """The complaint about a command that cannot be carried out, on one line."""
    done = momentous(*arguments)
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.split())


def test_several_data_sets_may_follow_the_option(ratings, tmp_path):
    other = write_ratings(tmp_path / "other.csv", seed=1)
    out = tmp_path / "out"
    done = momentous("reproduce", "fig1", "--methods", "gd", *SHORT, "--out", out,
                     "--data", f"ml-100k={ratings}", f"other={other}")  # fmt: skip
    assert done.exit_code == 0, done.output
    groups = StudyFolder(out).run_sets()
    assert [group.runs[0].info.data_name for group in groups] == ["ml-100k", "other"]
    prints = [group.runs[0].info.fingerprint for group in groups]
    assert prints == [DataSet("x", path).fingerprint for path in (ratings, other)]


def test_the_names_in_the_help_are_those_of_the_laboratory():
    from momentous.cli import reproduce, tune

    options = {each.name: each for each in (*reproduce.command.params, *tune.command.params)}
    assert tuple(options["profile"].type.choices) == PROFILES
    assert list(options["problems"].type.choices) == list(PROBLEMS)
    assert options["methods"].help.endswith(f": {', '.join(PAPER_METHODS)}.")
    assert (*FIGURES, "theorems") == reproduce.PARTS


def test_what_is_wrong_is_said_before_anything_is_run(ratings, tmp_path):
    out = tmp_path / "out"
    data = ("--data", f"small={ratings}")
    given = ("--out", out, *SHORT)
    assert "'sgd' is not one of the paper's methods" in said(
        "reproduce", "fig1", "--methods", "gd,sgd", *data, *given
    )
    assert "there is no twin of 'ml-5m'" in said("reproduce", "fig1", "--data", "ml-5m", *given)
    told = said("reproduce", "fig1", "fig4", *given)
    assert "'fig4' is nothing to reproduce" in told
    assert "fig3, theorems" in told
    assert "cg takes the step size of gd" in said("tune", "--methods", "cg", *data, *given)
    assert "needs a suffix" in said("reproduce", "fig1", *data, *given, "--account", "account")
    assert "there is no file" in said("tune", "--data", "ml-1m=nowhere.csv", *given)
    assert "'ml-1m=' names no file" in said("tune", "--data", "ml-1m=", *given)
    assert "'sgd' is not one" in said("tune", "--methods", "sgd", *data, *given)
    assert "small is given 2 times" in said("tune", *data, f"small={ratings}", *given)
    assert "say what to reproduce: fig1" in said("reproduce", f"small={ratings}", *given)
    assert not out.exists()
    told = said("reproduce", "fig3", "--methods", "gd", *data, *given)
    assert "none of the methods gd is part of fig3" in told
    told = said("reproduce", "fig1", "fig3", "--methods", "gd", *data, *given)
    assert "none of the methods gd is part of fig3" in told


def test_a_gpu_that_is_not_there_is_one_sentence(ratings, tmp_path):
    from momentous.lowrank.backends.device import gpu_available

    if gpu_available():
        pytest.skip("there is a GPU")
    out = tmp_path / "out"
    data = f"x={ratings}"
    done = momentous("reproduce", "fig1", "--data", data, "--device", "cuda", "--out", out)
    assert done.exit_code in (1, 2)
    assert "needs cupy, which is not installed" in done.stderr or "no NVIDIA GPU" in done.stderr
    assert not out.exists()


def test_without_a_report_only_runs_are_made_and_the_report_follows(ratings, tmp_path):
    given = ("--data", f"small={ratings}", "--methods", "gd", *SHORT, "--out", tmp_path)
    done = momentous("reproduce", "fig1", *given, "--no-report")
    assert done.exit_code == 0, done.output
    assert f"The runs are in {tmp_path}" in done.output
    assert not (tmp_path / "index.html").exists()
    assert momentous("reproduce", "report", "--out", tmp_path).exit_code == 0
    assert (tmp_path / "index.html").exists()
    told = said("reproduce", "fig1", *given, "--no-report", "--account", tmp_path / "a.md")
    assert "leave --no-report out" in told


def test_a_file_that_holds_no_ratings_is_no_traceback(tmp_path):
    (tmp_path / "bad.csv").write_text("user,item,rating\n1,2,three\n")
    told = said("reproduce", "fig1", "--data", f"x={tmp_path / 'bad.csv'}", "--out", tmp_path / "o")
    assert "bad.csv" in told
    assert "three" in told


def test_a_report_of_nothing_says_what_to_do(tmp_path):
    told = said("reproduce", "report", "--out", tmp_path / "none")
    assert "nothing has been run in" in told
    assert "run one of fig1, fig2, fig3, theorems first" in told
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    assert "nothing has been run in" in said("reproduce", "report", "--out", tmp_path / "empty")


def test_a_report_of_runs_that_are_gone_names_them(ratings, tmp_path):
    assert momentous("reproduce", "fig1", "--methods", "gd", *SHORT, "--out", tmp_path,
                     "--data", f"small={ratings}").exit_code == 0  # fmt: skip
    (run,) = StudyFolder(tmp_path).run_sets()[0].runs
    run.path.unlink()
    told = said("reproduce", "report", "--out", tmp_path)
    assert run.path.name in told
    assert "reproduce its figure again" in told


@pytest.mark.slow
def test_two_figures_share_a_folder_and_another_length_replaces_the_first(
    ratings, tmp_path, gradients
):
    given = ("--data", f"small={ratings}", "--methods", "ada-ragd,gd", "--out", tmp_path,
             "--threads", "1", "--trial-iterations", "4")  # fmt: skip
    assert momentous("reproduce", "fig2", "fig1", *given, "--iterations", "8").exit_code == 0
    first = StudyFolder(tmp_path).run_sets()
    assert [(group.figure, group.plotted) for group in first] == [("fig1", 8), ("fig2", 8)]
    assert [group.runs[0].info.problem for group in first] == ["completion", "one-bit"]
    gradients.clear()
    done = momentous("reproduce", "report", "fig1", "fig2", *given, "--iterations", "8")
    assert done.exit_code == 0
    assert not gradients  # all of it was there
    assert done.output.count("fig1: small, matrix completion") >= 1
    assert momentous("reproduce", "fig1", *given, "--iterations", "12").exit_code == 0
    second = StudyFolder(tmp_path).run_sets()
    assert [(group.figure, group.plotted) for group in second] == [("fig1", 12), ("fig2", 8)]
    for run in second[0].runs:
        assert len(run) > 12
        assert run.info.tuning["trials"] > 0
    gradients.clear()
    assert momentous("reproduce", "fig1", *given, "--iterations", "8").exit_code == 0
    assert not gradients
    assert StudyFolder(tmp_path).run_sets()[0].plotted == 8


def test_the_long_run_is_of_the_adaptive_methods_on_both_problems(ratings, tmp_path):
    done = momentous("reproduce", "fig3", "--data", f"small={ratings}", *SHORT, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    groups = StudyFolder(tmp_path).run_sets()
    assert [group.runs[0].info.problem for group in groups] == ["completion", "one-bit"]
    for group in groups:
        assert [run.info.method for run in group.runs] == ["Ada-RAGD-NC", "Ada-RHB-NC"]
        assert all(len(run) == 9 for run in group.runs)  # f* is that of the runs shown


@pytest.mark.slow
def test_tune_prints_what_it_found_and_reproduce_takes_it_over(ratings, tmp_path, gradients):
    given = ("--data", f"small={ratings}", "--out", tmp_path, "--threads", "1",
             "--trial-iterations", "4", "--methods", "gd,jin-agd,cg")  # fmt: skip
    done = momentous("tune", *given, "--problem", "completion", "--iterations", "4")
    assert done.exit_code == 0, done.output
    rows = [line for line in done.stdout.splitlines() if "small" in line]
    assert len(rows) == 2  # CG takes the step size of GD
    spent = len(gradients)
    gradients.clear()
    assert momentous("reproduce", "fig1", *given, "--iterations", "8").exit_code == 0
    (group,) = StudyFolder(tmp_path).run_sets()
    steps = {run.info.method: run.info for run in group.runs}
    for row in rows:  # the same search; to its cost comes what does not last longer
        tuning = steps["GD" if " GD " in row else JIN].tuning
        trials, longer, values, gradient_count, _ = row.split()[-5:]
        assert (tuning["trials"], tuning["longer runs"]) == (int(trials), int(longer))
        assert tuning["values"] >= int(values)
        assert tuning["gradients"] >= int(gradient_count)
    assert steps["CG"].step_size == steps["GD"].step_size  # also where GD's did not last
    assert steps["CG"].step_from == "tuned for GD"
    assert len(gradients) < spent


def test_step_sizes_that_do_not_last_are_part_of_what_the_search_cost(ratings, tmp_path):
    given = ("--data", f"small={ratings}", "--methods", "gd", *SHORT, "--out", tmp_path)
    for _ in range(2):  # what is read from files costs the same
        assert momentous("reproduce", "fig1", *given).exit_code == 0
        ((shown,),) = (group.runs for group in StudyFolder(tmp_path).run_sets())
        others = [run for run in files(tmp_path).values() if run.path != shown.path]
        assert max(run.info.step_size for run in others) > shown.info.step_size
        assert any(run.status == "stopped" and len(run) > 5 for run in others)
        assert shown.info.tuning["gradients"] == sum(run.njev[-1] for run in others)
        assert shown.info.tuning["values"] == sum(run.nfev[-1] for run in others)


def test_profiles_make_runs_and_groups_of_their_own(ratings, tmp_path):
    given = ("--data", f"small={ratings}", "--methods", "gd", *SHORT, "--out", tmp_path)
    for profile in ("paper", "authors-code"):
        assert momentous("reproduce", "fig1", *given, "--profile", profile).exit_code == 0
    groups = {group.runs[0].info.profile: group for group in StudyFolder(tmp_path).run_sets()}
    assert sorted(groups) == ["authors-code", "paper"]
    (paper,), (code,) = groups["paper"].runs, groups["authors-code"].runs
    assert paper.path != code.path
    assert paper.fun[3] != code.fun[3]
    assert groups["authors-code"].title.endswith(", authors-code")
    assert "authors-code" not in groups["paper"].title


def test_the_account_names_the_command_without_paths(ratings, tmp_path):
    page = tmp_path / "account.md"
    given = ("--data", f"small={ratings}", "--methods", "gd", *SHORT, "--out", tmp_path / "out")
    assert momentous("reproduce", "fig1", *given, "--account", page).exit_code == 0
    told = " ".join(page.read_text().split())
    assert "momentous reproduce fig1 --data small=... " in told
    assert "--methods gd" in told
    assert str(tmp_path) not in told


def test_running_some_methods_again_leaves_the_others_in_the_group(ratings, tmp_path):
    given = ("--data", f"small={ratings}", *SHORT, "--out", tmp_path)
    assert momentous("reproduce", "fig1", *given, "--methods", "gd,ada-rhb").exit_code == 0
    assert momentous("reproduce", "fig1", *given, "--methods", "gd").exit_code == 0
    (group,) = StudyFolder(tmp_path).run_sets()
    assert sorted(run.info.method for run in group.runs) == ["Ada-RHB-NC", "GD"]
    longer = ("--iterations", "10", "--methods", "gd")
    assert momentous("reproduce", "fig1", *given, *longer).exit_code == 0
    (group,) = StudyFolder(tmp_path).run_sets()  # shown further, so that the shorter do not fit
    assert [run.info.method for run in group.runs] == ["GD"]


def test_two_at_work_in_one_folder_are_kept_apart(ratings, tmp_path):
    pytest.importorskip("fcntl")
    given = ("--data", f"small={ratings}", *SHORT, "--methods", "gd", "--out", tmp_path)
    with StudyFolder(tmp_path).locked():
        assert "another process is at work" in said("reproduce", "fig1", *given)
    assert momentous("reproduce", "fig1", *given).exit_code == 0


def test_a_damaged_index_is_named(ratings, tmp_path):
    (tmp_path / "study.json").write_text("[{")
    assert "study.json is damaged" in said("reproduce", "report", "--out", tmp_path)


# --- files of others ------------------------------------------------------------------------------


def test_names_in_run_files_cannot_act_on_the_terminal(ratings, tmp_path):
    arguments = ("--methods", "gd", "--iterations", 4, "--trial-iterations", 2)
    done = momentous("reproduce", "fig1", "--data", f"small={ratings}", *arguments,
                     "--out", tmp_path)  # fmt: skip
    assert done.exit_code == 0, done.output
    evil = "\x1b[31mGD\x1b[0m"
    for path in (tmp_path / "runs").glob("*.parquet"):
        run = load_run(path)
        info = replace(run.info, method=evil, data=evil, profile=evil)
        replace(run, info=info).save(path)
    done = momentous("reproduce", "report", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "x1b[31mGD" in done.stdout


@pytest.mark.parametrize(
    ("key", "value"), [("figure", "../../elsewhere"), ("plotted", -3), ("runs", [])]
)
def test_an_index_that_would_write_elsewhere_or_show_nothing_is_refused(key, value, tmp_path):
    entry = {"figure": "fig1", "data": "small", "twin": False, "problem": "completion",
             "profile": "paper", "device": "CPU", "plotted": 4,
             "runs": {"GD": "runs/gd.parquet"}}  # fmt: skip
    content = {"kind": "momentous study", "run_sets": [{**entry, key: value}]}
    (tmp_path / "study.json").write_text(json.dumps(content))
    assert f"study.json is damaged ({key} is" in said("reproduce", "report", "--out", tmp_path)


def test_a_run_of_an_unknown_problem_is_refused(tmp_path):
    (tmp_path / "runs").mkdir()
    a_record(an_info(problem="../../elsewhere"), None).save(tmp_path / "runs" / "gd.parquet")
    entry = {"figure": "demo", "data": "small", "twin": False, "problem": "completion",
             "profile": "paper", "device": "CPU", "plotted": 4,
             "runs": {"GD": "runs/gd.parquet"}}  # fmt: skip
    content = {"kind": "momentous study", "run_sets": [entry]}
    (tmp_path / "study.json").write_text(json.dumps(content))
    assert "its problem is '../../elsewhere'" in said("reproduce", "report", "--out", tmp_path)
