"""The commands about ratings, run as a person would run them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner

from momentous.cli.app import momentous
from momentous.cli.fit import show_fit
from momentous.lowrank import MatrixCompletion, Ratings
from momentous.lowrank.backends import BACKENDS
from momentous.lowrank.backends.numpy import NumpyBackend
from momentous.lowrank.data.write import write_ratings
from momentous.lowrank.losses import LOSSES, Squared
from momentous.lowrank.model import load_model
from momentous.lowrank.solvers.fit import FitProgress


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments, code=0, text=None):
    """What a command prints; it must end with this status, and never with a traceback."""
    done = CliRunner().invoke(momentous, [str(one) for one in arguments], input=text)
    assert done.exit_code == code, done.output + repr(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.fixture
def ratings_file():
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.choice(40 * 25, 500, replace=False), 25)
    values = np.clip(np.round(3 + rng.standard_normal(40)[users] + 0.3 * (items % 5)), 1, 5)
    lines = [f"u{u},{i},{v:g}" for u, i, v in zip(users, items, values, strict=True)]
    Path("ratings.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    return "ratings.csv"


FAST = ("--rank", 2, "--threads", 1, "--backend", "numpy")  # nothing is compiled


@pytest.fixture
def model(ratings_file):
    run("fit", ratings_file, *FAST, "--out", "model")
    return "model"


@pytest.mark.parametrize("users", [["u0", "nobody"], ["nobody"]])
def test_recommend_gives_all_users_what_python_does_and_names_the_unknown(model, users):
    done = run("recommend", model, *users, "-n", 2, "--json")
    fitted = MatrixCompletion.load(model)
    found = json.loads(done.stdout)
    for user in users:
        assert [item for item, _ in found[user]] == fitted.recommend(user, 2).items.tolist()
    assert "not in model: 'nobody', for whom" in done.stderr
    assert list(found) == users
    assert "its 40 users are 'u0', 'u1', 'u10' and so on" in done.stderr


def test_pairs_are_counted_for_the_implicit_loss():
    Path("clicks.csv").write_text("user,item\nann,x\nann,x\nann,y\nbob,y\nbob,z\n")
    facts = run("fit", "clicks.csv", "--loss", "implicit", *FAST, "--out", "m", "--json").stdout
    assert json.loads(facts)["ratings"] == 4
    assert load_model("m")[0].seen.values.tolist() == [2.0, 1.0, 1.0, 1.0]
    Path("ratings.csv").write_text("user,item,rating\nann,x,5\nann,y,\nbob,y,1\n")
    named = run("data", "info", "ratings.csv", "--columns", "user,item", "--json").stdout
    assert json.loads(named)["ratings"] == 3
    assert "--missing drop" in run("data", "info", "ratings.csv", code=1).stderr
    left = run("data", "info", "ratings.csv", "--missing", "drop", "--json").stdout
    assert json.loads(left)["ratings"] == 2


def test_similar_names_the_nearest_of_each_id(model):
    fitted, _ = load_model(model)
    found = json.loads(run("similar", model, 3, 4, "-n", 2, "--json").stdout)
    assert list(found) == ["3", "4"]
    assert [one for one, _ in found["3"]] == fitted.similar_columns("3", 2).ids.tolist()
    users = run("similar", model, "u1", "--users", "-n", 1).stdout.splitlines()
    assert users[0] == "u1:"
    assert users[1].split()[-1] == fitted.similar_rows("u1", 1).ids[0]
    assert "the column id 'zzz'" in run("similar", model, "zzz", code=1).stderr


def test_explain_names_users_that_are_known_and_no_option_that_it_lacks(model):
    said = run("explain", model, "nobody", 3, code=1).stderr
    assert "the row id 'nobody'" in said
    assert "'u0', 'u1', 'u10' and so on; fit or fold it in" in said
    assert "--unknown" not in said


def test_explain_sums_up_to_the_score(model):
    facts = json.loads(run("explain", model, "u1", 3, "-n", 100, "--json").stdout)
    score = load_model(model)[0].scores([["u1", "3"]])[0]
    assert facts["score"] == pytest.approx(score, rel=1e-5)
    parts = [part for _, part in facts["ratings"]]
    assert facts["rest"] + sum(parts) == pytest.approx(score, rel=1e-5)
    shown = run("explain", model, "u1", 3, "-n", 2).stdout.splitlines()
    assert [line.split()[0] for line in shown[:3]] == ["score", "rest", "ratings"]
    assert len(shown) == 5


def test_fold_in_serves_users_who_were_not_in_the_fit(ratings_file, model):
    Path("new.csv").write_text("user,item,rating\nann,1,5\nann,2,1\nann,999,3\nu1,3,4\n")
    done = run("fold-in", model, "new.csv", "--out", "more", "--json")
    expected = {"ratings": 4, "new_users": 1, "users_again": 1, "unknown_items": 1}
    assert json.loads(done.stdout) == {"model": "more"} | expected
    before, after = load_model(model)[0], load_model("more")[0]
    assert len(after.rows) == len(before.rows) + 1
    folded = before.fold_in([["ann", "1"], ["ann", "2"]], [5.0, 1.0])
    pair = [["ann", "7"]]
    assert after.predict(pair)[0] == pytest.approx(folded.predict(pair)[0], rel=1e-6)
    assert "ann" in run("recommend", "more", "ann").stdout
    assert "does not exist" in run("fold-in", model, "new.csv", "--out", "no/m", code=2).stderr


def test_from_a_file_to_a_model_to_predictions(ratings_file):
    told = run("fit", ratings_file, *FAST, "--out", "model")
    assert "objective" in told.stdout
    assert "training error" in told.stdout
    assert "    1  objective" in told.stderr
    fitted, extra = load_model("model")
    assert fitted.rank == 2
    assert extra["parameters"]["rank"] == 2
    facts = json.loads(run("evaluate", "model", ratings_file, "--json").stdout)
    assert facts["ratings"] == 500
    assert 0 < facts["mae"] < facts["rmse"] < 1.0
    predicted = run("predict", "model", "-", text="user,item\nu1,3\nu2,4\nnobody,3\n").stdout
    rows = [line.split(",") for line in predicted.splitlines()]
    assert rows[0] == ["user", "item", "prediction"]
    assert [row[:2] for row in rows[1:]] == [["u1", "3"], ["u2", "4"], ["nobody", "3"]]
    assert float(rows[1][2]) == pytest.approx(fitted.predict([["u1", "3"]])[0], rel=1e-5)
    best = json.loads(run("recommend", "model", "u1", "u2", "-n", 3, "--json").stdout)
    assert list(best) == ["u1", "u2"]
    assert [item for item, _ in best["u1"]] == fitted.recommend("u1", 3).items.tolist()
    assert "u1:" in run("recommend", "model", "u1").stdout


def test_json_is_all_that_is_printed_when_asked_for(ratings_file):
    done = run("fit", ratings_file, *FAST, "--out", "model", "--json", "--validation-share", 0.2)
    facts = json.loads(done.stdout)
    assert done.stderr == ""
    assert facts["held_out_error"] > 0
    assert facts["users"] == 40
    assert "interrupted" not in facts


def test_progress_tells_the_held_out_error_and_restarts(ratings_file):
    lines = run(
        "fit", ratings_file, *FAST, "--out", "m", "--validation-share", 0.2
    ).stderr.splitlines()
    assert all("held out" in line and "restarts" in line for line in lines)


def test_a_loss_and_a_backend_that_were_added_are_taken_by_every_command(ratings_file, monkeypatch):
    class Doubled(Squared):
        name = "doubled"

    monkeypatch.setitem(LOSSES, "doubled", Doubled)
    monkeypatch.setitem(BACKENDS, "mine", NumpyBackend)
    run("fit", ratings_file, *FAST, "--loss", "doubled", "--backend", "mine", "--out", "model")
    assert load_model("model")[0].loss == Doubled()
    assert json.loads(run("evaluate", "model", ratings_file, "--json").stdout)["rmse"] > 0
    run("predict", "model", "-", text="u1,3\n")
    run("recommend", "model", "u1")


def test_counts_by_the_implicit_loss(ratings_file):
    run("fit", ratings_file, *FAST, "--loss", "implicit", "--out", "model")
    assert load_model("model")[0].loss.name == "implicit"
    assert json.loads(run("evaluate", "model", ratings_file, "--json").stdout)["ratings"] == 500
    assert len(json.loads(run("recommend", "model", "u1", "-n", 3, "--json").stdout)["u1"]) == 3


@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_labels_above_the_mean_by_the_logistic_loss(ratings_file, method):
    run("fit", ratings_file, *FAST, "--loss", "logistic", "--method", method, "--out", "model")
    facts = json.loads(run("evaluate", "model", ratings_file, "--json").stdout)
    assert facts["accuracy"] > 0.7
    assert facts["log_loss"] < 0.6
    probability = run("predict", "model", "-", text="u1,3\n").stdout.splitlines()[1].split(",")[2]
    assert 0 < float(probability) < 1


def test_a_model_of_the_command_is_an_estimator(model):
    pytest.importorskip("sklearn")
    from momentous.lowrank import MatrixCompletion, OneBitMatrixCompletion

    estimator = MatrixCompletion.load(model)
    assert estimator.rank == 2
    assert estimator.recommend("u1", n=2).items.size == 2
    run("fit", "ratings.csv", *FAST, "--loss", "logistic", "--out", "labels")
    classifier = OneBitMatrixCompletion.load("labels")
    facts = json.loads(run("evaluate", "labels", "ratings.csv", "--json").stdout)
    ratings = Ratings.read("ratings.csv")
    assert classifier.score(ratings) == pytest.approx(facts["accuracy"])
    again = OneBitMatrixCompletion(**classifier.get_params()).fit(ratings)
    np.testing.assert_array_equal(again.row_factors_, classifier.row_factors_)


def test_resuming_goes_on_from_the_model_with_its_parameters(ratings_file):
    options = ("--ridge", 0.01, "--no-biases", *FAST)
    run("fit", ratings_file, *options, "--max-iterations", 3, "--tol", 0, "--out", "model")
    before = load_model("model")[1]
    facts = json.loads(run("fit", ratings_file, "--out", "model", "--resume", "--json").stdout)
    fitted, after = load_model("model")
    assert facts["objective"] < before["objective"]
    assert after["parameters"] == before["parameters"]
    assert fitted.penalty.ridge == 0.01
    assert not fitted.penalty.biases
    run("fit", ratings_file, "--out", "model", "--resume", "--loss", "logistic", code=2)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_saves_the_model_and_says_how_to_go_on():
    write_ratings(Ratings.twin("ml-100k"), "my ratings.csv")
    reading = ["--columns", "user,item,rating", "--format", "csv", "--skip-bad"]
    command = [sys.executable, "-m", "momentous", "fit", "my ratings.csv", "--out", "model",
               "--tol", "0", "--max-iterations", "1000000", "--rank", "2", "--threads", "1",
               *reading]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stderr.readline().split()[0] == b"1"  # the fit is under way
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert b"Traceback" not in told
    advice = shlex.split(told.decode().split("Go on with: ")[1])
    assert advice == ["momentous", "fit", "my ratings.csv", "--out", "model", "--resume", *reading]
    facts = json.loads(run(*advice[1:], "--max-iterations", 1, "--json").stdout)
    assert facts["iterations"] == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_fit_that_is_killed_goes_on_from_its_last_save():
    """The signals that end it as Ctrl-C does are in `test_errors`."""
    write_ratings(Ratings.twin("ml-100k"), "ratings.csv")
    command = [sys.executable, "-m", "momentous", "fit", "ratings.csv", "--out", "model", "--tol",
               "0", "--max-iterations", "1000000", "--rank", "2", "--threads", "1",
               "--save-every", "0"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for number in range(1, 8):  # the fit is under way
            assert process.stderr.readline().split()[0] == b"%d" % number
        process.send_signal(signal.SIGKILL)
        _, told = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, told
    before = load_model("model")[1]
    assert before["n_iter"] >= 6
    run("fit", "ratings.csv", "--out", "model", "--resume", "--max-iterations", 3)
    assert load_model("model")[1]["objective"] <= before["objective"]


def test_a_full_disk_during_a_fit_costs_a_warning_only(ratings_file, monkeypatch):
    from momentous.lowrank import tasks

    real, calls = tasks.save_model, []

    def full_at_first(*arguments):
        calls.append(1)
        if len(calls) <= 2:
            raise OSError(28, "No space left on device", "model")
        real(*arguments)

    monkeypatch.setattr(tasks, "save_model", full_at_first)
    done = run("fit", ratings_file, *FAST, "--max-iterations", 5, "--tol", 0, "--save-every", 0,
               "--out", "model")  # fmt: skip
    assert "could not be saved meanwhile" in done.stderr
    assert load_model("model")[1]["n_iter"] == 5


def test_half_sweeps_and_the_start_can_be_chosen(ratings_file):
    objectives = []
    for more in (), ("--half-sweeps", "cg"), ("--start-scale", 1e-3):
        run("fit", ratings_file, *FAST, "--max-iterations", 2, *more, "--out", "model")
        objectives.append(load_model("model")[1]["objective"])
    assert len(set(objectives)) == 3


def test_any_delimiter_can_be_named():
    write_ratings(Ratings.twin("ml-100k"), "ratings.csv")
    text = Path("ratings.csv").read_text().replace(",", "#")
    Path("ratings.txt").write_text(text)
    facts = json.loads(run("data", "info", "ratings.txt", "--delimiter", "#", "--json").stdout)
    assert facts["ratings"] == 100_000


def test_a_resumed_fit_of_labels_keeps_their_threshold(ratings_file):
    run("fit", ratings_file, *FAST, "--loss", "logistic", "--max-iterations", 3, "--out", "model")
    threshold = load_model("model")[1]["threshold"]
    ratings = Ratings.read(ratings_file)
    write_ratings(ratings.with_values(ratings.values + 1.0), "higher.csv")
    run("fit", "higher.csv", "--max-iterations", 3, "--resume", "--out", "model")
    assert load_model("model")[1]["threshold"] == threshold


def test_resume_without_a_model_begins_anew(ratings_file):
    done = run("fit", ratings_file, *FAST, "--out", "model", "--resume")
    assert "no model model yet to resume" in done.stderr
    assert load_model("model")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("fit", "nothing.csv", "--out", "m"), 1, "nothing.csv"),
        (("fit", "ratings.csv"), 2, "--out"),
        (("fit", "ratings.csv", "--out", "m", "--rank", 0), 2, "--rank"),
        (("fit", "ratings.csv", "--out", "m", "--method", "nonsense"), 2, "nonsense"),
        (("fit", "ratings.csv", "--out", "m", "--loss", "odd"), 2, "known are squared, logistic"),
        (("fit", "ratings.csv", "--out", "m", "--backend", "odd"), 2, "auto, numba, numpy"),
        (("fit", "ratings.csv", "--out", "m", "--device", "tpu"), 2, "'cpu', 'cuda', 'auto'"),
        (("fit", "ratings.csv", "--out", "m", "--backend", "cuda"), 2, "take --device cuda"),
        (("fit", "ratings.csv", "--out", "-"), 2, "a model is a file"),
        (("fit", "ratings.csv", "--out", "no/m"), 2, "folder no does not exist"),
        (("fit", "ratings.csv", "--out", "ratings.csv"), 2, "not overwritten"),
        (("fit", "ratings.csv", "--out", "m", "--columns", "a,b,c"), 1, "'a'"),
        (("fit", "ratings.csv", "--out", "m", "--format", "odd"), 1, "odd"),
        (("fit", "bad.csv", "--out", "m"), 1, "bad.csv, line 3"),
        (("evaluate", "ratings.csv", "ratings.csv"), 1, "not an archive of momentous"),
        (("fit", "plain.csv", "--out", "m"), 1, "--columns user,item,rating, or number"),
        (("fit", "ratings.csv", "--out", "m", "--columns", "0"), 2, "3 or 2 different"),
        (("recommend", "model", "ann", "--unknown", "error"), 1, "'ann' at position 0 is not"),
        (("predict", "model", "none.csv"), 1, "no file 'none.csv'"),
        (("predict", "model", "latin.csv"), 1, "latin.csv, line 2: is not encoded as UTF-8; save"),
        (("predict", "model", "binary.csv"), 1, "binary.csv: is of no format known"),
        (("predict", "model", "plain.csv"), 1, "--columns user,item, or number"),
        (("predict", "model", "pairs.csv", "--columns", "0,0"), 2, "2 different"),
        (("predict", "model", "pairs.csv", "--columns", "0,5"), 1, "no column 5"),
        (("predict", "model", "bad_pairs.csv"), 1, "line 2"),
        (("predict", "model", "pairs.csv", "--unknown", "error"), 1, "--unknown mean or nan"),
        (("data", "twin", "ml-3", "--out", "t.csv"), 1, "ml-100k"),
        (("data", "twin", "ml-100k", "--out", "t.xyz"), 1, ".parquet"),
        (("data", "fetch", "ml-3"), 1, "ml-100k"),
    ],
)
def test_what_goes_wrong_is_one_readable_line(arguments, code, told, model):
    Path("bad.csv").write_text("user,item,rating\na,b,3\na,c,oops\n")
    Path("bad_pairs.csv").write_text("a,b\nc\n")
    Path("pairs.csv").write_text("stranger,3\n")
    Path("plain.csv").write_text("user,what,stars\na,b,3\n")
    Path("latin.csv").write_bytes("u1,3\ncaf\xe9,3\n".encode("latin-1"))
    Path("binary.csv").write_bytes(bytes(range(256)) * 4)
    assert told in run(*arguments, code=code).stderr


def test_the_help_of_fit_names_the_losses_and_backends():
    text = run("fit", "--help").stdout
    losses = [name for name, kind in LOSSES.items() if kind.__module__.startswith("momentous.")]
    backends = [name for name, kind in BACKENDS.items() if isinstance(kind, str)]
    assert all(name in text for name in ("auto", *losses, *backends))


def test_bad_lines_are_skipped_with_a_warning():
    Path("bad.csv").write_text("user,item,rating\na,x,3\na,y,oops\nb,x,4\nb,y,5\nb,x,2\n")
    told = run("fit", "bad.csv", "--skip-bad", "--out", "m", "--threads", 1).stderr
    assert "warning: " in told
    assert "1 malformed line" in told
    assert load_model("m")[0].seen.nnz == 3


def test_info_describes_a_file(ratings_file):
    facts = json.loads(run("data", "info", ratings_file, "--json").stdout)
    assert (facts["users"], facts["items"], facts["ratings"]) == (40, 25, 500)
    assert "histogram" in run("data", "info", ratings_file).stdout


def test_sql_is_run_where_it_is_asked_for_and_reads_the_file_alone(ratings_file):
    sql = "SELECT user AS u, item AS i, rating AS r FROM ratings WHERE item < 10"
    few = json.loads(run("data", "info", ratings_file, "--sql", sql, "--columns", "u,i,r",
                         "--json").output)  # fmt: skip
    assert few["items"] == 10
    again = ("--sql", "SELECT * FROM ratings WHERE item < 10")
    run("fit", ratings_file, *again, "--out", "model.npz", *FAST)
    assert len(load_model("model.npz")[0].cols) == 10
    evaluated = run("evaluate", "model.npz", ratings_file, *again, "--json").output
    assert json.loads(evaluated)["ratings"] == few["ratings"]
    Path("other.csv").write_text("1,2,3\n")
    elsewhere = ("data", "info", ratings_file, "--sql", "SELECT * FROM 'other.csv'")
    assert "reads its tables alone" in run(*elsewhere, code=1).output
    with_format = ("data", "info", ratings_file, "--sql", sql, "--format", "csv")
    assert "not for --sql" in run(*with_format, code=2).output
    for text, way in ((sql, "--sql"), ("https://example.org/r.csv", "pipe")):  # no paths
        assert way in run("data", "info", text, code=1).output
    run("data", "info", "-", "--sql", "FROM ratings", text="user,item,rating\n1,2,3\n")


def test_a_twin_is_written_and_can_be_read():
    assert "943 x 1,682" in run("data", "twin", "ml-100k", "--out", "twin.npz").stdout
    assert Ratings.read("twin.npz").nnz == 100_000


def test_on_a_terminal_there_is_one_line_that_changes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with show_fit(quiet=False) as watch:
        for k in range(3):
            watch(FitProgress(k, 1.0 / (1 + k), 0.1, float("nan"), 0))
    assert "objective 0.3333333" in terminal.getvalue()
    with show_fit(quiet=True) as watch:
        assert watch is None


@pytest.mark.parametrize("rank", ["0", "1"])
def test_commands_of_one_process_look_for_no_ranks(rank, model, monkeypatch):
    def find():
        raise AssertionError("the set-up of ranks would wait for the others")

    left_over = {"WORLD_SIZE": "2", "RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    for name, value in left_over.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("momentous.distributed.find", find)
    assert "u1:" in run("recommend", model, "u1").stdout
    assert run("predict", model, "-", text="u1,3\n").stdout.count("\n") == 2
    assert "ada-ragd" in run("methods").stdout


def test_pairs_with_named_columns_are_predicted_alike_in_any_order(model):
    Path("one.csv").write_text("user,item\nu1,3\nu2,4\n")
    Path("other.csv").write_text("movieId,seen,userId\n3,x,u1\n4,x,u2\n")
    Path("third.csv").write_text("thing,person\n3,u1\n4,u2\n")
    with gzip.open("one.csv.gz", "wb") as file:
        file.write(Path("one.csv").read_bytes())
    expected = run("predict", model, "one.csv").stdout
    assert run("predict", model, "other.csv").stdout == expected
    assert run("predict", model, "one.csv.gz").stdout == expected
    assert run("predict", model, "third.csv", "--columns", "person,thing").stdout == expected


def test_predictions_for_strangers_only_come_with_a_warning(model):
    told = run("predict", model, "-", text="3,u1\n4,u2\n").stderr
    assert "warning: 2 of 2 pairs have users that are not in model, such as '3'" in told
    assert "say which columns are user and item" in told
    assert run("predict", model, "-", text="u1,3\nnobody,4\n").stderr == ""


def test_predictions_are_csv_with_all_their_digits(model):
    fitted, _ = load_model(model)
    told = run("predict", model, "-", text='u1,3\n"a, ""b""",3\n').stdout
    rows = list(csv.reader(io.StringIO(told)))
    assert rows[1:] == [
        ["u1", "3", str(fitted.predict([["u1", "3"]])[0])],
        ['a, "b"', "3", str(fitted.predict([["nobody", "3"]])[0])],
    ]


def test_predictions_have_standard_deviations_where_priors_were_learned(model):
    told = run("predict", model, "-", "--std", text="u1,3\nnobody,3\n").stdout
    rows = list(csv.reader(io.StringIO(told)))
    assert rows[0] == ["user", "item", "prediction", "std"]
    expected = load_model(model)[0].deviations([["u1", "3"], ["nobody", "3"]])
    assert [float(row[3]) for row in rows[1:]] == pytest.approx(expected.tolist())
    assert 0.0 < expected[0] < expected[1]
    run("fit", "ratings.csv", "--out", "fixed", "--ridge", "fixed", "--rank", "2")
    refused = run("predict", "fixed", "-", "--std", text="u1,3\n", code=1).stderr
    assert "it was fitted with a fixed ridge" in refused


@pytest.mark.parametrize("text", ["a,b\nc\n", "", "user,item\n"])
def test_what_was_predicted_before_stays_where_nothing_can_be_predicted(model, text):
    Path("pairs.csv").write_text(text)
    Path("out.csv").write_text("precious")
    run("predict", model, "pairs.csv", "--out", "out.csv", code=1)
    assert Path("out.csv").read_text() == "precious"


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_has_seen_enough_is_no_error(model):
    Path("pairs.csv").write_text("u1,3\n" * 20_000)
    command = [sys.executable, "-m", "momentous", "predict", model, "pairs.csv"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"user,item,prediction\n"
        process.stdout.close()
        told = process.stderr.read()
    assert told == b""


def test_ctrl_c_before_the_fit_ends_with_one_word(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("momentous.lowrank.tasks.read_ratings", interrupted)
    assert run("fit", "ratings.csv", "--out", "model", code=130).stderr == "interrupted\n"


def test_the_option_for_decimal_commas_is_named_once():
    Path("commas.csv").write_text("user;item;rating\na;x;3,5\nb;x;2\n")
    told = run("fit", "commas.csv", *FAST, "--out", "model", code=1).stderr
    assert told.count("--decimal ,") == 1
    assert "decimal=" not in told
