"""Whatever goes wrong in a command is a clear line and an exit status, on any terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("click")

import click
from click.testing import CliRunner
from command_line import momentous as command_line

from momentous.cli.app import COMMANDS, momentous
from momentous.io.archive import ArchiveError
from momentous.lowrank.tasks import fit_file

posix = pytest.mark.skipif(os.name != "posix", reason="signals and file descriptors")


@pytest.fixture
def _without_pictures(monkeypatch):
    """They take most of the time, and have their own tests."""
    for name in ("plot_convergence", "plot_profiles"):
        monkeypatch.setattr(f"momentous.lab.compare.profiles.{name}", lambda *given: None)


def run_with(error, monkeypatch, *arguments):
    """What the command line makes of an error that a command raises."""

    @click.command()
    def failing():
        raise error

    monkeypatch.setattr("momentous.cli.methods.command", failing)
    return CliRunner().invoke(momentous, [*arguments, "methods"])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("rank=0 must be positive"), "rank=0 must be positive"),
        (ArchiveError("model.npz is damaged"), "model.npz is damaged"),
        (FileNotFoundError("there is no file x"), "there is no file x"),
        (PermissionError(13, "Permission denied", "/some/file"), "/some/file: Permission denied"),
        (OSError(28, "No space left on device", "out.npz"), "out.npz: No space left on device"),
        (ModuleNotFoundError('pip install "momentous[app]"'), 'pip install "momentous[app]"'),
        (MemoryError(), "not enough memory (MemoryError)"),
        (ValueError("[red]no markup[/red] [/]"), "[red]no markup[/red] [/]"),
        (ValueError("evil \x1b[2J name"), "evil \\x1b[2J name"),
        (ValueError(""), "ValueError"),
        (KeyError("rank"), "KeyError: 'rank' (a defect of momentous; --debug shows where)"),
    ],
)
def test_an_error_is_one_line_and_status_1(error, text, monkeypatch):
    done = run_with(error, monkeypatch)
    assert (done.exit_code, done.stderr) == (1, f"Error: {text}\n")


def test_with_debug_the_traceback_is_kept(monkeypatch):
    for arguments in (("--debug",), ()):
        done = run_with(ValueError("seen"), monkeypatch, *arguments)
        assert isinstance(done.exception, ValueError) == bool(arguments)


def test_debug_may_stand_behind_the_command(tmp_path):
    words = ("fit", "none.csv", "--out", "model")
    assert "Traceback" in command_line(*words, "--debug", cwd=tmp_path).stderr
    done = command_line(*words, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert "none.csv" in done.stderr


def test_a_warning_is_a_line_of_its_own(monkeypatch):
    @click.command()
    def warning():
        warnings.warn("1 malformed line \x1b[31m", RuntimeWarning, stacklevel=1)

    monkeypatch.setattr("momentous.cli.methods.command", warning)
    done = CliRunner().invoke(momentous, ["methods"])
    assert (done.exit_code, done.stderr) == (0, "warning: 1 malformed line \\x1b[31m\n")


# --- terminals and streams ------------------------------------------------------------------------

ASCII = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.mark.parametrize(
    "arguments", [("methods",), ("data", "twin", "ml-100k", "--out", "\u00f6.npz")]
)
def test_an_ascii_terminal_is_served(arguments, tmp_path):
    done = command_line(*arguments, cwd=tmp_path, env=ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stdout.isascii()


def test_an_error_with_other_letters_is_shown_on_an_ascii_terminal(tmp_path):
    done = command_line("fit", "fehlt-\u00e4\u03b2.csv", "--out", "m", cwd=tmp_path, env=ASCII)
    assert done.returncode == 1
    assert "fehlt-" in done.stderr
    assert "Traceback" not in done.stderr


@posix
@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed, tmp_path):
    line = f'exec "{sys.executable}" -m momentous data twin ml-100k --out twin.npz {closed}'
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "twin.npz").stat().st_size > 0


@posix
def test_pairs_from_a_closed_stream_are_a_clear_error(tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,3\na,y,4\nb,x,5\n")
    fit_file(tmp_path / "r.csv", tmp_path / "m", rank=1, backend="numpy")
    line = f'exec "{sys.executable}" -m momentous predict m - <&-'
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: standard input")


# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[bold", "a:smile:b"])
@pytest.mark.usefixtures("_without_pictures")
def test_square_brackets_in_names_are_no_markup(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["compare", "qing-10", "--methods", "lbfgs", "--out", name]
    done = CliRunner().invoke(momentous, words)
    assert done.exit_code == 0, done.stderr
    assert f"are in {Path(name)}." in done.stdout
    assert (tmp_path / name / "table.csv").is_file()


@pytest.mark.parametrize(
    "arguments",
    [("compare", "qing-10", "--out", "file/below"), ("scoreboard", "--work", "file/below"),
     ("data", "twin", "ml-100k", "--out", "none/t.csv"),
     ("fit", "r.csv", "--out", "none/m"), ("reproduce", "fig1", "--out", "file/below"),
     ("demo", "--out", "file/below")],
)  # fmt: skip
def test_a_folder_that_cannot_be_made_is_one_clear_line(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,3\n")
    done = CliRunner().invoke(momentous, arguments)
    assert done.exit_code in (1, 2)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "file" in last or "none" in last


# --- interrupts -----------------------------------------------------------------------------------


@pytest.mark.slow
@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_the_signals_of_schedulers_end_a_fit_as_ctrl_c_does(name, tmp_path):
    lines = [f"u{u},i{i},{1 + (u * i) % 5}" for u in range(60) for i in range(40) if (u + i) % 3]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    command = [sys.executable, "-m", "momentous", "fit", "r.csv", "--out", "model", "--tol", "0",
               "--max-iterations", "1000000", "--rank", "2", "--threads", "1"]  # fmt: skip
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stderr.readline()  # the fit is under way
        process.send_signal(getattr(signal, name))
        _, text = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert b"Go on with: momentous fit r.csv --out model --resume" in text
    assert (tmp_path / "model").exists()


@posix
def test_what_was_told_to_ignore_a_hang_up_goes_on(tmp_path):
    program = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from momentous.cli import process\n"
        "process.end_like_ctrl_c(); os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('going on')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "going on\n"


@pytest.mark.usefixtures("_without_pictures")
def test_an_interrupted_comparison_keeps_what_is_finished_and_resumes(tmp_path, monkeypatch):
    from momentous.lab.compare import Comparison, runner

    monkeypatch.chdir(tmp_path)
    finished, original = [], runner._run

    def interrupted(entry, *given):
        if len(finished) == 1:
            raise KeyboardInterrupt
        finished.append(entry.name)
        return original(entry, *given)

    monkeypatch.setattr(runner, "_run", interrupted)
    words = ["compare", "qing-10", "rosenbrock-10", "--methods", "lbfgs", "--out", "here"]
    done = CliRunner().invoke(momentous, words)
    assert done.exit_code == 130
    assert "--resume goes on" in done.stderr
    assert len(Comparison.load(tmp_path / "here" / "table.csv").rows) == 1
    assert len(list((tmp_path / "here" / "runs").iterdir())) == 1
    finished.clear()
    done = CliRunner().invoke(momentous, [*words, "--resume"])
    assert done.exit_code == 0, done.output
    assert len(finished) == 1
    assert len(Comparison.load(tmp_path / "here" / "table.csv").rows) == 2


# --- the table of commands ------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_a_help_text(name):
    done = CliRunner().invoke(momentous, [name, "--help"])
    assert done.exit_code == 0
    assert f"Usage: momentous {name}" in done.stdout
    assert COMMANDS[name].endswith(".")


def test_help_imports_neither_numpy_nor_what_a_command_runs():
    program = (
        "import sys\nfrom click.testing import CliRunner\n"
        "from momentous.cli.app import COMMANDS, momentous\n"
        "for name in COMMANDS:\n"
        "    CliRunner().invoke(momentous, [name, '--help'])\n"
        "    assert 'numpy' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_command_imports_no_other_command(tmp_path):
    program = (
        "import sys\nfrom momentous.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(*sorted(n for n in sys.modules if n.startswith('momentous.')), file=sys.stderr)"
    )
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,3\na,y,4\nb,x,5\n")

    def loaded(*arguments):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return set(done.stderr.splitlines()[-1].split())

    commands = {f"momentous.cli.{name}" for name in [*COMMANDS, "model"]}
    assert not loaded("--help") & {*commands, "momentous.methods", "momentous.core.loop"}
    of_fit = loaded("fit", "r.csv", "--out", "m", "--rank", "1", "--backend", "numpy")
    assert of_fit & commands == {"momentous.cli.fit"}
    assert not any(name.startswith(("momentous.lab", "momentous.testbed")) for name in of_fit)


@posix
def test_a_fit_that_cannot_be_saved_is_refused_before_it_begins(tmp_path):
    loop, data = tmp_path / "loop", tmp_path / "r.csv"
    loop.symlink_to(loop)
    data.write_text("1,2,3\n2,2,4\n")
    done = CliRunner().invoke(momentous, ["fit", str(data), "--out", str(loop)])
    assert done.exit_code == 1
    assert done.output == f"Error: {loop}: Too many levels of symbolic links\n"
