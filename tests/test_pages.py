"""What the pages show is what happens: README.md, CONTRIBUTING.md and the pages in docs/.

The Python blocks of a page run in order, in one namespace; on the pages to start with, so do the
lines of shell blocks that call `momentous`.  A text block right after a Python block is what that
prints; numbers may differ from machine to machine.  A block after `<!-- not run: why -->` does not
run.
"""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from momentous import Method, Result, Status, compare, minimize
from momentous.cli.app import COMMANDS, momentous
from momentous.core.space import to_numpy
from momentous.lowrank.data.files import formats
from momentous.lowrank.losses import base as losses
from momentous.methods.registry import REGISTRY, methods_table, requirements, rules

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "distributed"))

from launch import launch  # noqa: E402

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
    registry: dict[str, type[Method]],
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
    monkeypatch.setattr(formats, "FORMATS", dict(formats.FORMATS))
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


# --- the example of a method: one source, every home ----------------------------------------------

(METHOD,) = [found["code"] for found in BLOCKS["CONTRIBUTING.md"] if "(Rule[" in found["code"]]
NAME = "barzilai-borwein"
START = [1.5, -1.0, 0.5]
OPTIONS = {"method": NAME, "step_size": 4.0, "tol": 1e-6}  # a first step that must be halved


def value(x: Any, xp: Any) -> Any:
    return xp.sum(x**4 / 4.0 + x * x)


def gradient(x: Any) -> Any:
    return x**3 + 2.0 * x


def run_in_numpy(**more: Any) -> Result:
    return minimize(
        lambda x: (value(x, np), gradient(x)), np.array(START), jac=True, **OPTIONS | more
    )


@pytest.fixture
def method(registry: dict[str, type[Method]]) -> type[Method]:
    """The method of the page, known by its name in this test."""
    exec(compile(METHOD, "CONTRIBUTING.md", "exec"), {})
    return registry[NAME]


def test_the_example_of_a_method_is_short() -> None:
    lines = [line for line in METHOD.partition("x0 = ")[0].splitlines() if line.strip()]
    assert len(lines) <= 60


def test_the_example_of_a_method_is_in_the_tables(method: type[Method]) -> None:
    assert f"| `{NAME}` | `BarzilaiBorwein` | {method.summary} |" in methods_table()
    assert rules()[NAME] is method
    bowl = ("bowl", lambda x: (x @ x, 2 * x), np.ones(2))
    (row,) = compare(bowl, NAME, progress=False).rows
    assert row.reached


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "array_api_strict", "cupy"])
def test_the_example_of_a_method_runs_on_any_array_library(
    method: type[Method], library: str
) -> None:
    """Where there is no GPU for CuPy, array_api_strict stands in for it: it has nothing that is
    not in the standard, and takes no NumPy."""
    xp = pytest.importorskip(library)
    expected = run_in_numpy()
    assert expected.success
    assert expected.nfev > expected.nit + 1  # steps were halved
    with enabled_x64() if library == "jax.numpy" else contextlib.nullcontext():
        start = xp.asarray(START, dtype=xp.float64)
        result = minimize(lambda x: (value(x, xp), gradient(x)), start, jac=True, **OPTIONS)
        np.testing.assert_allclose(to_numpy(result.x), expected.x, atol=1e-9)
    assert type(result.x) is type(start)
    assert (result.nit, result.nfev) == (expected.nit, expected.nfev)


def test_the_example_of_a_method_trains_modules(method: type[Method]) -> None:
    torch = pytest.importorskip("torch")
    from momentous.torch import Optimizer

    expected = run_in_numpy()
    x = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = Optimizer([x], **OPTIONS)
    while not optimizer.done:
        optimizer.step(lambda: value(x, torch))
    assert optimizer.result.nit == expected.nit
    np.testing.assert_allclose(x.detach(), expected.x, atol=1e-9)


def test_the_example_of_a_method_is_compiled_and_runs_in_lanes(method: type[Method]) -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    from momentous.jax import solve

    expected = run_in_numpy()
    with enabled_x64():
        starts = jnp.array(START) * jnp.array([[1.0], [0.0], [3.0]])
        one = solve(lambda x: value(x, jnp), starts[0], **OPTIONS)
        many = jax.vmap(lambda x0: solve(lambda x: value(x, jnp), x0, **OPTIONS))(starts)
        counts = [(int(a), int(b)) for a, b in zip(many.nit, many.nfev, strict=True)]
        assert (int(one.nit), int(one.nfev)) == counts[0] == (expected.nit, expected.nfev)
        np.testing.assert_allclose(one.x, expected.x, atol=1e-9)
        assert counts[1] == (0, 1)  # a lane that has ended stays as it is
        assert counts[2] > counts[0]
        assert bool(many.success.all())


def test_the_example_of_a_method_resumes_bit_for_bit(method: type[Method], tmp_path: Path) -> None:
    expected, path = run_in_numpy(), tmp_path / "run.ckpt"
    assert run_in_numpy(checkpoint=path, max_iterations=3).nit == 3
    resumed = run_in_numpy(resume=path)
    assert (resumed.nit, resumed.nfev) == (expected.nit, expected.nfev)
    assert np.array_equal(resumed.x, expected.x)


def test_the_example_of_a_method_ends_where_no_step_lowers_f(method: type[Method]) -> None:
    uphill = minimize(lambda x: (x @ x, -2 * x), np.ones(2), jac=True, **OPTIONS)
    assert uphill.status is Status.NO_PROGRESS
    assert "too small to change x" in uphill.message


ON_RANKS = """
import json, sys
from pathlib import Path
import numpy as np
import of_the_page
from momentous import minimize
from momentous.distributed import find

ranks, start = find(), np.array({start})
mine = ranks.share(len(start))

def part(x):  # what this rank has of the sum, and of its gradient
    gradient = np.zeros(len(start))
    gradient[mine] = x[mine] ** 3 + 2 * x[mine]
    return (x[mine] ** 4 / 4 + x[mine] ** 2).sum(), gradient

def whole(x):  # of this rank's part of x
    return float(ranks.all_reduce(np.array([(x**4 / 4 + x * x).sum()]))[0]), x**3 + 2 * x

runs = [minimize(part, start, jac=True, ranks="data", **{options}),
        minimize(whole, start[mine], jac=True, ranks="variables", **{options})]
found = [[run.nit, run.nfev, run.success, run.fun] for run in runs]
Path(sys.argv[1], f"{{ranks.rank}}.json").write_text(json.dumps([ranks.size, found]))
"""


@pytest.mark.slow
def test_the_example_of_a_method_runs_on_two_ranks(method: type[Method], tmp_path: Path) -> None:
    expected = run_in_numpy()
    (tmp_path / "of_the_page.py").write_text(METHOD)
    program = tmp_path / "on_ranks.py"
    program.write_text(ON_RANKS.format(start=START, options=OPTIONS))
    printed = launch("mpi", 2, str(program), tmp_path)
    for rank in range(2):
        file = tmp_path / f"{rank}.json"
        assert file.exists(), printed
        size, found = json.loads(file.read_text())
        assert size == 2
        for nit, nfev, success, fun in found:
            assert (nit, nfev, success) == (expected.nit, expected.nfev, True)
            assert fun == pytest.approx(expected.fun, abs=1e-12)


def enabled_x64() -> Any:
    return pytest.importorskip("jax").enable_x64(True)


# --- what the pages say ---------------------------------------------------------------------------


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


def test_the_tables_of_the_reproduction_are_those_of_its_accounts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    made = runpy.run_path(str(DOCS / "make_reproduction.py"))["page"]()
    assert PAGES["docs/reproduction.md"] == made, "run: python docs/make_reproduction.py"
    assert made.count("| Ada-RHB-NC |") == 2


def test_every_method_that_runs_compiled_is_named_for_users_of_jax() -> None:
    page = PAGES["docs/start-jax.md"]
    assert [name for name in ["auto", *rules()] if f'`"{name}"`' not in page] == []
    assert [name for name in REGISTRY.keys() - rules().keys() if f'`"{name}"`' in page] == []


def test_every_command_is_in_the_reference() -> None:
    page = PAGES["docs/command-line.md"]
    assert re.findall(r":prog: momentous ([\w-]+)", page) == list(COMMANDS)


def test_every_method_says_what_it_needs_and_guarantees() -> None:
    for cls in REGISTRY.values():
        assert all((cls.summary, requirements(cls), cls.guarantee, cls.cost)), cls


def test_the_examples_in_other_packages_are_short() -> None:
    examples = [*(DOCS / "gallery" / "homes").glob("plot_*.py")]
    assert len(examples) == 3
    for example in examples:
        assert len(example.read_text(encoding="utf-8").splitlines()) <= 40, example.name


def test_pages_that_say_how_to_are_short() -> None:
    index = PAGES["docs/how-to/index.md"].partition(":maxdepth: 1\n")[2].partition("```")[0]
    pages = [DOCS / "how-to" / f"{name}.md" for name in index.split()]
    assert len(pages) > 20
    for page in pages:
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 60, page.name


def test_the_readme_is_one_screen() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 90
