"""Bounds on the host: never outside, the right end, and no bound is no change."""

import warnings

import numpy as np
import pytest
import scipy
from scipy import optimize
from tests.bounds.boxes import TAKE_BOUNDS, Boxed, random_box, solved_by_faces
from tests.helpers import fingerprint

import momentous
from momentous import LBFGS, Safeguarded, Status, UniversalHeavyBall, iterate, minimize
from momentous.core.box import read_sides
from momentous.core.machine import Host
from momentous.core.space import Space
from momentous.distributed import Alone, Data, Variables
from momentous.methods.classical.matrix import Matrix
from momentous.methods.classical.projected_gradient import ProjectedGradient
from momentous.methods.registry import REGISTRY

each_method = pytest.mark.parametrize("method", TAKE_BOUNDS)

# Older releases of SciPy call it seed.
SEED = {"rng" if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15) else "seed": 0}


def run(problem, method="auto", **options):
    options = {"jac": True, "tol": 1e-8, "bounds": problem.bounds} | options
    return minimize(problem.both, problem.start, method=method, **options)


# --- what is promised of every run ---------------------------------------------------------------


@each_method
@pytest.mark.parametrize("seed", range(25))
def test_no_false_success_and_nothing_outside(method, seed):
    problem = random_box(seed)
    result = run(problem, method, max_evaluations=20_000)
    assert problem.outside == 0
    assert result.nfev == result.njev == problem.calls
    stationarity = problem.stationarity(result.x)
    assert result.success == (stationarity <= 1e-8 * (1 + 1e-6)) or method == "gd"
    assert not result.success or stationarity <= 1.001e-8
    assert result.status in (Status.CONVERGED, Status.MAX_EVALUATIONS, Status.NO_PROGRESS)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "count"), [("auto", 500), ("ada-ragd", 60), ("ada-rhb", 60)])
def test_500_random_boxes(method, count):
    for seed in range(count):
        problem = random_box(seed, most=30)
        result = run(problem, method, max_evaluations=50_000)
        assert problem.outside == 0, seed
        assert not result.success or problem.stationarity(result.x) <= 1.001e-8, seed
        assert result.success or result.status is Status.NO_PROGRESS, (seed, result.message)


@pytest.mark.parametrize("seed", range(12))
def test_quadratics_in_boxes_have_the_value_of_their_best_face(seed):
    problem = random_box(100 + seed, most=6, waves=False)
    result = run(problem, tol=1e-9)
    assert result.success
    assert result.fun == pytest.approx(solved_by_faces(problem), rel=1e-12, abs=1e-12)


@each_method
def test_every_array_library_stays_inside(method, library):
    problem = random_box(3)
    dtype = "float64" if "float64" in library.dtypes else "float32"
    tol = 1e-8 if dtype == "float64" else 1e-4
    # What the dtype holds of the bounds: one of the sides is 1e-8.
    problem.lower, problem.upper = read_sides(problem.bounds, problem.start.shape, dtype)
    x0 = library.array(problem.start, dtype)
    result = minimize(problem.both, x0, jac=True, bounds=problem.bounds, method=method, tol=tol)
    assert result.success
    assert problem.outside == 0
    assert type(result.x) is type(x0)
    assert result.x.dtype == x0.dtype
    assert problem.stationarity(library.numpy(result.x)) <= 2 * tol
    sides = np.sign(np.asarray(result.active, dtype=float))
    x = library.numpy(result.x)
    assert ((sides == 0) | (x <= problem.lower + 1e-6) | (x >= problem.upper - 1e-6)).all()


def test_pairs_of_every_library(library):
    size, dtype = 200, library.dtypes[-1] if library.name != "numpy" else "float32"
    r = np.random.default_rng(size)
    A = r.standard_normal((size, size))
    low, up = read_sides((-0.3 * r.random(size), 0.3 * r.random(size)), (size,), dtype)
    problem = Boxed(A @ A.T / size + np.eye(size), r.standard_normal(size), 1.0, low, up, low)
    tol = 1e-8 if dtype == "float64" else 2e-3
    x0 = library.array(low, dtype)
    result = minimize(problem.both, x0, jac=True, bounds=(low, up), tol=tol)
    assert result.success
    assert problem.outside == 0
    assert problem.stationarity(library.numpy(result.x)) <= 1.1 * tol
    assert result.nfev < 60


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [90, 300])
def test_many_variables_by_matrix_and_by_pairs(dtype, size):
    r = np.random.default_rng(size)
    A = r.standard_normal((size, size))
    low, up = -0.3 * r.random(size), 0.3 * r.random(size)
    problem = Boxed(A @ A.T / size + 0.1 * np.eye(size), r.standard_normal(size), 1.0, low, up, low)
    tol = 1e-8 if dtype == "float64" else 2e-3
    result = minimize(problem.both, low.astype(dtype), jac=True, bounds=(low, up), tol=tol)
    assert result.success
    assert problem.outside == 0
    assert problem.stationarity(result.x) <= 1.1 * tol + 1e-5 * (dtype == "float32")
    assert 0 < np.count_nonzero(result.active) < size


@pytest.mark.parametrize("jac", ["2-point", "3-point", None])
@each_method
def test_differences_stay_inside(method, jac):
    problem = random_box(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = minimize(
            problem.value, problem.start, jac=jac, bounds=problem.bounds, method=method, tol=1e-5
        )
    assert problem.outside == 0
    assert problem.stationarity(result.x) <= 1e-4


def test_differences_are_derivatives_in_a_narrow_box():
    def f(x):
        assert (x >= 1.0).all()
        assert (x <= top).all()
        return float(np.sum(np.exp(x)))

    top = np.array([1.0 + 1e-3, 1.0 + 1e-9, np.inf, 1.0])
    for jac, error in (("2-point", 1e-6), ("3-point", 1e-6)):
        found = minimize(f, np.ones(4), jac=jac, bounds=(1.0, top), max_iterations=0).jac
        assert np.allclose(found[[0, 2]], np.e, rtol=error)
        assert found[1] == pytest.approx(np.e, rel=1e-5)
        assert np.isnan(found[3])  # it cannot be moved


def test_check_gradient_and_differences_stay_inside_in_every_library(library):
    dtype = library.dtypes[-1]
    problem = random_box(11)
    problem.lower, problem.upper = read_sides(problem.bounds, problem.start.shape, dtype)
    x0 = library.array(np.clip(problem.start, problem.lower, problem.upper), dtype)
    for options in ({"jac": True, "check_gradient": True}, {"jac": "3-point"}):
        f = problem.both if options["jac"] is True else problem.value
        minimize(f, x0, bounds=problem.bounds, max_iterations=5, **options)
        assert problem.outside == 0
    assert problem.calls > 20


@each_method
def test_probes_of_the_noise_stay_inside(method):
    problem = random_box(12)

    def rough(x):
        value, gradient = problem.both(x)
        return float(np.round(value, 5)), gradient

    found = minimize(
        rough, problem.start, jac=True, bounds=problem.bounds, method=method, tol=1e-14,
        max_evaluations=3_000,
    )  # fmt: skip
    assert problem.outside == 0
    assert problem.stationarity(found.x) <= 1e-2
    assert found.message


def test_check_gradient_stays_inside():
    problem = random_box(11)
    run(problem, check_gradient=True)
    assert problem.outside == 0

    def wrong(x):
        value, gradient = problem.both(x)
        return value, gradient * 1.5

    with pytest.raises(ValueError, match="not the gradient"):
        minimize(wrong, problem.start, jac=True, bounds=problem.bounds, check_gradient=True)
    assert problem.outside == 0


@pytest.mark.parametrize("outside", [np.nan, np.inf, "raise"])
def test_what_f_does_outside_is_of_no_account(outside):
    def f(x):
        if (x <= 0.0).any() and (x < 0.0).any():
            if outside == "raise":
                raise ArithmeticError(x)
            return outside, np.full_like(x, np.nan)
        return float(np.sum(np.sqrt(1.0 + x) + (x - 0.5 * np.arange(4)) ** 2)), 0.5 / np.sqrt(
            1.0 + x
        ) + 2 * (x - 0.5 * np.arange(4))

    result = minimize(f, np.full(4, 3.0), jac=True, bounds=(0.0, None), tol=1e-10)
    assert result.success
    assert result.active.tolist() == [-1, 0, 0, 0]


# --- no bounds, no change ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 200])
@each_method
def test_infinite_bounds_change_nothing(method, size):
    def f(x):
        y = x[1:] - x[:-1] ** 2
        g = np.zeros_like(x)
        g[1:] += 20 * y
        g[:-1] += -40 * y * x[:-1] - 2 * (1 - x[:-1])
        return float(10 * y @ y + np.sum((1 - x[:-1]) ** 2)), g

    options = {"jac": True, "method": method, "max_iterations": 60}
    plain = minimize(f, np.zeros(size), **options)
    for bounds in ((None, None), (-np.inf, np.inf), [(None, None)] * size, optimize.Bounds()):
        boxed = minimize(f, np.zeros(size), bounds=bounds, **options)
        assert fingerprint(boxed) == fingerprint(plain)
        assert "active" not in boxed


def test_bounds_that_are_never_met_change_no_point():
    problem = Boxed(np.diag([1.0, 10.0, 100.0]), np.ones(3), 0.0, -1e9, 1e9, np.ones(3))
    plain = minimize(problem.both, problem.start, jac=True, method="lbfgs", tol=1e-9)
    boxed = minimize(
        problem.both, problem.start, jac=True, method="lbfgs", tol=1e-9, bounds=(None, 1e9)
    )
    assert (plain.x == boxed.x).all()
    assert plain.nfev == boxed.nfev


def test_momentum_on_faces_needs_fewer_gradients_than_projected_steps():
    r, size = np.random.default_rng(3), 60
    basis, spread = np.linalg.qr(r.standard_normal((size, size)))[0], np.geomspace(1e-4, 1, size)
    low, up = -5.0 * r.random(size), 5.0 * r.random(size)
    c = 3.0 * basis @ (spread * r.standard_normal(size))
    counts = {}
    for method in ("gd", "ada-ragd", "ada-rhb"):
        problem = Boxed(basis * spread @ basis.T, c, 0.0, low, up, low)
        found = run(problem, method, tol=1e-7, max_evaluations=20_000)
        assert found.success
        assert problem.outside == 0
        assert 0 < np.count_nonzero(found.active) < size
        counts[method] = found.nfev
    assert max(counts["ada-ragd"], counts["ada-rhb"]) < 0.5 * counts["gd"]


# --- edges ---------------------------------------------------------------------------------------


@each_method
def test_fixed_variables(method):
    problem = random_box(5)
    problem.lower[0] = problem.upper[0] = problem.start[0]
    result = run(problem, method, max_evaluations=20_000)
    assert result.x[0] == problem.start[0]
    assert result.active[0] != 0
    problem.lower[:] = problem.upper[:] = problem.start
    result = run(problem, method)
    assert result.success
    assert (result.x == problem.start).all()
    assert result.grad_norm == 0.0


@each_method
def test_a_box_of_one_unit_of_rounding(method):
    start = np.array([1.0, -2.0, 0.0, 1e3])
    upper = np.nextafter(start, np.inf)
    c = np.array([1.0, -1.0, -1.0, 1e-3])
    problem = Boxed(np.zeros((4, 4)), c, 0.0, start, upper, upper)
    result = run(problem, method, tol=0)
    assert problem.outside == 0
    assert result.success
    assert (result.x == np.where(c > 0, start, upper)).all()


@each_method
def test_a_start_at_a_vertex_that_is_the_solution(method):
    problem = Boxed(np.eye(3), np.full(3, 9.0), 0.0, np.zeros(3), np.ones(3), np.zeros(3))
    result = run(problem, method)
    assert result.nit == 0
    assert result.success
    assert result.active.tolist() == [-1, -1, -1]
    assert result.multipliers.tolist() == [9.0, 9.0, 9.0]
    assert result.optimality == 0.0


def test_the_end_is_told_in_its_words():
    problem = random_box(2)
    result = run(problem)
    assert result.message.startswith("the projected gradient norm ")
    exact = Boxed(np.eye(2), np.array([-5.0, 5.0]), 0.0, -np.ones(2), np.ones(2), np.zeros(2))
    ended = run(exact, tol=0)
    assert ended.message == "the projected gradient is exactly zero"
    assert ended.success
    assert ended.active.tolist() == [1, -1]


def test_the_trace_has_the_size_of_the_face():
    problem = Boxed(np.eye(3), np.full(3, 9.0), 0.0, np.zeros(3), np.ones(3), np.ones(3) / 2)
    result = run(problem)
    assert result.trace["active"].tolist()[0] == 0
    assert result.trace["active"][-1] == 3
    assert len(result.trace["active"]) == len(result.trace)


def test_error_bars_of_the_free_variables():
    r = np.random.default_rng(0)
    for size in (6, 150):
        A = r.standard_normal((size, size))
        Q, c = A @ A.T / size + np.eye(size), r.standard_normal(size)
        problem = Boxed(Q, c, 0.0, np.full(size, -0.2), np.full(size, 0.2), np.zeros(size))
        result = run(problem, tol=1e-12, max_iterations=300)
        free = result.active == 0
        part = np.asarray(result.hess_inv)
        assert not part[~free].any()
        assert not part[:, ~free].any()
        v = r.standard_normal(size)
        assert np.allclose(result.hess_inv @ v, part @ v, rtol=1e-6, atol=1e-9)
        if size == 6:
            exact = np.linalg.inv(Q[np.ix_(free, free)])
            assert np.allclose(part[np.ix_(free, free)], exact, rtol=0.05, atol=0.02)


# --- forms and refusals --------------------------------------------------------------------------


def test_forms_of_bounds():
    expected = [[0.0, -np.inf], [1.0, 5.0]]
    forms = [
        [(0, 1), (None, 5)],
        ((0, 1), (-np.inf, 5)),
        np.array([[0, 1], [-np.inf, 5]]),
        optimize.Bounds([0, -np.inf], [1, 5]),
        iter([(0, 1), (None, 5)]),
    ]
    for form in forms:
        assert np.array(read_sides(form, (2,), "float64")).tolist() == expected
    assert np.array(read_sides((0, [1, 2, 3]), (3,), "float64")).tolist() == [[0] * 3, [1, 2, 3]]
    assert read_sides((None, 1), (2, 2), "float64")[1].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    grid = [(i, i + 1) for i in range(4)]
    assert read_sides(grid, (2, 2), "float64")[0].tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_bounds_are_rounded_into_the_box():
    low, high = read_sides((0.1, 0.3), (1,), "float32")
    assert low[0] >= 0.1
    assert high[0] <= 0.3
    assert low.dtype == np.float32
    low, high = read_sides((0.1, 0.1), (1,), "float32")
    assert low == high == np.float32(0.1)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([(1, 0), (0, 1)], "no x has 1.0 <= x <= 0.0"),
        ([(0, 1), (np.nan, 1)], "index (1,): no x has nan"),
        ([(np.inf, np.inf), (0, 1)], "no x has inf"),
        ([(0, 1)] * 3, "3 pairs, and x has 2 entries"),
        ((np.zeros(3), 1.0), "side of shape (3,), and x is of shape (2,)"),
        (3, "must be one pair"),
        ([(0, 1), None], "index 1 is None, which is no pair"),
        ([(0, 1), (0, 1, 2), (0, 1)], "index 1 is (0, 1, 2), which is no pair"),
        ("ab", "must be one pair"),
        ({"x": (0, 1)}, "must be one pair"),
        ((np.zeros(2), np.ones(2)), "two pairs or all lower and all upper"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds, words):
    with pytest.raises((ValueError, TypeError)) as error:
        minimize(lambda x: (x @ x, 2 * x), [1.0, 2.0], jac=True, bounds=bounds)
    assert words in str(error.value)


@pytest.mark.parametrize("start", [[1e20, -1.0], [np.inf, 0.5], [0.5, -1.0]])
def test_every_start_outside_is_told(start):
    with pytest.warns(RuntimeWarning, match="outside of the bounds"):
        minimize(lambda x: (x @ x, 2 * x), start, jac=True, bounds=[(None, 1e21), (0, 1)])


def test_a_fall_without_end_is_told_with_bounds():
    found = minimize(lambda x: (-x @ x, -2 * x), np.ones(2), jac=True, bounds=(0, None))
    assert found.status is Status.UNBOUNDED
    assert "the objective has fallen" in found.message


@pytest.mark.parametrize("seed", range(8))
def test_check_gradient_sees_every_entry_from_a_vertex(seed):
    signs = np.ones(4)
    signs[seed % 4] = -1.0
    with pytest.raises(ValueError, match="is not the gradient of fun"):
        minimize(lambda x: ((x - 2) @ (x - 2), 2 * signs * (x - 2)), np.full(4, float(seed // 4)),
                 jac=True, bounds=(0, 1), check_gradient=True)  # fmt: skip


def test_methods_without_bounds_name_those_with():
    for name in sorted(set(REGISTRY) - set(TAKE_BOUNDS) - {"safeguarded"}):
        needed = dict.fromkeys(REGISTRY[name].requires, 1.0)
        words = f"{name!r} does not keep to them; these do: auto, .*ada-ragd, ada-rhb, .*lbfgs"
        with pytest.raises(ValueError, match=words):
            minimize(lambda x: (x @ x, 2 * x), [1.0], jac=True, bounds=[(0, 1)], method=name,
                     **needed)  # fmt: skip
    with pytest.raises(ValueError, match="universal-hb"):
        minimize(
            lambda x: (x @ x, 2 * x),
            [1.0],
            jac=True,
            bounds=[(0, 1)],
            method=Safeguarded(LBFGS(), UniversalHeavyBall()),
        )
    with pytest.raises(ValueError, match="trust-constr"):
        minimize(lambda x: (x @ x, 2 * x), [1.0], jac=True, constraints=[{"type": "eq"}])


def test_a_start_outside_is_moved_inside():
    problem = random_box(8)
    with pytest.warns(RuntimeWarning, match="outside of the bounds"):
        result = minimize(
            problem.both, problem.start + 2.0, jac=True, bounds=(-1e3, problem.start + 1.0)
        )
    assert (result.x <= problem.start + 1.0).all()


# --- runs that are saved, watched, and called by SciPy -------------------------------------------


@each_method
@pytest.mark.parametrize("size", [20, 200])
def test_a_resumed_run_is_the_same(tmp_path, method, size):
    r = np.random.default_rng(size)
    A = r.standard_normal((size, size))
    Q = A @ A.T / size + 0.01 * np.eye(size)
    low, up = -0.4 * r.random(size), 0.4 * r.random(size)
    problem = Boxed(Q, r.standard_normal(size), 1.0, low, up, np.zeros(size))
    path = tmp_path / "run.npz"
    whole = run(problem, method)
    run(problem, method, max_iterations=9, checkpoint=path)
    for again in (method, None):  # None: the method of the checkpoint
        resumed = run(problem, again, resume=path, max_iterations=100_000)
        assert fingerprint(resumed) == fingerprint(whole)
    with pytest.raises(momentous.CheckpointError, match="other bounds"):
        minimize(problem.both, low, jac=True, bounds=(-1e-3, 1e-3), resume=path, method=method)


def test_iterate_stays_inside():
    problem = random_box(4)
    for step in iterate(problem.both, problem.start, jac=True, bounds=problem.bounds):
        assert (step.x >= problem.lower).all()
        assert (step.x <= problem.upper).all()


def test_scipy_calls_with_bounds():
    def rastrigin(x):
        assert (np.abs(x) <= 2.0).all()
        return float(np.sum(x * x + 3 * (1 - np.cos(6 * x)))), 2 * x + 18 * np.sin(6 * x)

    box, local = [(-2.0, 2.0)] * 3, {"method": minimize, "jac": True, "bounds": [(-2.0, 2.0)] * 3}
    found = optimize.basinhopping(rastrigin, np.ones(3), niter=20, minimizer_kwargs=local, **SEED)
    assert found.fun < 3.0
    found = optimize.minimize(rastrigin, np.ones(3), jac=True, bounds=box, method=minimize)
    assert found.success
    assert found.active.tolist() == [0, 0, 0]
    found = optimize.dual_annealing(
        lambda x: rastrigin(x)[0],
        box,
        maxiter=30,
        minimizer_kwargs={"method": minimize, "jac": lambda x: rastrigin(x)[1], "bounds": box},
        **SEED,
    )
    assert found.fun < 1e-6
    found = minimize(rastrigin, np.ones(3), jac=True, bounds=box, method="L-BFGS-B")
    assert found.success
    assert isinstance(found.method, LBFGS)


@pytest.mark.skipif("seed" in SEED, reason="this SciPy polishes with its own methods alone")
def test_differential_evolution_polishes_with_it():
    def f(x):
        assert (x >= -1.0).all()
        assert (x <= 2.0).all()
        return float(np.sum((x - 3.0) ** 2 + np.sin(5 * x)))

    polished = []

    def polish(fun, x, **given):
        polished.append(minimize(fun, x, bounds=given["bounds"], jac="3-point"))
        return polished[-1]

    found = optimize.differential_evolution(f, [(-1, 2)] * 2, polish=polish, maxiter=5, **SEED)
    assert polished[0].success
    assert (found.x == polished[0].x).all()


@pytest.mark.parametrize("layout", [Data, Variables])
def test_bounds_on_ranks(layout):
    r = np.random.default_rng(1)
    A = r.standard_normal((200, 200))
    low, up = -0.3 * r.random(200), 0.3 * r.random(200)
    problem = Boxed(A @ A.T / 200 + 0.1 * np.eye(200), r.standard_normal(200), 0.5, low, up, low)
    alone = run(problem)
    found = run(problem, ranks=layout(Alone()))
    assert found.success
    assert problem.outside == 0
    assert np.allclose(found.x, alone.x, atol=1e-7)
    assert found.trace["active"][-1] == alone.trace["active"][-1]


def test_a_model_that_holds_nothing_any_more():
    """Pivots may let go of every variable: a system of no equations has a solution."""
    m = Host.of(Space(np.zeros(3)))
    halves = Matrix.unknown(m).halves
    assert not halves.solve(m, 1.0, np.zeros(3), np.ones(3)).any()


# --- what projected gradient steps promise -------------------------------------------------------


def points_above(fun, start, bounds, eps, **given):
    """How many points of a run of projected gradient steps have |v| > eps, and its largest L."""
    method = ProjectedGradient(**given)
    trace = minimize(
        fun, start, jac=True, bounds=bounds, method=method, tol=eps, max_iterations=5000
    ).trace
    return int(np.sum(trace["grad_norm"] > eps)), 1.0 / np.min(trace["step_size"])


@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_projected_steps_keep_their_bound_whatever_the_unit(scale):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        a, x0 = np.sort(rng.uniform(0.05, 1.0, 6)), rng.uniform(-2.0, 2.0, 6)
        lower = x0 - rng.uniform(0.0, 2.0, 6)

        def waves(x, a=a):  # its gradient has the Lipschitz constant a_6, and f >= 0
            return scale * float(np.sum(a * (1 - np.cos(x)))), scale * a * np.sin(x)

        def least(low, a=a):  # of f in the box: each variable at a bound or a multiple of 2 pi
            high, turn = low + 2.5, 2 * np.pi
            ends = np.minimum(1 - np.cos(low), 1 - np.cos(high))
            ends[np.ceil(low / turn) <= np.floor(high / turn)] = 0.0
            return scale * float(np.sum(a * ends))

        bounds, lipschitz = (lower, lower + 2.5), scale * a[-1]
        first = waves(x0)[1]
        norm = np.linalg.norm(np.clip(x0 - first, *bounds) - x0)
        count, largest = points_above(waves, x0, bounds, 0.05 * norm)
        assert largest <= max(2 * lipschitz, norm) * (1 + 1e-9)
        fall = waves(x0)[0] - least(lower)
        assert 0 < count <= 2 * max(1.0, largest) * fall / (0.05 * norm) ** 2 + 1


def test_steps_shorter_than_the_lipschitz_constant_asks_for_may_be_many():
    """Each step lets one variable go to its bound and brings the next one to life: f bends only
    across the steps, so that L falls and 8 L D/eps^2 + 2 points would not be enough."""
    lipschitz, links, eps = 1 / 320, 12, 0.99
    first = lipschitz**2 * 0.1**links
    push = 1.0001 * first / lipschitz
    at = np.concatenate([[0.0], np.cumsum(push / (first * 0.1 ** np.arange(links)))])

    def chain(z):
        x, y = z[0], z[1:]
        length = np.diff(at[:links])
        rise = np.concatenate([[1.0], np.clip((x - at[: links - 1]) / length, 0.0, 1.0)])
        inside = (x > at[: links - 1]) & (x < at[1:links])
        slope = np.concatenate([[0.0], np.where(inside, 1 / length, 0.0)])
        return -push * x - rise @ y, np.concatenate([[-push - slope @ y], -rise])

    box = [(0.0, at[-1]), *[(0.0, 1.0)] * links]
    count, _ = points_above(chain, np.zeros(links + 1), box, eps, gradient_lipschitz=first)
    fall = push * at[-1] + links
    assert 8 * (2 * lipschitz) * fall / eps**2 + 2 < count <= 2 * fall / eps**2 + 1
