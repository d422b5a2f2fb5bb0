"""The commands in a shell: pipes, the tab key, environment variables and their page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from momentous.cli.app import PREFIX, momentous

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "momentous"
RATINGS = "user,item,rating\n" + "".join(
    f"user {i},film {j},{1 + (i * j) % 5}\n" for i in range(8) for j in range(6) if (i + j) % 3
)


def test_ratings_come_and_predictions_go_through_pipes(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(RATINGS)
    command = f"{sys.executable} -m momentous"
    quick = "--rank 2 --max-iterations 3 --backend numpy --out model.npz --json"
    script = (
        f"cat ratings.csv | {command} fit - {quick} 2> /dev/null && "
        f"{command} evaluate model.npz <(gzip -c ratings.csv) --json && "
        f"cut -d, -f1,2 ratings.csv | head -n 3 | {command} predict model.npz /dev/stdin --out - "
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    fitted, evaluated, *predictions = done.stdout.splitlines()
    assert json.loads(fitted)["ratings"] == json.loads(evaluated)["ratings"] == 32
    assert predictions[0] == "user,item,prediction"
    assert [line.rpartition(",")[0] for line in predictions[1:]] == [
        "user 0,film 1", "user 0,film 2"
    ]  # fmt: skip
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.npz", "ratings.csv"]


# --- the tab key ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_the_command(shell: str) -> None:
    done = CliRunner().invoke(momentous, ["completion", shell])
    assert done.exit_code == 0
    assert f"_MOMENTOUS_COMPLETE={shell}_complete" in done.stdout
    assert CliRunner().invoke(momentous, ["completion", "csh"]).exit_code == 2


def test_bash_takes_the_script() -> None:
    script = CliRunner().invoke(momentous, ["completion", "bash"]).stdout
    check = f"{script}\ncomplete -p momentous"
    done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=30)
    assert "_momentous_completion momentous" in done.stdout


@pytest.mark.parametrize(
    ("words", "unfinished", "expected"),
    [
        ([], "fi", ["fit"]),
        (["fit"], "some", ["some"]),  # a file, which the shell completes
        (["fit"], "--met", ["--method"]),
        (["fit", "x.csv", "--method"], "ada", ["ada-ragd", "ada-rhb"]),
        (["compare", "--methods"], "lbfgs,ada", ["lbfgs,ada-ragd", "lbfgs,ada-rhb"]),
        (["predict", "model.npz", "--unknown"], "", ["mean", "nan", "error"]),
        (["data"], "tw", ["twin"]),
    ],
)
def test_the_tab_key_completes(words: list[str], unfinished: str, expected: list[str]) -> None:
    asked = ShellComplete(momentous, {}, "momentous", "_MOMENTOUS_COMPLETE")
    found = asked.get_completions(words, unfinished)
    assert [each.value for each in found] == expected
    assert all((each.type == "file") == (expected == ["some"]) for each in found)


# --- environment variables ------------------------------------------------------------------------


def test_every_option_may_stand_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(RATINGS)
    paths = [str(tmp_path / "ratings.csv"), "--out", str(tmp_path / "model.npz"), "--json"]
    given = {"MOMENTOUS_FIT_MAX_ITERATIONS": "2", "MOMENTOUS_FIT_BACKEND": "numpy"}
    done = CliRunner(env=given).invoke(momentous, ["fit", *paths])
    assert json.loads(done.stdout.splitlines()[-1])["iterations"] == 2
    done = CliRunner(env=given).invoke(momentous, ["fit", *paths, "--max-iterations", "3"])
    assert json.loads(done.stdout.splitlines()[-1])["iterations"] == 3
    paths[0] = "no such file"
    assert CliRunner().invoke(momentous, ["fit", *paths]).exit_code == 1
    done = CliRunner(env={"MOMENTOUS_DEBUG": "1"}).invoke(momentous, ["fit", *paths])
    assert isinstance(done.exception, FileNotFoundError)  # the error itself, as with --debug


def test_a_variable_is_called_as_its_option_is_typed(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(RATINGS)
    file = str(tmp_path / "ratings.csv")
    done = CliRunner(env={"MOMENTOUS_DATA_INFO_JSON": "1"}).invoke(
        momentous, ["data", "info", file]
    )
    assert json.loads(done.stdout)["ratings"] == 32
    command = ["fit", file, "--out", str(tmp_path / "model.npz")]
    done = CliRunner(env={"MOMENTOUS_FIT_METHOD": "none"}).invoke(momentous, command)
    assert done.exit_code == 2
    assert "'none'" in done.output


def test_every_variable_of_ours_is_in_the_table() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    known = set(re.findall(r"`(_?[A-Z][A-Z_]+)`", page))
    pattern = re.compile(rf"""environ(?:\.get\(|\[)\s*["'](_?{PREFIX}_\w+|NUMBA_\w+)""")
    read = {name for path in SOURCE.rglob("*.py") for name in pattern.findall(path.read_text())}
    assert read <= known
    assert "NUMBA_CACHE_DIR" in known
