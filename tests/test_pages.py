"""What the pages show is what happens: README.md, CONTRIBUTING.md and the pages in docs/.

The Python blocks of a page run in order, in one namespace; on the pages to start with, so do the
lines of shell blocks that call `momentous`.  A text block right after a Python block is what that
prints; numbers may differ from machine to machine.  A block after `<!-- not run: why -->` does not
run.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from momentous.cli.app import COMMANDS, momentous
from momentous.lowrank.data import readers
from momentous.lowrank.losses import base as losses
from momentous.methods.registry import REGISTRY, requirements

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = (DOCS / "examples", DOCS / "reference" / "generated")  # by Sphinx
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
    if not any(folder in path.parents for folder in MADE)
}
BLOCK = re.compile(
    r"^(?P<mark><!-- not run: .*? -->\n+)?```(?P<kind>python|sh)\n(?P<code>.*?)^```\n"
    r"(\n```text\n(?P<shown>.*?)```\n)?",
    flags=re.DOTALL | re.MULTILINE,
)
BLOCKS = {
    name: [
        found
        for found in BLOCK.finditer(page)
        if not found["mark"] and (found["kind"] == "python" or name.startswith("docs/start-"))
    ]
    for name, page in PAGES.items()
}
NUMBER = re.compile(r"-?\d+(,\d{3})*(\.\d*)?(e[+-]?\d+)?")


def run_lines(lines: str) -> None:
    """The lines of a shell block that call `momentous` or write a small file with printf."""
    for line in lines.replace("\\\n", "").splitlines():
        if line.startswith("momentous "):
            words = shlex.split(line, comments=True)[1:]
            done = CliRunner().invoke(momentous, words, catch_exceptions=False)
            assert done.exit_code == 0, f"{line}: {done.output}"
        elif line.startswith("printf "):
            subprocess.run(line, shell=True, check=True)


def skeleton(printed: str) -> list[str]:
    """The words of what is printed, line by line; numbers and blanks apart."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in printed.strip().splitlines()]


@pytest.mark.parametrize("name", [name for name, blocks in BLOCKS.items() if blocks])
def test_every_example_runs_and_prints_what_is_shown(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for library in ("torch", "jax", "optax", "optimistix"):
        if re.search(rf"^(import|from) {library}\b", PAGES[name], flags=re.MULTILINE):
            found = pytest.importorskip(library)
            if library == "torch":  # threads wait for each other where other tests run
                request.addfinalizer(partial(found.set_num_threads, found.get_num_threads()))
                found.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(losses, "LOSSES", dict(losses.LOSSES))
    monkeypatch.setattr(readers, "FORMATS", dict(readers.FORMATS))
    namespace: dict[str, Any] = {}
    for block in BLOCKS[name]:
        first = PAGES[name].count("\n", 0, block.start("code"))
        capsys.readouterr()
        if block["kind"] == "sh":
            run_lines(block["code"])
        else:
            exec(compile("\n" * first + block["code"], name, "exec"), namespace)
        if block["shown"] is not None:
            assert skeleton(capsys.readouterr().out) == skeleton(block["shown"]), f"line {first}"


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy", "array_api_strict"])
def test_the_example_of_a_method_runs_on_any_array_library(library: str) -> None:
    xp = pytest.importorskip(library)
    (block,) = [found for found in BLOCKS["CONTRIBUTING.md"] if "(Method[" in found["code"]]
    namespace: dict[str, Any] = {}
    exec(compile(block["code"], "CONTRIBUTING.md", "exec"), namespace)
    result = namespace["minimize"](
        lambda x: (x @ x, 2.0 * x), xp.asarray([3.14, -1.27]), jac=True,
        method=namespace["SignDescent"](), tol=1e-4,
    )  # fmt: skip
    assert result.success
    assert type(result.x) is type(xp.asarray([3.14, -1.27]))
    assert result.restarts > 3


def test_there_are_examples() -> None:
    assert sum(map(len, BLOCKS.values())) >= 30


def test_every_benchmark_that_is_named_exists() -> None:
    named = {name for page in PAGES.values() for name in re.findall(r"benchmarks/\w+\.py", page)}
    assert named
    for name in named:
        assert (ROOT / name).is_file(), name


def test_every_local_link_and_picture_exists() -> None:
    """On the pages outside the site; Sphinx looks at the others."""
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", PAGES[page]):
            assert "://" in target or (ROOT / target).exists(), f"{page}: {target}"


def test_the_lists_of_methods_are_the_registry_s() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "make_methods.py"))["pages"]()
    for path, text in pages.items():
        assert path.read_text() == text, "run: python docs/make_methods.py"
        assert text.count("make_methods.py") == text.count("<!-- end of ") > 0


def test_every_command_is_in_the_reference() -> None:
    page = PAGES["docs/reference/command-line.md"]
    assert re.findall(r":prog: momentous (\w+)", page) == list(COMMANDS)


def test_every_method_says_what_it_needs_and_guarantees() -> None:
    for cls in REGISTRY.values():
        assert all((cls.summary, requirements(cls), cls.guarantee, cls.cost)), cls


def test_the_readme_is_one_screen() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 90
