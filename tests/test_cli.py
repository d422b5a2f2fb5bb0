"""The command line, run as a person would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from momentous.methods import REGISTRY


def momentous(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "momentous", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_demo_prints_a_table_of_seven_methods_and_saves_the_picture(tmp_path: Path) -> None:
    done = momentous("demo", "--mu", "0.03", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("auto", "RAGD", "RHB", "PerturbedRAGD", "AdaRAGD", "AdaRHB", "scipy:l-bfgs-b"):
        (row,) = [line for line in done.stdout.splitlines() if line.strip().startswith(name + " ")]
        assert "converged" in row or "completed" in row, row
    assert (tmp_path / "here" / "convergence.png").read_bytes().startswith(b"\x89PNG")


def test_a_hardness_out_of_range_is_refused_by_name(tmp_path: Path) -> None:
    done = momentous("demo", "--mu", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "--mu" in done.stderr
    assert not (tmp_path / "momentous-demo").exists()


def after(preparation: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter where something has happened before."""
    program = f"import sys\n{preparation}\nfrom momentous import cli\ncli.main()\n"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("package", "command"),
    [("click", "methods"), ("rich", "methods"), ("matplotlib", "demo"),
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
    ("entry", "module"),
    [
        ("momentous_command", "numpy"),
        ("momentous_command", "momentous"),
        ("momentous_command", "momentous.front"),
        ("momentous.cli", "momentous.lowrank.commands"),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_no_traceback(
    tmp_path: Path, entry: str, module: str
) -> None:
    program = f"""
import sys
class Interrupting:
    def find_spec(self, name, *details):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from {entry} import main
main()
"""
    command = [sys.executable, "-c", program, "methods"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_methods_lists_every_registered_method(tmp_path: Path) -> None:
    done = momentous("methods", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in REGISTRY:
        assert name.split("-")[0] in done.stdout
