"""The same runs on a GPU, where there is one: CuPy, PyTorch and JAX."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from momentous import LBFGS, RAGD, RHB, AdaRAGD, AdaRHB, Method, PerturbedRAGD, minimize, testbed
from momentous.core import passes
from momentous.core.blocks import BLOCK
from momentous.core.space import Space, to_numpy

pytestmark = pytest.mark.gpu

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


# --- passes ---------------------------------------------------------------------------------------

PASSES = [
    (passes.INNER, 2, 0), (passes.DISTANCE, 2, 0), (passes.ADD, 2, 1),
    (passes.ADD_DIFFERENCE, 3, 1),
    (passes.STEPPED, 3, 1), (passes.GRADIENT_ALONG, 2, 0), (passes.MOMENTUM, 3, 2),
    (passes.FREE_NESTEROV, 4, 3), (passes.FREE_HEAVY_BALL, 4, 3),
    (passes.inners(8), 9, 0), (passes.weighted_sum(4), 4, 4),
    (passes.direction(9), 10, 9), (passes.new_pair(20), 23, 0),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 1003, 200_001])
def test_passes_on_the_gpu_are_those_of_numpy(library: str, size: int) -> None:
    random = np.random.default_rng(1)
    for work, count, numbers in PASSES:
        vectors = [random.standard_normal(size).astype(np.float32) for _ in range(count)]
        weights = [0.5 + 0.25 * i for i in range(numbers)]
        there = [on_gpu(library, vector) for vector in vectors]
        value = there[0].sum()
        made, sums, brought = Space(there[0]).compute(work, there, weights, value)
        assert all(type(array) is type(there[0]) for array in made)
        with_numpy, products = work.formula(*vectors, *weights)
        for mine, other in zip(made, with_numpy, strict=True):
            np.testing.assert_allclose(to_numpy(mine), other, rtol=1e-5, atol=1e-5)
        exact = [float(a.astype(float) @ b.astype(float)) for a, b in products]
        np.testing.assert_allclose(sums, exact, rtol=1e-5, atol=1e-5 * size)
        if sums:
            assert brought == pytest.approx(float(value), rel=1e-6)


@contextlib.contextmanager
def no_hidden_transfer(library: str) -> Iterator[None]:
    """What moves data to the host behind the library's back is refused (CuPy has no such mode)."""
    if library == "torch":
        import torch

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "a prototype feature"
                torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
    elif library == "jax":
        import jax

        with jax.transfer_guard_device_to_host("disallow"):
            yield
    else:
        yield


@pytest.mark.parametrize(
    "method",
    [
        AdaRAGD(step_size=0.05, hessian_lipschitz=1.0, eps=1e-6),
        AdaRHB(step_size=0.05, hessian_lipschitz=1.0, eps=1e-6),
        AdaRAGD(),
        LBFGS(),
    ],
    ids=["ada-ragd-given", "ada-rhb-given", "ada-ragd", "lbfgs"],
)
def test_long_vectors_stay_on_the_gpu(library: str, method: Method) -> None:
    size = BLOCK + 1003
    scales = np.linspace(1.0, 10.0, size, dtype=np.float32)
    start = np.ones(size, np.float32)

    def run(a: Any, x0: Any) -> Any:
        def both(x: Any) -> Any:
            return 0.5 * (a * x * x).sum(), a * x

        return minimize(both, x0, jac=True, method=method, tol=1e-2, max_iterations=25)

    here = run(scales, start)
    a, x0 = on_gpu(library, scales), on_gpu(library, start)
    run(a, x0)  # what is compiled is so now
    with no_hidden_transfer(library):
        there = run(a, x0)
    assert type(there.x) is type(x0)
    assert there.nit == here.nit
    np.testing.assert_allclose(to_numpy(there.x), here.x, atol=1e-4)
    again = run(a, x0)
    assert np.array_equal(to_numpy(again.x), to_numpy(there.x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # as it begins
def test_compiled_objectives_on_the_gpu() -> None:
    torch = pytest.importorskip("torch")
    scales = on_gpu("torch", np.linspace(1.0, 10.0, 1000, dtype=np.float32))
    x0 = torch.ones_like(scales)

    def both(x: Any) -> Any:
        return 0.5 * (scales * x * x).sum(), scales * x

    plain = minimize(both, x0, jac=True, tol=1e-3)
    for mode in ("default", "reduce-overhead"):  # the second one answers into the same memory
        compiled = minimize(torch.compile(both, mode=mode), x0, jac=True, tol=1e-3)
        assert compiled.nit == plain.nit
        np.testing.assert_allclose(to_numpy(compiled.x), to_numpy(plain.x), atol=1e-5)
