"""The estimators' tests run on the GPU, too, where there is one."""

from __future__ import annotations

import pytest

from momentous.lowrank.backends import Backend, find_backend
from momentous.lowrank.backends.device import gpu_available

GPU = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="no GPU to use")]


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=GPU)])
def device(request, monkeypatch):
    """Where a test runs; on the GPU, whatever asks for the CPU gets the GPU's backend."""
    if request.param == "cuda":

        def on_gpu(backend="auto", device="cpu", entries=0):
            if isinstance(backend, Backend):
                return backend
            find_backend(backend, device, entries)  # what is refused there is refused here
            return find_backend("cuda", "cuda")

        for module in ("objective", "model.fitted", "estimators.imputer"):
            monkeypatch.setattr(f"momentous.lowrank.{module}.find_backend", on_gpu)
    return request.param
