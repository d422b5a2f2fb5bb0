"""The same runs on a GPU, where there is one: CuPy, PyTorch and JAX."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from momentous import RAGD, RHB, AdaRAGD, AdaRHB, Method, PerturbedRAGD, minimize, testbed
from momentous.core.space import Space, to_numpy

# Convex, so that two roundings of one trajectory stay together.
PROBLEM = testbed.rotated(testbed.separable("log-cosh", np.linspace(0.5, 2, 12), np.full(12, 1.0)))
CONSTANTS = (PROBLEM.gradient_lipschitz, PROBLEM.hessian_lipschitz)
METHODS = [
    AdaRAGD(step_size=0.2, hessian_lipschitz=1.0, eps=1e-4),  # no probe: it amplifies rounding
    AdaRHB(step_size=0.2, hessian_lipschitz=1.0, eps=1e-4),
    RAGD(*CONSTANTS, eps=1e-3),
    RHB(*CONSTANTS, eps=1e-8),
    PerturbedRAGD(*CONSTANTS, eps=1e-2),
]


def on_gpu(library: str, values: np.ndarray) -> Any:
    """``values`` as an array of that library on its first GPU; skips where there is none."""
    pytest.importorskip(library)
    if library == "torch":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("PyTorch sees no GPU")
        return torch.asarray(values.copy(), device="cuda")
    if library == "cupy":
        cupy = importlib.import_module("cupy")
        if not cupy.cuda.is_available():
            pytest.skip("CuPy sees no GPU")
        return cupy.asarray(values)
    import jax

    gpus = [device for device in jax.devices() if device.platform == "gpu"]
    if not gpus:
        pytest.skip("JAX sees no GPU")
    return jax.device_put(values, gpus[0])


@pytest.fixture(params=["torch", "cupy", "jax"])
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_gpu_takes_the_same_path_and_keeps_type_and_device(
    library: str, method: Method
) -> None:
    start = PROBLEM.start.astype(np.float32) + np.float32(0.25)
    x0 = on_gpu(library, start)
    options = {"jac": PROBLEM.gradient, "method": method, "max_iterations": 40}
    here = minimize(PROBLEM.value, start, **options)
    there = minimize(PROBLEM.value, x0, **options)
    assert type(there.x) is type(x0)
    assert there.x.device == x0.device
    assert there.x.dtype == x0.dtype
    assert (here.nit, here.restarts) == (there.nit, there.restarts)
    np.testing.assert_allclose(to_numpy(there.x), here.x, atol=2e-4)


def test_sums_on_the_gpu_are_accumulated_in_double_precision(library: str) -> None:
    values = np.full(3_000_001, 1.1, np.float32)
    x = on_gpu(library, values)
    exact = float(np.dot(values.astype(np.float64), values.astype(np.float64)))
    assert Space(x).inner(x, x) == pytest.approx(exact, rel=1e-6 if library == "jax" else 1e-12)


def test_a_run_on_the_gpu_resumes_to_the_same_point(library: str, tmp_path: Path) -> None:
    x0 = on_gpu(library, PROBLEM.start.astype(np.float32) + np.float32(0.25))
    options = {"jac": PROBLEM.gradient, "tol": 1e-4}
    whole = minimize(PROBLEM.value, x0, **options)
    path = tmp_path / "run.npz"
    minimize(PROBLEM.value, x0, max_iterations=7, checkpoint=path, **options)
    resumed = minimize(PROBLEM.value, x0, resume=path, **options)
    assert resumed.nit == whole.nit
    np.testing.assert_allclose(to_numpy(resumed.x), to_numpy(whole.x), atol=1e-5)
