"""Any array goes in and the same kind comes out; sums that decide are float64 and replaceable."""

import os
import subprocess
import sys

import array_api_compat
import numpy as np
import pytest

from helpers import LIBRARIES, METHODS, Waves, fingerprint
from momentous import Status, iterate, minimize
from momentous.core import loop
from momentous.core.blocks import BLOCK
from momentous.core.space import Space

WAVES = Waves()
LARGE = BLOCK + 4_465


# --- type, shape, dtype and device are kept -------------------------------------------------------


def test_type_shape_and_dtype_are_kept(library_and_dtype, method):
    library, dtype = library_and_dtype
    problem, seen = Waves(6), []

    def both(x):
        seen.append(x)
        return problem.both(x)

    x0 = library.array(problem.start.reshape(2, 3), dtype)
    before = library.numpy(x0).copy()
    options = method.plain(problem) | {"tol": 1.0, "max_iterations": 30}
    result = minimize(both, x0, jac=True, **options)
    for array in (result.x, result.jac, result.best_x, *seen):
        assert isinstance(array, library.array_type)
        assert array.dtype == x0.dtype
        assert tuple(array.shape) == (2, 3)
        assert array_api_compat.device(array) == array_api_compat.device(x0)
    assert result.fun == float(problem.value(result.x))
    assert np.array_equal(library.numpy(x0), before), "x0 was written to"
    assert len(seen) > 3


def test_every_dtype_gets_as_far_as_it_can(library_and_dtype, adaptive):
    library, dtype = library_and_dtype
    x0 = library.array(WAVES.start, dtype)
    rounding = Space(x0).rounding
    tol = max(1e-5, 1e3 * rounding)
    result = minimize(WAVES.both, x0, jac=True, tol=tol, method=adaptive.name)
    assert result.status is Status.CONVERGED, result.message
    assert np.linalg.norm(library.numpy(WAVES.gradient(result.x))) <= 1.01 * tol


def test_double_precision_in_jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x0 = jax.numpy.asarray(WAVES.start)
        result = minimize(WAVES.both, x0, jac=True, tol=1e-9)
        assert result.success
        assert result.x.dtype == jax.numpy.float64
        same = minimize(WAVES.both, WAVES.start, jac=True, tol=1e-9)
        assert np.allclose(np.asarray(result.x), same.x, atol=1e-9)


SHAPES = [(), (1,), (2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_is_kept(library, shape):
    keeps_the_shape(library, shape, METHODS[1])


@pytest.mark.parametrize("shape", [(), (2, 3, 4)], ids=str)
def test_every_method_keeps_the_shape(shape, method):
    keeps_the_shape(LIBRARIES[0], shape, method)


def keeps_the_shape(library, shape, method):
    problem = Waves(int(np.prod(shape)))
    x0 = library.array(problem.start.reshape(shape))
    seen = []

    def both(x):
        seen.append(x)
        return problem.both(x)

    options = method.plain(problem) | {"tol": 1e-2, "max_iterations": 25}
    result = minimize(both, x0, jac=True, **options)
    for array in (result.x, result.jac, result.best_x, *seen):
        assert isinstance(array, library.array_type)
        assert tuple(array.shape) == shape
    flat = library.array(problem.start)
    same = minimize(problem.both, flat, jac=True, **options)
    assert same.nit == result.nit
    assert np.allclose(library.numpy(same.x), library.numpy(result.x).reshape(-1), atol=1e-6)


def test_nothing_to_minimise_over_is_solved_at_once(library, method):
    x0 = library.array(np.empty((3, 0)))
    result = minimize(lambda x: 7.0, x0, jac=lambda x: x, tol=1.0, **method.plain(WAVES))
    assert result.success
    assert tuple(result.x.shape) == (3, 0)
    assert result.fun == 7.0
    assert result.grad_norm == 0.0


def test_nothing_to_minimise_over_by_differences():
    assert minimize(lambda x: 7.0, np.empty(0), jac="2-point").success


def of_the_user(kind):
    """x0 as users have it, and the plain array that it stands for."""
    plain = np.resize(WAVES.start, (4, 3)).copy()
    if kind == "fortran":
        return np.asfortranarray(plain), plain
    if kind == "transposed":
        return plain.T.copy().T, plain
    if kind == "strided":
        wide = np.zeros((8, 9))
        wide[::2, ::3] = plain
        return wide[::2, ::3], plain
    if kind == "reversed":
        return plain[::-1, ::-1].copy()[::-1, ::-1], plain
    if kind == "broadcast":
        return np.broadcast_to(plain[0], (4, 3)), np.array(np.broadcast_to(plain[0], (4, 3)))
    if kind == "read-only":
        locked = plain.copy()
        locked.flags.writeable = False
        return locked, plain
    if kind == "list":
        return plain.tolist(), plain
    if kind == "tuple":
        return tuple(map(tuple, plain.tolist())), plain
    if kind == "masked":
        return np.ma.masked_array(plain, mask=False), plain
    if kind == "subclass":
        return plain.view(np.recarray), plain
    if kind == "big-endian":
        return plain.astype(">f8"), plain
    if kind == "memory-mapped view":
        return np.frombuffer(plain.tobytes()).reshape(4, 3), plain
    raise ValueError(kind)


KINDS = [
    "fortran", "transposed", "strided", "reversed", "broadcast", "read-only", "list", "tuple",
    "masked", "subclass", "big-endian", "memory-mapped view",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_however_x0_lies_in_memory_the_run_is_the_same(kind, method):
    problem = Waves(12)
    x0, plain = of_the_user(kind)
    options = method.plain(problem) | {"jac": problem.gradient, "max_iterations": 30}
    result = minimize(problem.value, x0, **options)
    assert fingerprint(result) == fingerprint(minimize(problem.value, plain, **options))
    assert type(result.x) is np.ndarray
    assert result.x.flags.writeable
    assert np.array_equal(np.asarray(x0), plain), "x0 was written to"


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_however_the_gradient_lies_in_memory_the_run_is_the_same(order, method):
    problem = Waves(12)

    def gradient(x):
        g = problem.gradient(x)
        if order == "strided":
            wide = np.zeros((8, 6))
            wide[::2, ::2] = g
            return wide[::2, ::2]
        return np.asarray(g, order=order)

    start = problem.start.reshape(4, 3)
    options = method.plain(problem) | {"max_iterations": 30}
    result = minimize(problem.value, start, jac=gradient, **options)
    plain = minimize(problem.value, start, jac=problem.gradient, **options)
    assert fingerprint(result) == fingerprint(plain)


def test_tensors_that_are_not_contiguous(method):
    torch = pytest.importorskip("torch")
    problem = Waves(12)
    x0 = torch.asarray(np.resize(problem.start, (3, 4)).copy()).T
    options = method.plain(problem) | {"max_iterations": 20, "jac": problem.gradient}
    result = minimize(problem.value, x0, **options)
    plain = minimize(problem.value, x0.contiguous(), **options)
    assert torch.equal(result.x, plain.x)
    assert result.nit == plain.nit


@pytest.mark.parametrize(
    ("x0", "shape"),
    [(3, (1,)), (3.0, (1,)), ([1, 2, 3], (3,)), (np.arange(3), (3,)), ([True, False], (2,))],
    ids=str,
)
def test_whole_numbers_become_floats_and_numbers_vectors_as_in_scipy(x0, shape):
    result = minimize(lambda x: float(np.sum((x - 0.5) ** 2)), x0, jac=lambda x: 2 * (x - 0.5))
    assert result.x.dtype == np.float64
    assert result.x.shape == shape
    assert np.allclose(result.x, 0.5, atol=1e-5)


def test_whole_numbers_of_other_libraries_become_floats(library):
    whole = library.xp.asarray([1, 2, 3])
    result = minimize(lambda x: (library.xp.sum(x * x), 2.0 * x), whole, jac=True)
    assert result.success
    assert isinstance(result.x, library.array_type)
    assert "float" in str(result.x.dtype)


@pytest.mark.parametrize(
    "x0", [np.ones(2, complex), [1j, 2.0], "abc", ["a", "b"], None, {"x": 1.0}, [[1.0], [1.0, 2.0]]]
)
def test_what_is_no_real_array_is_refused(x0):
    with pytest.raises((TypeError, ValueError), match="x0"):
        minimize(lambda x: 1.0, x0, jac=lambda x: x)


def test_complex_numbers_and_masked_entries_are_refused_with_a_remedy():
    with pytest.raises(TypeError, match="split it into real and imaginary parts"):
        minimize(lambda x: 1.0, np.ones(2, complex), jac=lambda x: x)
    with pytest.raises(ValueError, match="masked entries"):
        minimize(lambda x: 1.0, np.ma.masked_array(np.ones(2), [True, False]), jac=lambda x: x)


def test_complex_arrays_of_other_libraries_are_refused(library):
    x0 = library.xp.asarray([1j, 2j])
    with pytest.raises(TypeError, match=r"x0 has dtype .*complex.*real"):
        minimize(lambda x: 1.0, x0, jac=lambda x: x)


def test_a_parameter_that_requires_grad_is_neither_changed_nor_tracked():
    torch = pytest.importorskip("torch")
    x0 = torch.nn.Parameter(torch.ones(3))
    result = minimize(lambda x: torch.sum(x**2), x0, jac="autodiff", max_iterations=5)
    assert not result.x.requires_grad
    assert not result.jac.requires_grad
    assert torch.equal(x0, torch.ones(3))
    assert x0.grad is None
    by_hand = minimize(lambda x: torch.sum(x**2), x0, jac=lambda x: 2 * x * x0 / x0)
    assert not by_hand.jac.requires_grad


def test_autodiff_works_where_gradients_are_switched_off():
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        assert minimize(lambda x: torch.sum(x**2), torch.ones(3), jac="autodiff").success


def test_tensors_in_inference_mode():
    torch = pytest.importorskip("torch")
    x0 = torch.ones(3)
    with torch.inference_mode():
        result = minimize(lambda x: torch.sum(x**2), x0, jac=lambda x: 2 * x)
    assert result.success


@pytest.mark.parametrize("number", [np.float64, np.float32, np.longdouble, np.int64])
def test_parameters_may_be_numpy_numbers(number, library):
    """L is often the result of a computation in NumPy; it must not change the dtype of x."""
    x0 = library.array(WAVES.start, "float32")
    seen = []

    def both(x):
        seen.append(x.dtype)
        return WAVES.both(x)

    for options in (
        {"method": "ragd", "gradient_lipschitz": number(100), "hessian_lipschitz": number(100)},
        {"method": "ada-ragd", "gradient_lipschitz": number(100)},
        {"method": "ada-rhb", "tol": number(1), "initial_radius": number(2)},
        {"method": "ragd", "step_size": np.float64(0.01), "momentum": np.float64(0.9),
         "radius": number(1), "epoch_length": np.int64(9)},
    ):  # fmt: skip
        minimize(both, x0, jac=True, max_iterations=12, **options)
    assert set(seen) == {x0.dtype}


# --- one trajectory in every library --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_trajectory_is_the_same_in_every_library(library, method, dtype):
    if library.name == "jax" and dtype == "float64":
        pytest.skip("double precision in JAX is tested apart")
    options = method.eventful | {"jac": True, "max_iterations": 20}
    result = minimize(WAVES.both, library.array(WAVES.start, dtype), **options)
    wanted = minimize(WAVES.both, WAVES.start.astype(dtype), **options)
    tight = 1e-9 if dtype == "float64" else 1e-3
    assert np.allclose(library.numpy(result.x), wanted.x, rtol=tight, atol=tight)
    assert (result.nit, result.nfev, result.njev) == (wanted.nit, wanted.nfev, wanted.njev)
    assert decisions(result) == decisions(wanted)
    # Norms near zero are differences of rounded numbers: compare them on the scale of the first.
    norms, others = result.trace["grad_norm"], wanted.trace["grad_norm"]
    assert np.allclose(norms, others, rtol=tight, atol=tight * others[0])


# --- sums -----------------------------------------------------------------------------------------


def test_sums_are_accumulated_in_double_precision(library_and_dtype):
    library, dtype = library_and_dtype
    if dtype == "longdouble":
        pytest.skip("wider than double")
    for size in (1_000, 300_000):
        a = library.array(np.full(size, 0.1), dtype)
        exact = size * float(library.numpy(a)[0]) ** 2
        space = Space(a)
        assert space.inner(a, a) == pytest.approx(exact, rel=1e-10)
        assert type(space.inner(a, a)) is float
        assert space.norm(a) ** 2 == pytest.approx(exact, rel=1e-10)
        assert space.distance_squared(a, 0 * a) == pytest.approx(exact, rel=1e-10)


def test_the_travelled_distance_is_summed_in_double_precision():
    """One large and very many small moves: added up in float32 the small ones would vanish."""
    size = 1 << 20
    curvatures = np.full(size, 1e-4, dtype=np.float32)
    curvatures[0] = 1.0

    def both(x):
        g = curvatures * x
        return 0.5 * float(np.sum(g * x, dtype=np.float64)), g

    x0 = np.ones(size, dtype=np.float32)
    run = iterate(both, x0, jac=True, method="ragd", step_size=1.0, momentum=0.5, radius=1e6,
                  epoch_length=50, tol=0.0)  # fmt: skip
    exact, previous = 0.0, x0
    for step, _ in zip(run, range(3), strict=False):
        now = step.memory.epoch.x
        exact += float(np.sum((now.astype(np.float64) - previous) ** 2))
        previous = now
        travelled = step.memory.epoch.travelled
        assert travelled == pytest.approx(exact, rel=1e-12)
    naive = np.float32(0.0)
    for entry in ((1.0 - curvatures) - x0)[:200_000] ** 2:
        naive += entry
    assert abs(float(naive) - 1.0) < 1e-3 < exact - 1.0, "the case is one where float32 fails"


@pytest.mark.parametrize("size", [7, 5_000, 40_000, LARGE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_do_not_depend_on_layout(size, dtype):
    rng = np.random.default_rng(size)
    a, b = rng.standard_normal((2, size)).astype(dtype)
    shapes = [s for s in ((size,), (1, size), (size, 1), (size // 5, 5)) if np.prod(s) == size]
    pairs = [(a.reshape(s), b.reshape(s)) for s in shapes]
    assert len({Space(p).inner(p, q) for p, q in pairs}) == 1
    assert len({Space(p).distance_squared(p, q) for p, q in pairs}) == 1


def test_sums_do_not_depend_on_where_the_array_lies():
    """Wherever memory is given out, at multiples of 16 bytes; in between, ddot of CPUs without AVX
    has another last digit."""
    values = np.random.default_rng(0).standard_normal(5_003)
    memory = np.empty(values.nbytes + 64, np.uint8)
    sums = set()
    for offset in range(0, 64, 16):
        moved = memory[offset : offset + values.nbytes].view(float)
        moved[:] = values
        sums.add(Space(moved).inner(moved, moved))
    assert len(sums) == 1


def test_sums_do_not_depend_on_the_number_of_threads():
    code = (
        "import numpy as np; from momentous.core.space import Space\n"
        "r = np.random.default_rng(0)\n"
        "for n in (9_000, 20_000, 40_000, 60_000, 65_536, 70_000, 300_000):\n"
        "    a = r.standard_normal(n); print(Space(a).inner(a, a))"
    )
    outputs = set()
    for threads in ("1", "2"):
        chosen = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), threads)
        outputs.add(
            subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | chosen,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    assert len(outputs) == 1


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic_on_large_arrays_is_that_on_small_ones(size, dtype):
    rng = np.random.default_rng(1)
    x, y, z = rng.standard_normal((3, size)).astype(dtype)
    space = Space(x)
    for weight in (0.25, -1.7):
        exact = x + np.asarray(weight * (y.astype(float) - z), dtype)
        assert np.allclose(space.combination(x, weight, y, z), exact, rtol=1e-5, atol=1e-5)
        assert np.allclose(space.combination(x, weight, y), x + weight * y, rtol=1e-5, atol=1e-5)


# --- sums over ranks ------------------------------------------------------------------------------


def decisions(result):
    return [(nit, event.kind) for nit, event in result.trace.events]


def add_up(monkeypatch, total):
    """Let runs be those of one rank, whose sums these are over all of them."""
    monkeypatch.setattr(loop, "Space", lambda x: Space(x, total))


def test_every_length_goes_through_the_sum_over_ranks(method, monkeypatch):
    """With all lengths doubled, radii and tolerances doubled too give the same run."""
    factor = 2.0
    options = method.eventful | {"jac": True}
    plain = minimize(WAVES.both, WAVES.start, **options)
    stretched = dict(options)
    for name in ("radius", "initial_radius", "tol", "perturbation"):
        if name in stretched:
            stretched[name] *= factor
    add_up(monkeypatch, lambda sums: factor**2 * sums)
    result = minimize(WAVES.both, WAVES.start, **stretched)
    assert np.allclose(result.x, plain.x, rtol=1e-12)
    assert result.nit == plain.nit
    assert result.restarts == plain.restarts
    assert np.allclose(result.trace["grad_norm"], factor * plain.trace["grad_norm"], rtol=1e-9)


def test_a_perturbation_is_as_long_as_the_sum_over_ranks_says(monkeypatch):
    add_up(monkeypatch, lambda sums: 100.0 * sums)
    options = {"jac": True, "max_iterations": 1, "perturbation": 1e-2, "method": "perturbed-ragd",
               "step_size": 0.005, "momentum": 0.9, "radius": 1.0, "epoch_length": 12}  # fmt: skip
    lengths = []
    for seed in range(20):
        run = iterate(WAVES.both, np.zeros(3), rng=seed, **options)
        moved = run.memory.epoch.start
        lengths.append(10.0 * np.linalg.norm(moved))
    assert 0.5e-2 < max(lengths) <= 1e-2 * (1 + 1e-12)


def test_no_length_is_computed_on_one_rank_alone(method, monkeypatch):
    """On one shard of two, the other holding the same numbers, the run is that of the whole."""
    twice = Waves(6)
    options = method.eventful | {"jac": True}
    options.pop("perturbation", None)
    if method.name == "perturbed-ragd":
        pytest.skip("random displacements of the shards differ")
    whole = minimize(twice.both, np.tile(WAVES.start, 2), **options)
    add_up(monkeypatch, lambda sums: 2.0 * sums)
    shard = minimize(lambda x: (2 * WAVES.value(x), WAVES.gradient(x)), WAVES.start, **options)
    assert np.allclose(np.tile(shard.x, 2), whole.x, rtol=1e-12, atol=1e-14)
    assert shard.nit == whole.nit
    assert shard.restarts == whole.restarts
    assert shard.grad_norm == pytest.approx(whole.grad_norm, rel=1e-9)


def test_spaces_describe_themselves(library_and_dtype):
    library, dtype = library_and_dtype
    space = Space(library.array(np.ones((2, 3)), dtype))
    assert space.describe()["shape"] == [2, 3]
    if dtype != "longdouble":
        assert space.describe()["dtype"] == dtype
