"""docs/architecture.md is true: its boxes hold the whole tree, its walks name every file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import momentous
from momentous import Status, iterate, minimize

SOURCE = Path(momentous.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
RAGD = {"method": "ragd", "step_size": 0.02, "momentum": 0.8, "radius": 10.0, "epoch_length": 500}
TOLERANCE = {"tol": 1e-3}


def section(title: str) -> str:
    """What stands under a heading that begins so."""
    found = re.search(rf"^(#+) {re.escape(title)}.*?(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[0]


def files_walked(work: Callable[[], Any]) -> set[str]:
    """The files of the library of which a function runs."""
    root, found = f"{SOURCE}/", set()

    def look(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
            found.add(code.co_filename.removeprefix(root))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def require_walk(title: str, number: str, work: Callable[[], Any]) -> None:
    """The section names every file that is walked, and they are no more than it says."""
    text = section(title)
    most = re.search(number, text)
    assert most, f"{number} in {title}"
    found = files_walked(work)
    assert found <= {*re.findall(r"`([\w/]+\.py)`", text)}
    assert len(found) <= int(most[1]), f"{len(found)} files: {sorted(found)}"


def quartic(x: Any) -> tuple[float, Any]:
    return float(np.sum(x**4 - 8 * x**2)), 4 * x**3 - 16 * x


START = np.array([0.5, -3.0])
WALKS = [(RAGD, r": (\d+) files"), ({}, r"has (\d+)")]


@pytest.mark.parametrize(("options", "number"), WALKS, ids=["ragd", "auto"])
def test_the_walk_of_minimize(options: dict[str, Any], number: str) -> None:
    def run() -> None:
        ended = minimize(quartic, START, jac=True, **options)
        assert ended.status in (Status.CONVERGED, Status.COMPLETED)

    run()  # what is imported when it is first used is there
    require_walk("`momentous.minimize`", number, run)


@pytest.mark.parametrize("options", [RAGD, {}], ids=["ragd", "auto"])
def test_an_iteration_walks_at_most_18_files(options: dict[str, Any]) -> None:
    run = iterate(quartic, START, jac=True, **options)
    next(run)
    assert len(files_walked(lambda: next(run))) <= 18


@pytest.mark.parametrize(("options", "number"), WALKS, ids=["ragd", "auto"])
def test_the_walk_of_a_compiled_run(options: dict[str, Any], number: str) -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    from momentous.jax import solve

    def run() -> None:
        given = {"method": "auto"} | options | TOLERANCE
        assert solve(lambda x: jnp.sum(x**4 - 8 * x**2), jnp.asarray(START), **given).success

    require_walk("`momentous.jax.solve`", number, run)


def test_the_walk_of_an_optimizer_s_steps() -> None:
    torch = pytest.importorskip("torch")
    from momentous.torch import Optimizer

    x = torch.nn.Parameter(torch.tensor(START, dtype=torch.float32))
    optimizer = Optimizer([x], **RAGD, **TOLERANCE)

    def run() -> None:
        while not optimizer.done:
            optimizer.step(lambda: torch.sum(x**4 - 8 * x**2))

    require_walk("`momentous.torch.Optimizer.step`", r": (\d+) files", run)
    assert optimizer.result.success


def test_there_are_twelve_boxes_and_they_hold_every_folder() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", section("Twelve boxes"), re.MULTILINE)[2:]
    assert len(rows) == 12
    places = "".join(place for _, _, place in rows)
    named = {name.split("/")[0] for name in re.findall(r"`([\w/.]+)`", places)}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= named
    for name in re.findall(r"`([\w/.]+)`", places):
        assert (SOURCE / name).exists(), name


def test_the_files_of_the_walks_exist() -> None:
    for name in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert (SOURCE / name).exists() or name.startswith(("tests/", "docs/")), name
