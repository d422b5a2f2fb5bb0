"""The backend for GPUs gives what NumPy's gives; without a GPU it says what is missing."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from momentous import accelerate
from momentous.lowrank import ALSSweep, LowRankObjective, MMSweep, Penalty, Ratings, Sweep
from momentous.lowrank.backends import RowStep, find_backend
from momentous.lowrank.backends.device import gpu_available
from momentous.lowrank.losses import LOSSES, find_loss
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_available(), reason="no GPU that CuPy can use"),
]
on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu)])
TYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def some_ratings(m, n, count, loss="squared", rng=0):
    rng = np.random.default_rng(rng)
    chosen = rng.choice(m * n, count, replace=False)
    values = rng.integers(1, 6, count).astype(np.float64)
    ratings = Ratings(chosen // n, chosen % n, values, (m, n))
    return ratings.signs() if loss == "logistic" else ratings


def calls_to_a_side(backend, loss, dtype, size, ratings, weight=0.7):
    """All that a side can be asked for, as NumPy arrays."""
    (m, n), rng = ratings.shape, np.random.default_rng(1)
    left, right, current = (
        backend.asarray(0.5 * rng.standard_normal((k, size)), dtype) for k in (m, n, m)
    )
    weights = backend.asarray(np.full((m, size), weight), dtype)
    offsets = backend.asarray(rng.standard_normal(n), dtype)
    side = backend.side(ratings.by_row, find_loss(loss), 1)
    gradients = [backend.asarray(np.ones(one.shape), dtype) for one in (left, right)]
    values = [side.value(left, right), side.add_gradient(left, right, 0.3, *gradients)]
    arrays = [*gradients]
    for step in (
        RowStep(weights, right),
        RowStep(weights, right, offsets),
        RowStep(weights, right, offsets, current),
        RowStep(weights, right, None, 4.0 * current),
    ):
        rows, value = side.solve_rows(step)
        assert rows.dtype == dtype
        arrays.append(rows)
        values.append(value)
    return values, [
        array if isinstance(array, np.ndarray) else backend.to_host(array) for array in arrays
    ]


def assert_same(found, expected, accuracy):
    assert found[0] == pytest.approx(expected[0], rel=accuracy)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=accuracy * np.abs(other).max())


@on_gpu
@TYPES
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("size", [1, 5, 10, 13, 16, 33, 64])
def test_every_call_to_a_side_gives_what_numpy_gives(device, size, loss, dtype):
    ratings = some_ratings(90, 160, 5000, loss).astype(dtype)
    found, expected = (
        calls_to_a_side(find_backend(name, where), loss, dtype, size, ratings)
        for name, where in (("cuda", device), ("numpy", "cpu"))
    )
    assert_same(found, expected, 1e-10 if dtype == np.float64 else 1e-4)


def steps_of_conjugate_gradients(backend, loss, dtype, size, ratings, weight):
    """Half sweeps by two steps, and what ranks add up, as NumPy arrays."""
    (m, n), rng = ratings.shape, np.random.default_rng(1)
    F, u = (backend.asarray(0.5 * rng.standard_normal((k, size)), dtype) for k in (n, m))
    weights = backend.asarray(np.full((m, size), weight), dtype)
    offsets = backend.asarray(rng.standard_normal(n), dtype)
    side = backend.side(ratings.by_row, find_loss(loss), 1)
    values, arrays = [], []
    for step in (RowStep(weights, F), RowStep(weights, F, offsets, u)):
        rows, value = side.improve_rows(step, np.full(size, 0.25), 2)
        assert rows.dtype == dtype
        slopes = side.row_slopes(step)
        products = side.row_products(F, slopes.curvatures, u)
        values += [value, slopes.losses]
        arrays += [backend.to_host(rows), slopes.downwards, slopes.curved, products]
    return values, arrays


@on_gpu
@pytest.mark.parametrize(
    ("dtype", "weight", "accuracy"),
    # The last one has products of features in half precision.
    [(np.float64, 0.7, 1e-10), (np.float32, 1e-4, 1e-4), (np.float32, 0.7, 2e-3)],
)
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("size", [1, 13, 33, 64, 129])
def test_steps_of_conjugate_gradients_are_numpys(device, size, loss, dtype, weight, accuracy):
    for shape in ((90, 160, 5000), (7, 3000, 15_000)):  # the second: rows of many chunks
        ratings = some_ratings(*shape, loss).astype(dtype)
        found, expected = (
            steps_of_conjugate_gradients(
                find_backend(name, where), loss, dtype, size, ratings, weight
            )
            for name, where in (("cuda", device), ("numpy", "cpu"))
        )
        assert_same(found, expected, accuracy)


@on_gpu
@TYPES
@pytest.mark.parametrize("size", [200, 257])
def test_the_largest_ranks_are_solved_too(device, size, dtype):
    ratings = some_ratings(40, 300, 4000).astype(dtype)
    found, expected = (
        calls_to_a_side(find_backend(name, where), "squared", dtype, size, ratings)
        for name, where in (("cuda", device), ("numpy", "cpu"))
    )
    assert_same(found, expected, 1e-9 if dtype == np.float64 else 1e-3)


@on_gpu
@pytest.mark.parametrize("size", [10, 40])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_rows_of_many_chunks_are_added_up(device, size, loss):
    ratings = some_ratings(7, 3000, 15_000, loss).astype(np.float32)
    found, expected = (
        calls_to_a_side(find_backend(name, where), loss, np.float32, size, ratings)
        for name, where in (("cuda", device), ("numpy", "cpu"))
    )
    assert_same(found, expected, 1e-4)


@on_gpu
@TYPES
@pytest.mark.parametrize("size", [6, 20])
def test_systems_without_a_ridge_are_solved_by_the_shortest_change(device, size, dtype):
    ratings = some_ratings(40, 30, 150).astype(dtype)  # fewer entries per row than parameters
    found, expected = (
        calls_to_a_side(find_backend(name, where), "squared", dtype, size, ratings, 0.0)
        for name, where in (("cuda", device), ("numpy", "cpu"))
    )
    # The values are those of the least sums, which near-singular systems have in common.
    assert found[0] == pytest.approx(expected[0], rel=1e-4, abs=1e-4)


@on_gpu
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("penalty", [0.3, Penalty(0.5, 0.7, 0.5, biases=True)])
def test_objective_and_gradient_agree_with_the_cpu(device, loss, penalty):
    if loss == "implicit" and isinstance(penalty, Penalty):
        pytest.skip("the loss has no biases")
    ratings = some_ratings(80, 50, 1500, loss)
    mean = 0.2 if isinstance(penalty, Penalty) else 0.0
    there, here = (
        LowRankObjective(ratings, 4, loss, 1.0, penalty, mean=mean, **how)
        for how in ({"device": device}, {"backend": "numpy"})
    )
    x = np.random.default_rng(0).standard_normal(here.dimension)
    (value, gradient), (expected, other) = there.value_and_gradient(x), here.value_and_gradient(x)
    assert value == pytest.approx(expected, rel=1e-12)
    assert there.value(x) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(there.backend.to_host(gradient), other, rtol=1e-9, atol=1e-12)
    held_out = some_ratings(80, 50, 300, loss, rng=5)
    value_range = ratings.value_range
    assert there.error(
        there.backend.asarray(x, np.float64), held_out, value_range
    ) == pytest.approx(here.error(x, held_out, value_range), rel=1e-12)


@on_gpu
def test_the_start_is_that_of_the_cpu(device):
    ratings = some_ratings(300, 200, 9000)
    there = LowRankObjective(ratings, 5, device=device)
    expected = LowRankObjective(ratings, 5, backend="numpy").start()
    np.testing.assert_allclose(there.backend.to_host(there.start()), expected, atol=1e-8)


@on_gpu
@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float64, 1e-10), (np.float32, 1e-6)])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_twenty_accelerated_sweeps_reach_the_same_objective(device, loss, dtype, accuracy):
    ratings = some_ratings(300, 200, 9000, loss).astype(dtype)
    penalty = 5.0 if loss == "implicit" else Penalty(3.0, 1.0, 0.5, biases=True)
    reached = []
    for how in ({"device": device}, {"backend": "numpy"}):
        objective = LowRankObjective(ratings, 8, loss, 0.0, penalty, **how)
        sweep = Sweep(objective)
        start = sweep.begin(objective.random_start(np.random.default_rng(0)))
        result = accelerate(sweep, start, value=True, max_iterations=20, tol=0.0)
        assert isinstance(result.x, objective.backend.xp.ndarray)
        point = objective.backend.to_host(sweep.point(result.x))
        reached.append(LowRankObjective(ratings, 8, loss, 0.0, penalty).value(point))
    assert reached[0] == pytest.approx(reached[1], rel=accuracy)


@on_gpu
@TYPES
@pytest.mark.parametrize("size", [5, 130, 300])
def test_sums_over_partners_are_those_of_numpy(device, dtype, size):
    """Also with weights, and with more numbers than a pass takes at a time."""
    plain = some_ratings(200, 300, 9000).astype(dtype)
    numbers = np.random.default_rng(2).random((300, size)).astype(dtype)
    for ratings in (plain, plain.with_weights(1.0 + np.arange(plain.nnz) % 3)):
        found, expected = (
            kind.to_host(
                kind.side(ratings.by_row, find_loss("squared").of(ratings.by_row.values), 1)
                .partner_sums(kind.asarray(numbers, dtype))
            )
            for kind in (find_backend(device=device), find_backend("numpy"))
        )  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-13 if dtype == np.float64 else 1e-5)


@on_gpu
@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float64, 1e-9), (np.float32, 1e-4)])
@pytest.mark.parametrize("rank", [4, 20])
def test_learned_priors_are_those_of_the_cpu(device, rank, dtype, accuracy):
    ratings = some_ratings(300, 200, 12_000).astype(dtype)
    config = {"rank": rank, "half_sweeps": "exact", "max_iterations": 8, "tol": 0.0, "threads": 1}
    found, expected = (
        fit_model(ratings, FitConfig(device=where, **config)) for where in (device, "cpu")
    )
    assert found.objective == pytest.approx(expected.objective, rel=accuracy)
    assert found.model.learned.noise == pytest.approx(expected.model.learned.noise, rel=accuracy)
    values = found.result.trace["fun"]
    assert np.all(np.diff(values) < 1e-6 * np.abs(values[1:]))


@on_gpu
@pytest.mark.parametrize("kind", [ALSSweep, MMSweep])
def test_plain_sweeps_never_raise_the_objective_in_single_precision(device, kind):
    loss = "squared" if kind is ALSSweep else "logistic"
    ratings = some_ratings(60, 40, 400, loss).astype(np.float32)
    sweep = kind(ratings, 6, 0.0 if kind is ALSSweep else 0.01, device=device)
    x, values = sweep.start(), []
    for _ in range(15):
        x, value = sweep(x)
        values.append(value)
    assert np.all(np.diff(values) <= 1e-6 * np.abs(values[:-1]))


@on_gpu
def test_the_same_call_gives_the_same_bits_and_threads_do_not_disturb_each_other(device):
    ratings = some_ratings(400, 300, 30_000).astype(np.float32)
    objective = LowRankObjective(ratings, 10, ridge=1.0, device=device)
    x = objective.random_start(np.random.default_rng(0))

    def work():
        value, gradient = objective.value_and_gradient(x)
        rows, least = objective.half_sweep(0, None, objective.split(x)[1])
        return value, least, gradient.get().tobytes(), rows.get().tobytes()

    first, found = work(), []
    threads = [threading.Thread(target=lambda: found.append(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [first] * 4


@on_gpu
def test_a_loss_from_outside_runs_on_the_gpu_and_too_high_a_rank_is_refused(device):
    class Mine(type(find_loss("squared"))):
        name = "mine"

    ratings = some_ratings(30, 20, 200)
    x = np.random.default_rng(0).standard_normal(100)
    here, there = (LowRankObjective(ratings, 2, Mine(), device=d).value(x) for d in ("cpu", device))
    assert there == pytest.approx(here, rel=1e-12)
    wide = some_ratings(300, 300, 4000)
    with pytest.raises(ValueError, match="ranks up to 256"):
        LowRankObjective(wide, 280, device=device).value(np.zeros(600 * 280))


@on_gpu
def test_too_little_memory_is_said_with_the_bytes(device, monkeypatch):
    import cupy

    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: (1000, 10**9))
    cupy.get_default_memory_pool().free_all_blocks()
    with pytest.raises(MemoryError, match=r"entries need about [\d,]+ bytes on the GPU, and"):
        LowRankObjective(some_ratings(300, 200, 20_000), 2, device=device)


@on_gpu
def test_objectives_leave_no_memory_behind(device):
    import cupy

    ratings, pool, used = some_ratings(60, 40, 900), cupy.get_default_memory_pool(), []
    for _ in range(30):
        objective = LowRankObjective(ratings, 3, ridge=1.0, device=device)
        objective.value_and_gradient(objective.start())
        del objective
        used.append(pool.used_bytes())
    assert used[-1] <= used[4]


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


ASK = """
from momentous.lowrank import LowRankObjective, Ratings
ratings = Ratings([0, 1, 2], [0, 1, 1], [1.0, 2.0, 3.0])
assert LowRankObjective(ratings, 1, device="auto").backend.device == "cpu"
try:
    LowRankObjective(ratings, 1, device="cuda")
except (ImportError, RuntimeError) as error:
    print(type(error).__name__, error)
"""


def test_without_cupy_it_says_what_to_install():
    told = run_python("import sys; sys.modules['cupy'] = None" + ASK)
    assert "device='cuda' needs cupy" in told
    assert 'pip install "momentous[cuda]"' in told


FAKE = """
import sys, types
class CUDARuntimeError(RuntimeError): pass
def count():
    {count}
runtime = types.SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError, getDeviceCount=count, getDevice=lambda: 0,
    driverGetVersion=lambda: 12020, runtimeGetVersion=lambda: 13000,
    deviceGetAttribute=lambda code, device: {{75: 7, 76: 5}}[code],
)
cupy = types.ModuleType("cupy")
cupy.cuda = types.SimpleNamespace(runtime=runtime)
sys.modules["cupy"] = cupy
"""


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("raise CUDARuntimeError('cudaErrorNoDevice: no CUDA-capable device')", "no NVIDIA GPU"),
        ("return 0", "no NVIDIA GPU that can be used here; take device='cpu'"),
        (
            "raise CUDARuntimeError('cudaErrorInsufficientDriver: driver version is insufficient')",
            "the GPU driver is too old: it supports CUDA 12.2, and CuPy is made for CUDA 13.0",
        ),
        ("return 1", "has compute capability 7.5, and device='cuda' needs 8.0"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_named_in_one_sentence(count, words):
    told = run_python(FAKE.format(count=count) + ASK)
    assert told.startswith("DeviceError")
    assert words in told
    assert len(told.splitlines()) == 1
