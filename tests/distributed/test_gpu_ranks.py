"""Ranks whose x is on a GPU: by NCCL, or through the host where several ranks share one GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launch import launch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("size", [1, 2])
def test_tensors_on_a_gpu_take_the_path_of_one_process(size, tmp_path):
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("no GPU")
    output = launch("torch", size, "gpu_program.py", tmp_path)
    for rank in range(size):
        file = tmp_path / f"{rank}.json"
        assert file.exists(), output[-4000:]
        found = json.loads(file.read_text())
        assert found["on"] == ["cuda"] * 5
        assert found["summed"] == [[float(size)]] * 4
        for first in (0, 3):  # of each method: alone, data spread, variables spread
            for other in (first + 1, first + 2):
                assert found["funs"][other] == pytest.approx(found["funs"][first], rel=1e-8)
                assert found["paths"][other] == found["paths"][first]
        assert found["sent"] == [8 * (150 + 2), 1]
        named = "ZeroDivisionError: no such number"
        assert found["failure"] in (named, f"RankError: rank {size - 1} failed: {named}")
