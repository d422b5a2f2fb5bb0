"""What a user installs: the wheel, alone in a folder; and the files of the last minor release."""

import email
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

import momentous

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the sdist, as by ``python -m build``."""
    for package in ("build", "hatchling"):
        pytest.importorskip(package)
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert len(list(out.glob("*.tar.gz"))) == 1
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel in it, and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", folder, wheel], check=True, timeout=300)
    return folder


def run(installed, code, cwd):
    """What a program prints that sees the installed library, and not the sources."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_is_the_library_and_small(wheel):
    assert wheel.stat().st_size < 1_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (facts,) = (name for name in names if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(facts))
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"momentous", facts.partition("/")[0]}
    assert {"momentous/py.typed", "momentous/__init__.pyi"} <= {*names}
    assert not [name for name in names if "test_" in name or "benchmark" in name]
    assert metadata["Version"] == momentous.__version__
    needed = [text for text in metadata.get_all("Requires-Dist") if "extra ==" not in text]
    assert {text.partition(">")[0] for text in needed} == {"numpy", "scipy", "array-api-compat"}


@pytest.mark.slow
def test_what_was_installed_runs_the_lines_of_the_readme(installed, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = readme.partition("```python\n")[2].partition("```")[0]
    printed = run(installed, f"{lines}\nimport momentous; print(momentous.__file__)", tmp_path)
    assert "within the tolerance" in printed
    assert Path(printed.splitlines()[-1]).is_relative_to(installed)
    version = run(installed, "import sys; sys.argv[1:] = ['--version'];"
                  "from momentous.cli import main; main()", tmp_path)  # fmt: skip
    assert momentous.__version__ in version


TYPED = """
import numpy as np
from momentous import Result, certify, minimize

def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(x @ x), 2 * x

result: Result = minimize(fun, np.ones(2), jac=True)
name: str = certify(fun, result.x, jac=True, eps=1e-3).verdict.name
minimize(fun, np.ones(2), max_iterations="3")
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_know_what_was_installed(installed, tmp_path, checker):
    pytest.importorskip(checker)
    (tmp_path / "program.py").write_text(TYPED)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(installed)]}))
    options = ["--strict", "--follow-imports=silent"] if checker == "mypy" else []
    done = subprocess.run(
        [sys.executable, "-m", checker, *options, "program.py"], cwd=tmp_path, timeout=300,
        env={**os.environ, "MYPYPATH": str(installed)}, capture_output=True, text=True,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "error:" in line or "- error" in line]
    assert len(lines) == 1, done.stdout + done.stderr  # the one mistake in it
    assert "program.py:10" in lines[0]
    assert "max_iterations" in lines[0]


def resume(name):
    file = DATA / f"{name}-0.1.0.npz"
    return momentous.minimize(rosen, np.array([-1.2, 1.0]), jac=rosen_der, resume=file)


@pytest.mark.parametrize("method", ["run", "lbfgs", "universal-hb", "parameter-free-agd"])
def test_a_checkpoint_of_the_last_minor_release_is_resumed(method):
    result = resume(method)  # "run" is of the default
    assert result.success
    assert result.nit > 10
    assert result.x == pytest.approx([1.0, 1.0], abs=1e-3)


@pytest.mark.parametrize("method", ["gd", "ada-ragd"])
def test_a_checkpoint_that_is_not_read_says_that_its_version_is_another(method):
    with pytest.raises(momentous.CheckpointError, match=r"momentous 0.1.0|another version of"):
        resume(method)


def test_a_model_of_the_last_minor_release_is_read():
    pytest.importorskip("sklearn")
    from momentous.lowrank import MatrixCompletion

    model = MatrixCompletion.load(DATA / "model-0.1.0")
    assert model.row_ids_.tolist() == [f"u{i}" for i in range(6)]
    assert 0.0 < model.predict([["u1", "i1"]])[0] < 6.0
