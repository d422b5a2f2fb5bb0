"""What README.md and CONTRIBUTING.md show is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from momentous.lowrank.data import readers
from momentous.lowrank.losses import base as losses
from momentous.methods import REGISTRY, methods_table, requirements

ROOT = Path(__file__).parent.parent
README, CONTRIBUTING = ((ROOT / f"{name}.md").read_text() for name in ("README", "CONTRIBUTING"))
EXAMPLES = {
    f"{name}-{number}": example
    for name, page in (("README", README), ("CONTRIBUTING", CONTRIBUTING))
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_python_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = EXAMPLES[name]
    for library in ("torch", "jax"):
        if f"import {library}" in example:
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(losses, "LOSSES", dict(losses.LOSSES))
    monkeypatch.setattr(readers, "FORMATS", dict(readers.FORMATS))
    exec(compile(example, name, "exec"), {})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


def test_every_benchmark_that_is_named_exists() -> None:
    named = re.findall(r"benchmarks/\w+\.py", README)
    assert named
    for name in named:
        assert (ROOT / name).is_file(), name


def test_every_local_link_and_picture_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README + CONTRIBUTING):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_the_table_of_methods_is_the_registry_s() -> None:
    assert methods_table() in README, "run: python -m momentous.methods README.md"


def test_every_method_says_what_it_needs_and_guarantees() -> None:
    for cls in REGISTRY.values():
        assert all((cls.summary, requirements(cls), cls.guarantee, cls.cost)), cls
