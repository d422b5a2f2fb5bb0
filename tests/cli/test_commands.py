"""The command line, run as a person would run it."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import momentous

from momentous.methods.registry import REGISTRY

METHODS = ("Ada-RAGD-NC", "Ada-RHB-NC", "Jin's AGD", "convex until guilty", "heuristic RAGD", "CG",
           "GD", "RAGD-NC", "RHB-NC", "L-BFGS-B", "accelerated sweeps")  # fmt: skip


@pytest.mark.slow
def test_demo_runs_eleven_methods_on_both_problems_and_writes_the_page(tmp_path: Path) -> None:
    done = momentous("demo", "--iterations", "10", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in METHODS:
        rows = [line for line in done.stdout.splitlines() if line.strip().startswith(name + " ")]
        assert len(rows) == 2, name  # one per problem
    here = tmp_path / "here"
    page = html.unescape((here / "index.html").read_text(encoding="utf-8"))
    assert [name for name in METHODS if name not in page] == []
    for problem in ("completion", "one-bit"):
        assert (here / "figures" / f"demo-{problem}.png").read_bytes().startswith(b"\x89PNG")
        assert (here / "figures" / f"demo-{problem}.pdf").read_bytes().startswith(b"%PDF")
    text = " ".join(done.stdout.split())
    assert f"The report is {Path('here') / 'index.html'}." in text
    assert "0 seen, 0 not seen and 20 cannot be told. The page has each with its reason." in text
    assert page.count("Why it cannot be told: ") == 20
    assert "Look at gradient descent and Ada-RHB-NC" in text
    assert "after 10 iterations" in text
    assert len(list((here / "runs").glob("*--paper--*.parquet"))) >= 18


def test_a_demo_that_is_too_short_is_refused_by_name(tmp_path: Path) -> None:
    done = momentous("demo", "--iterations", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "--iterations" in done.stderr
    assert not (tmp_path / "momentous-demo").exists()


def after(preparation: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter where something has happened before."""
    program = f"import sys\n{preparation}\nfrom momentous import cli\ncli.main()\n"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("package", "command"),
    [("click", "methods"), ("rich", "methods"), ("matplotlib", "demo"), ("pyarrow", "demo"),
     ("matplotlib", "scoreboard")],
)  # fmt: skip
def test_without_the_app_extra_the_command_says_what_to_install(
    tmp_path: Path, package: str, command: str
) -> None:
    done = after(f"sys.modules[{package!r}] = None", command, cwd=tmp_path)
    assert done.returncode == 1
    assert f"needs {package}" in done.stderr
    assert 'pip install "momentous[app]"' in done.stderr


def test_commands_without_pictures_do_without_matplotlib(tmp_path: Path) -> None:
    done = after("sys.modules['matplotlib'] = None", "methods", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("click", "methods"),
        ("momentous.cli.app", "methods"),
        ("momentous.cli.methods", "methods"),
        ("numpy", "methods"),
        ("numpy", "fit ratings.csv --out model"),
        ("momentous.methods", "methods"),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_no_traceback(
    tmp_path: Path, module: str, command: str
) -> None:
    program = f"""
import sys
class Interrupting:
    def find_spec(self, name, *details):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from momentous.cli import main
main()
"""
    words = [sys.executable, "-c", program, *command.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_methods_lists_every_registered_method(tmp_path: Path) -> None:
    done = momentous("methods", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in REGISTRY:
        assert name.split("-")[0] in done.stdout
