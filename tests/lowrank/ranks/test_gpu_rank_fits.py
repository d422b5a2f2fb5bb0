"""Two ranks that share a GPU fit what one process fits without it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")  # the ranks of these tests are those of torch.distributed

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "distributed")]

import launch  # noqa: E402
import rank_cases as cases  # noqa: E402

from momentous.lowrank.backends.device import gpu_available  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="no GPU to use")]


@pytest.mark.parametrize("name", cases.ON_GPU)
def test_two_ranks_on_one_gpu_fit_the_same_model(name, tmp_path_factory):
    program = str(HERE / "gpu_rank_program.py")
    _, ranks = launch.launched("torch", 2, tmp_path_factory, program)
    expected = cases.fit(None, name)
    for rank in ranks:
        assert rank[name]["nit"] == expected["nit"]
        assert rank[name]["objective"] == pytest.approx(expected["objective"], rel=1e-9)
        np.testing.assert_allclose(rank[name]["held out"], expected["held out"], rtol=1e-6)
