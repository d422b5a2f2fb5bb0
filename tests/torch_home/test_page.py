"""What docs/start-pytorch.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "start-pytorch.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads wait for each other where other tests run
    assert len(EXAMPLES) >= 4
    names: dict[str, object] = {}
    try:
        for number, example in enumerate(EXAMPLES):
            exec(compile(example, f"example {number}", "exec"), names)
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert "is within the tolerance 0.0001" in printed
    assert "second-order" in printed


def test_every_link_and_benchmark_exists() -> None:
    folder = Path(__file__).parents[2]
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (folder / "docs" / target).exists(), target
    for name in re.findall(r"benchmarks/\w+\.py", PAGE):
        assert (folder / name).is_file(), name
