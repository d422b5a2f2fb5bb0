"""A certificate says what a point is, never more than it knows, and counts what that cost."""

import importlib
import inspect

import numpy as np
import pytest
from narrow_points import verdicts

from momentous import testbed
from momentous.certify import Certificate, Verdict, certify

SADDLES = [
    testbed.saddle(3, 4, 2.0, [0.5, 1.0, 1.5, 0.7]),
    testbed.rotated(testbed.saddle(20, 5, 0.5, 0.25)),
    testbed.saddle(0, 1),
    testbed.saddle(1500, 500, 1.0, 0.5),
]
LOWEST = {p.name: g for p, g in zip(SADDLES, (-1.5, -0.25, -1.0, -0.5), strict=True)}
# Products that check others, without rho: in double precision, at most; and those that find scales
# where tau is not given.
CHECKS = 24
LANCZOS_CHECKS = 13
SCALING = 16
LIBRARIES = [
    ("numpy", "float32"),
    ("torch", "float32"),
    ("torch", "float64"),
    ("jax.numpy", "float32"),
    ("array_api_strict", "float64"),
]

each_saddle = pytest.mark.parametrize("problem", SADDLES, ids=lambda p: p.name)
each_library = pytest.mark.parametrize(("library", "dtype"), LIBRARIES)


def ask(problem, x, **arguments) -> Certificate:
    return certify(problem.value_and_gradient, x, jac=True, **({"eps": 1e-5} | arguments))


def quadratic(spectrum):
    """f(x) = sum of spectrum_i x_i^2 / 2, fused."""
    diagonal = np.asarray(spectrum, dtype=float)
    return lambda x: (0.5 * float(x @ (diagonal * x)), diagonal * x)


def ask_quadratic(spectrum, **arguments) -> Certificate:
    x = np.zeros(len(spectrum))
    return certify(quadratic(spectrum), x, jac=True, **({"eps": 1e-6} | arguments))


# --- what a point is ----------------------------------------------------------------------------


@each_saddle
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "differences"])
@pytest.mark.parametrize("constants", ["none", "rho", "curvature"])
def test_the_start_of_a_saddle_is_called_a_saddle(problem, exact, constants):
    rho = problem.hessian_lipschitz
    tau = {"none": {}, "rho": {"rho": rho}, "curvature": {"curvature": 0.01}}[constants]
    hessp = problem.hessian_product if exact else None
    found = ask(problem, problem.start, hessp=hessp, **tau)
    assert found.verdict is Verdict.SADDLE
    assert found.is_saddle
    assert found.is_first_order
    assert not found.is_second_order
    assert found.probability == 0.0
    assert found.smallest_eigenvalue == pytest.approx(LOWEST[problem.name], abs=1e-5)
    assert found.lower_bound <= LOWEST[problem.name]
    assert found.residual < 1e-5
    w = found.direction
    assert np.linalg.norm(w) == pytest.approx(1.0, abs=1e-12)
    for s in (1e-3, 1e-1):
        fall = problem.value(problem.start) - problem.value(problem.start + s * w)
        assert fall > 0.49 * s * s * abs(LOWEST[problem.name])


@each_saddle
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "differences"])
@pytest.mark.parametrize("constants", ["none", "rho"])
def test_its_minimum_is_called_second_order(problem, exact, constants):
    tau = {"rho": problem.hessian_lipschitz} if constants == "rho" else {}
    hessp = problem.hessian_product if exact else None
    found = ask(problem, problem.minimiser, hessp=hessp, **tau)
    assert found.verdict is Verdict.SECOND_ORDER
    assert found.is_second_order
    assert found.direction is None
    assert found.probability == (1e-3 if problem.dimension > 500 else 0.0)
    assert -found.curvature_tolerance <= found.lower_bound <= found.smallest_eigenvalue


def test_a_point_with_a_large_gradient_is_nothing_else():
    problem = SADDLES[0]
    rng = np.random.default_rng(0)
    for _ in range(20):
        found = ask(problem, rng.standard_normal(problem.dimension), curvature=1e-3)
        assert found.verdict is Verdict.NOT_STATIONARY
        assert not found.is_first_order
        assert found.direction is None
        assert (found.products, found.njev) == (0, 1)
        assert np.isnan(found.smallest_eigenvalue)


def test_the_tolerance_for_the_gradient_is_inclusive():
    x = np.array([0.5])
    assert certify(quadratic([2.0]), x, jac=True, eps=1.0).is_second_order
    assert not certify(quadratic([2.0]), x, jac=True, eps=0.999).is_first_order


def test_a_degenerate_saddle_is_second_order():
    problem = testbed.flat_saddle(3, 2)
    assert ask(problem, problem.start, curvature=1e-6).is_second_order


def test_the_smallest_eigenvalue_of_rosenbrock():
    problem = testbed.rosenbrock(10)
    x = problem.minimiser
    H = np.stack([problem.hessian_product(x, e) for e in np.eye(10)])
    lowest = np.linalg.eigvalsh(H)[0]
    found = ask(problem, x, curvature=1e-2)
    assert found.is_second_order
    assert abs(found.smallest_eigenvalue - lowest) <= found.eigenvalue_error < 1e-5
    assert found.lower_bound <= lowest


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("lanczos", [True, False], ids=["lanczos", "whole matrix"])
def test_the_error_estimate_covers_the_error(dtype, lanczos):
    """At points that are stationary for a generous eps, on every problem with known products."""
    for problem in testbed.problems():
        d = problem.dimension
        if problem.hessian_product is None or d < 4:
            continue
        x = (problem.start + 0.3 * np.random.default_rng(0).standard_normal(d)).astype(dtype)
        exact = np.stack([problem.hessian_product(x.astype(float), e) for e in np.eye(d)])
        lowest = np.linalg.eigvalsh((exact + exact.T) / 2.0)[0]
        allowed = min(3 * d, d + LANCZOS_CHECKS + SCALING) if lanczos else None
        if lanczos and allowed <= LANCZOS_CHECKS + SCALING:
            continue
        found = ask(problem, x, eps=1e9, max_products=allowed)
        assert found.smallest_eigenvalue + found.eigenvalue_error >= lowest, problem.name
        assert found.lower_bound <= lowest, problem.name
        if not lanczos:
            assert abs(found.smallest_eigenvalue - lowest) <= found.eigenvalue_error, problem.name


# --- tau ----------------------------------------------------------------------------------------


def test_tau_is_what_was_asked_for():
    spectrum = [-0.05, 1.0, 4.0]
    assert ask_quadratic(spectrum, eps=0.1, rho=0.1).is_second_order  # tau = 0.1
    assert ask_quadratic(spectrum, eps=0.01, rho=0.1).is_saddle  # tau = 0.0316
    assert ask_quadratic(spectrum, curvature=0.06).is_second_order
    assert ask_quadratic(spectrum, curvature=0.04).is_saddle


def one_variable_in_other_units(x):
    return 0.25 * (x[1] ** 2 - 1) ** 2 + 0.5 * (1e3 * x[0]) ** 2, np.array(
        [1e6 * x[0], x[1] ** 3 - x[1]]
    )


@pytest.mark.parametrize("d", [2, 700])
@pytest.mark.parametrize("unit", [1e-6, 1e3, 1e6])
def test_without_tau_the_sign_decides_whatever_the_units_of_a_variable(unit, d):
    """Of the largest eigenvalue -1 is no more than a thousandth, which was allowed once."""
    spectrum = np.append([unit**2, -1.0], np.linspace(1.0, 2.0, d - 2))
    found = ask_quadratic(spectrum)
    assert found.verdict is Verdict.SADDLE, found.message
    if d == 2:  # otherwise it is an upper bound
        assert found.smallest_eigenvalue == pytest.approx(-1.0, rel=1e-5)
        assert found.direction[1] ** 2 == pytest.approx(1.0)
    assert found.lower_bound <= -1.0 <= found.smallest_eigenvalue < -4 * found.eigenvalue_error
    assert "below zero" in found.message
    assert ask_quadratic(abs(spectrum)).verdict is Verdict.SECOND_ORDER
    left = found.escape(lambda x: float(x @ (spectrum * x)) / 2, np.zeros(d))
    assert left @ (spectrum * left) < 0.0


@pytest.mark.parametrize("rotated", [True, False])
def test_without_tau_a_thousandth_of_the_largest_eigenvalue_is_not_allowed(rotated):
    H = np.diag([1e8, 1.0, -1e4])
    if rotated:
        Q = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
        H = Q @ H @ Q.T
    for hessp in (None, lambda x, v: H @ v):
        found = certify(lambda x: (float(x @ H @ x) / 2, H @ x), np.zeros(3), jac=True, hessp=hessp)
        assert found.verdict is Verdict.SADDLE, found.message
        assert found.smallest_eigenvalue == pytest.approx(-1e4, rel=1e-3)
    assert certify(one_variable_in_other_units, np.zeros(2), jac=True, eps=1e-6).is_saddle


def test_without_tau_what_is_not_resolved_is_said_so_with_both_numbers():
    """An error of about 1e-3, and an eigenvalue of 0: neither a saddle nor a minimum."""
    rng = np.random.default_rng(0)
    noisy = lambda x: (0.0, np.array([x[0], 0.0]) + 1e-9 * rng.standard_normal(2))  # noqa: E731
    for seed in range(5):
        found = certify(noisy, np.zeros(2), jac=True, rng=seed)
        assert found.verdict is Verdict.FIRST_ORDER, found.message
        assert "the curvature is not resolved: the smallest eigenvalue" in found.message
        assert "with an estimated error of" in found.message
    flat = ask_quadratic([0.0, 1.0, 4.0])
    assert flat.verdict is Verdict.SECOND_ORDER, flat.message


@pytest.mark.parametrize("offset", [-1e-11, 0.0, 1e-11])
def test_on_the_border_nothing_is_claimed(offset):
    found = ask_quadratic([-0.05 + offset, 1.0], curvature=0.05)
    assert found.eigenvalue_error > abs(offset)
    assert found.verdict is Verdict.FIRST_ORDER
    assert "too close" in found.message


# --- Lanczos and its probability ----------------------------------------------------------------


def test_one_negative_eigenvalue_among_a_thousand_is_found():
    spectrum = np.append(np.linspace(0.0, 1.0, 999), -0.02)
    for seed in range(50):
        found = ask_quadratic(spectrum, curvature=0.01, rng=seed)
        assert found.is_saddle
        assert -0.02 - 1e-9 <= found.smallest_eigenvalue < -0.01
        assert found.products < 60


def test_the_failure_probability_is_honest_and_not_idle():
    """The worst spectrum: all eigenvalues but one are equal.  Permitted to err, it does so, rarely
    enough; a small probability is paid for with more steps."""
    spectrum = np.append(np.ones(999), -0.015)
    daring = [
        ask_quadratic(spectrum, curvature=0.01, failure_probability=0.5, rng=seed)
        for seed in range(100)
    ]
    wrong = sum(found.is_second_order for found in daring)
    assert 0 < wrong <= 50
    spread = np.linspace(0.0, 1.0, 1000)
    careful, careless = (
        ask_quadratic(spread, curvature=0.01, failure_probability=p) for p in (1e-9, 0.1)
    )
    assert careful.is_second_order
    assert careful.probability == 1e-9
    assert careless.probability == 0.1
    assert careful.products > 1.5 * careless.products


def test_the_number_of_steps_is_that_of_the_theory():
    """ln(3.2 sqrt(d)/p)/(2 sqrt(delta)) + 1/2 steps, delta the tolerance in parts of the length."""
    for tau in (1e-1, 1e-2, 1e-3):
        found = ask_quadratic(np.linspace(0.0, 1.0, 2000), curvature=tau)
        bound = np.log(3.2 * np.sqrt(2000) / 1e-3) / (2.0 * np.sqrt(tau / (1.0 + 2.0 * tau))) + 0.5
        assert found.is_second_order
        assert 0.7 * bound < found.products < bound + CHECKS


def test_too_few_products_settle_nothing():
    spectrum = np.linspace(0.0, 1.0, 1000)
    found = ask_quadratic(spectrum, curvature=0.01, max_products=40)
    assert found.verdict is Verdict.FIRST_ORDER
    assert 20 < found.products <= 40
    assert found.lower_bound < -0.01
    enough = int(found.message.split("max_products=")[1].split()[0])
    settled = ask_quadratic(spectrum, curvature=0.01, max_products=enough)
    assert settled.is_second_order
    assert settled.products <= enough


@pytest.mark.parametrize("allowed", range(6))
def test_max_products_is_respected(allowed):
    problem = testbed.saddle(5, 5)
    for hessp in (None, problem.hessian_product):
        found = ask(problem, problem.minimiser, hessp=hessp, max_products=allowed, curvature=0.1)
        assert found.products <= allowed
        assert found.is_first_order
        if found.products == 0:
            assert found.verdict is Verdict.FIRST_ORDER


def test_a_bound_on_the_spectrum_saves_products():
    spectrum = np.linspace(-0.02, 0.02, 1000)
    free = ask_quadratic(spectrum, curvature=0.03)
    known = ask_quadratic(spectrum, curvature=0.03, gradient_lipschitz=0.03)
    assert free.is_second_order
    assert known.is_second_order
    assert known.products < CHECKS < free.products


def test_as_many_steps_as_variables_are_always_enough():
    spectrum = np.append(np.linspace(0.0, 1.0, 500), -0.00999)
    found = ask_quadratic(spectrum, curvature=0.01)
    assert found.verdict is Verdict.FIRST_ORDER
    enough = int(found.message.split("max_products=")[1].split()[0])
    assert enough == 501 + LANCZOS_CHECKS
    assert ask_quadratic(spectrum, curvature=0.01, max_products=enough).is_second_order


def test_both_routes_agree():
    problem = testbed.rotated(testbed.saddle(60, 20, 1.0, np.linspace(0.1, 0.4, 20)))
    H = np.stack([problem.hessian_product(problem.start, e) for e in np.eye(80)])
    lowest = np.linalg.eigvalsh(H)[0]
    whole = ask(problem, problem.start, curvature=0.39)
    lanczos = ask(problem, problem.start, curvature=0.39, max_products=90)
    assert 4 * 80 < whole.products <= 4 * 80 + CHECKS  # differences of four lengths
    assert lanczos.products < 80
    for found in (whole, lanczos):
        assert found.is_saddle
        assert lowest - 1e-8 <= found.smallest_eigenvalue < -0.39
    assert whole.smallest_eigenvalue == pytest.approx(lowest, abs=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_basis_outlives_an_invariant_subspace(dtype):
    """With three eigenvalues nothing but rounding is left after three steps."""
    spectrum = np.repeat([-0.004, 0.0, 1.0], 200).astype(dtype)
    found = certify(
        lambda x: (0.0, spectrum * x), np.zeros(600, dtype), jac=True, eps=1, curvature=0.01
    )
    assert found.is_second_order
    assert found.smallest_eigenvalue == pytest.approx(-0.004, abs=1e-5)
    assert found.eigenvalue_error < 2.5e-4


def test_equal_seeds_give_equal_certificates():
    problem = testbed.separable("cosine", np.linspace(1.0, 2.0, 600), 1.0)
    first, second, other = (ask(problem, np.zeros(600), rng=seed) for seed in (3, 3, 4))
    assert first.is_saddle
    assert np.array_equal(first.direction, second.direction)
    assert first.smallest_eigenvalue != other.smallest_eigenvalue


# --- inaccurate products ------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 5, 600])
def test_noise_in_the_gradient_is_noticed(d):
    rng = np.random.default_rng(0)

    def noisy(x):
        return 0.0, 1e-4 * x + 1e-6 * rng.standard_normal(d)

    for _ in range(5):
        found = certify(noisy, np.zeros(d), jac=True, eps=1e-3, curvature=1e-3, max_products=40)
        assert found.verdict is Verdict.NOT_CERTIFIABLE
        assert found.eigenvalue_error > 2.5e-4
        assert "hessp=" in found.message


def test_a_tolerance_below_the_accuracy_is_not_certifiable():
    problem = testbed.flat_saddle(3, 3)
    found = ask(problem, problem.start, curvature=1e-13)
    assert found.verdict is Verdict.NOT_CERTIFIABLE
    assert "tau/4" in found.message
    exact = ask(problem, problem.start, curvature=1e-13, hessp=problem.hessian_product)
    assert exact.is_second_order


def test_an_asymmetric_hessp_is_noticed():
    A = np.triu(np.ones((4, 4)))
    for tau, verdict in ((None, Verdict.FIRST_ORDER), (0.1, Verdict.NOT_CERTIFIABLE)):
        found = ask_quadratic(np.ones(4), hessp=lambda x, v: A @ v, curvature=tau)
        assert found.verdict is verdict
        assert "symmetric" in found.message


def test_coarse_steps_are_noticed():
    problem = testbed.saddle(2, 2, 1.0, 1.0)
    coarse = ask(problem, problem.start, curvature=1e-3, step=1.5)
    assert coarse.verdict is Verdict.NOT_CERTIFIABLE
    assert ask(problem, problem.start, curvature=1e-3, step=1e-3).is_saddle


def far_saddle(x):
    """A saddle at (0, 1e7) with eigenvalues -1 and 1 and rho < 3: the first is local, within about
    |y| < 1, which a step in proportion to |x| overlooks."""
    y, z = x
    log = np.log1p(y * y)
    slope = 2.0 * y / (1.0 + y * y) * (log / 50.0 - 0.5)
    return (z - 1e7) ** 2 / 2.0 - log / 2.0 + log * log / 100.0, np.array([slope, z - 1e7])


def test_a_step_longer_than_the_curvature_reaches_is_not_trusted():
    def ask_far(**given):
        return certify(far_saddle, np.array([0.0, 1e7]), jac=True, eps=1e-6, **given)

    found = ask_far(rho=3.0)
    assert found.is_saddle
    assert found.smallest_eigenvalue == pytest.approx(-1.0, abs=1e-3)
    assert abs(found.smallest_eigenvalue + 1.0) <= found.eigenvalue_error
    assert "estimated error" in found.message
    assert ask_far(step=60.0).verdict is Verdict.FIRST_ORDER
    assert ask_far(rho=3.0, step=60.0).verdict is Verdict.NOT_CERTIFIABLE
    for without in ({}, {"curvature": np.sqrt(3e-6)}, {"step": 1e-3}):
        found = ask_far(**without)
        assert found.is_saddle
        assert abs(found.smallest_eigenvalue + 1.0) <= found.eigenvalue_error < 0.01


@pytest.mark.parametrize("in_units", [False, True], ids=["", "one variable in other units"])
@pytest.mark.parametrize(
    ("sign", "right", "false"),
    [(-1.0, Verdict.SADDLE, Verdict.SECOND_ORDER), (1.0, Verdict.SECOND_ORDER, Verdict.SADDLE)],
    ids=["saddles", "minima"],
)
def test_no_narrow_point_is_called_what_it_is_not(sign, right, false, in_units):
    """A sample, without rho, of points as wide as 1e-3 to 1e3, up to 1e10 from the origin; the
    command in narrow_points.py has 1,000 of each."""
    seen = verdicts(range(100), sign, in_units)
    assert seen[false] == seen["bound too high"] == 0
    assert seen[right] >= 90


@pytest.mark.parametrize("along", [-0.010007, -0.0100002, -0.00999])
@pytest.mark.parametrize("given", [{}, {"step": 6e-6}, {"step": 1e-5}, {"step": 1e-6}], ids=str)
def test_the_error_of_a_cubic_is_bounded(along, given):
    """A tenth of the step shows 99 parts in 100 of the error: the bound must not lack the rest."""
    spectrum = np.array([1.0, 0.5, along])

    def fused(z):
        return 0.0, spectrum * z + 2e6 * z**3

    found = certify(fused, np.zeros(3), jac=True, eps=1e-6, curvature=0.01, **given)
    assert found.lower_bound <= along
    assert found.smallest_eigenvalue - found.eigenvalue_error <= along
    assert not (found.is_second_order and along < -0.01)


def test_what_other_coordinates_are_does_not_hide_a_saddle():
    for far in (0.0, 1.0, 1e4, 1e8, 1e10):

        def fused(x, far=far):
            return 0.0, np.array([-x[0] * np.exp(-(x[0] ** 2) / 2), x[1] - far])

        found = certify(fused, np.array([0.0, far]), jac=True, eps=1e-6)
        assert found.is_saddle
        assert found.smallest_eigenvalue == pytest.approx(-1.0, abs=0.01)


@pytest.mark.parametrize(
    ("given", "checks"),
    [({}, LANCZOS_CHECKS + SCALING), ({"rho": 1.0}, 3), ({"hessp": True}, 1 + SCALING)],
    ids=str,
)
def test_a_small_allowance_is_used_up_and_one_that_is_too_small_says_so(given, checks):
    spectrum = np.append(-1.0, np.linspace(1.0, 2.0, 999))
    if "hessp" in given:
        given = {"hessp": lambda x, v: spectrum * v}

    def ask_with(allowed):
        return ask_quadratic(spectrum, max_products=allowed, **given)

    found = ask_with(checks)
    assert (found.verdict, found.products) == (Verdict.FIRST_ORDER, 0)
    assert f"it takes {checks + 1} at least" in found.message
    assert 0 < ask_with(checks + 1).products <= checks + 1
    assert ask_with(checks + 12).is_saddle


def test_an_error_in_the_users_gradient_is_theirs():
    def fused(x):
        if x.any():
            raise ValueError("mine")
        return 0.0, x

    with pytest.raises(ValueError, match="mine"):
        certify(fused, np.zeros(2), jac=True, eps=1.0)


def test_printed_bounds_are_bounds():
    for lowest in (0.498753, 0.4994999, 1.23456e-4):
        found = ask_quadratic([lowest, 1.0], hessp=lambda x, v, s=lowest: np.array([s, 1.0]) * v)
        printed = float(found.message.split("none is below ")[1].split(",")[0])
        assert printed <= found.lower_bound
        assert printed == pytest.approx(lowest, rel=0.01)
    for tau in (0.0123456, 0.0198765, 0.01):
        found = ask_quadratic([1.0, 2.0], curvature=tau)
        assert float(found.message.split("-tau = ")[1].split()[0]) <= -tau
        found = ask_quadratic([-1.0, 2.0], curvature=tau)
        assert float(found.message.split("-tau = ")[1].split(";")[0]) >= -tau
        error = float(found.message.split("estimated error of ")[1].split(",")[0])
        assert error >= found.eigenvalue_error


def test_a_step_that_rounding_swallows_is_not_trusted():
    x = np.array([1e7, 1e7], dtype=np.float32)

    def flat(x):
        return 0.0, x - np.float32(1e7)

    found = certify(flat, x, jac=True, eps=1e-6, rho=3.0)  # x + h v is x: all products are 0
    assert found.verdict is Verdict.NOT_CERTIFIABLE
    assert found.eigenvalue_error == np.inf


@pytest.mark.parametrize("d", [40, 600])
def test_with_rho_the_step_is_what_rho_allows(d):
    """The error before rounding is at most sqrt(m) rho h/2 for m products."""
    problem = testbed.rotated(testbed.saddle(d // 2, d // 2))
    x, rho = problem.start + 1e5, problem.hessian_lipschitz

    def moved(y):
        return problem.value_and_gradient(y - 1e5)

    found = certify(moved, x, jac=True, eps=1e-5, rho=rho)
    assert found.is_saddle
    assert found.eigenvalue_error <= found.curvature_tolerance / 4
    assert found.njev > 1.9 * found.products  # central


# --- arrays of any library ----------------------------------------------------------------------


@each_library
@pytest.mark.parametrize("problem", [SADDLES[0], SADDLES[3]], ids=lambda p: p.name)
def test_arrays_of_any_library(problem, library, dtype):
    xp = pytest.importorskip(library)
    x = problem.start_in(xp, getattr(xp, dtype))
    found = ask(problem, x, rho=problem.hessian_lipschitz, eps=1e-3)
    assert found.is_saddle
    assert found.smallest_eigenvalue == pytest.approx(LOWEST[problem.name], abs=1e-3)
    w = found.direction
    assert type(w) is type(x)
    assert w.dtype == x.dtype
    assert w.shape == x.shape
    lower = found.escape(problem.value, x)
    assert type(lower) is type(x)
    assert float(problem.value(lower)) < float(problem.value(x)) - 0.05
    bottom = xp.asarray(problem.minimiser.copy(), dtype=x.dtype)
    assert ask(problem, bottom, rho=problem.hessian_lipschitz, eps=1e-3).is_second_order


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_gradients_by_autodiff(library):
    xp = pytest.importorskip(library)
    x = xp.zeros((2, 3), dtype=xp.float32)
    found = certify(lambda x: (x**2).sum() - 3 * x[1, 2] ** 2, x, jac="autodiff", eps=1e-4)
    assert found.is_saddle
    assert found.smallest_eigenvalue == pytest.approx(-4.0, abs=1e-3)
    assert abs(float(found.direction[1, 2])) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (30, 20)])
def test_any_shape(shape):
    found = certify(
        lambda x: (float(np.sum(np.cos(x))), -np.sin(x)), np.zeros(shape), jac=True, eps=1
    )
    assert found.is_saddle
    assert found.smallest_eigenvalue == pytest.approx(-1.0, abs=1e-8)
    assert isinstance(found.direction, np.ndarray)
    assert found.direction.shape == shape


def test_no_variables_at_all():
    found = certify(lambda x: (0.0, x), np.zeros(0), jac=True, eps=1e-3)
    assert found.is_second_order
    assert found.smallest_eigenvalue == np.inf


def test_a_function_without_curvature():
    for d in (2, 600):
        found = ask_quadratic(np.zeros(d))
        assert found.is_second_order
        assert found.smallest_eigenvalue == 0.0


def test_the_users_arrays_are_left_alone_and_may_be_reused():
    x, buffer = np.zeros(4), np.empty(4)
    diagonal = np.array([1.0, 2.0, -3.0, 4.0])

    def fused(x):
        np.multiply(diagonal, x, out=buffer)
        return 0.0, buffer

    for rho in (None, 1.0):  # central, forward
        found = certify(fused, x, jac=True, eps=1e-3, rho=rho)
        assert found.smallest_eigenvalue == pytest.approx(-3.0, abs=1e-6)
    x += 1.0  # still writable
    assert np.array_equal(found.direction**2, [0.0, 0.0, 1.0, 0.0])


# --- counts -------------------------------------------------------------------------------------


class Counted:
    def __init__(self, problem):
        self.problem = problem
        self.calls = {"fun": 0, "jac": 0, "fused": 0, "hessp": 0}

    def fun(self, x, scale):
        self.calls["fun"] += 1
        return scale * self.problem.value(x)

    def jac(self, x, scale):
        self.calls["jac"] += 1
        return scale * self.problem.gradient(x)

    def fused(self, x, scale):
        self.calls["fused"] += 1
        return scale * self.problem.value(x), scale * self.problem.gradient(x)

    def hessp(self, x, v, scale):
        self.calls["hessp"] += 1
        return scale * self.problem.hessian_product(x, v)


@pytest.mark.parametrize("d", [4, 600])
def test_counts_are_those_of_the_users_functions(d):
    problem = testbed.saddle(d // 2, d // 2)
    x = problem.start
    rho = 2.0 * problem.hessian_lipschitz

    count = Counted(problem)
    central = certify(count.fun, x, (2.0,), jac=count.jac, eps=1e-5, curvature=1e-2)
    assert count.calls == {"fun": 0, "jac": central.njev, "fused": 0, "hessp": 0}
    assert (central.nfev, central.njev) == (0, 1 + 2 * central.products)

    count = Counted(problem)
    forward = certify(count.fused, x, (2.0,), jac=True, eps=1e-5, rho=rho)
    assert count.calls["fused"] == forward.nfev == forward.njev == 1 + forward.products

    count = Counted(problem)
    exact = certify(count.fun, x, 2.0, jac=count.jac, hessp=count.hessp, eps=1e-5, rho=rho)
    assert count.calls == {"fun": 0, "jac": 1, "fused": 0, "hessp": exact.products}
    assert (exact.nfev, exact.njev) == (0, 1)

    for found in (central, forward, exact):
        assert found.smallest_eigenvalue == pytest.approx(-2.0, abs=1e-5)
    if d == 4:
        assert 4 * d < central.products <= 4 * d + CHECKS
        assert exact.products == d + 1


# --- escaping -----------------------------------------------------------------------------------


@each_saddle
def test_an_escape_falls_by_what_is_promised(problem):
    rho, x = problem.hessian_lipschitz, problem.start
    found = ask(problem, x, rho=rho)
    t = abs(found.smallest_eigenvalue)
    value = problem.value(x)
    by_rho = found.escape(problem.value, x, rho=rho)
    assert np.linalg.norm(by_rho - x) == pytest.approx(2.0 * t / rho, rel=1e-6)
    assert problem.value(by_rho) <= value - 0.66 * t**3 / rho**2
    by_search = found.escape(problem.value_and_gradient, x, jac=True)
    s = np.linalg.norm(by_search - x)
    assert problem.value(by_search) <= value - 0.24 * s**2 * t


@pytest.mark.parametrize("cubic", [10.0, -10.0])
def test_an_escape_looks_both_ways(cubic):
    def fused(y):
        return float(cubic * y[0] ** 3 - y[0] ** 2), 3.0 * cubic * y**2 - 2.0 * y

    found = certify(fused, np.zeros(1), jac=True, eps=1e-3)
    assert found.escape(fused, np.zeros(1), jac=True)[0] == -np.sign(cubic)


def test_the_direction_is_downhill():
    problem = testbed.saddle(3, 3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = 1e-3 * rng.standard_normal(6)
        found = ask(problem, x, eps=0.1)
        slope = float(found.direction @ problem.gradient(x))
        assert found.is_saddle
        assert slope <= 0.0


def test_no_escape_without_a_saddle_or_from_elsewhere():
    problem = SADDLES[0]
    with pytest.raises(ValueError, match="no direction"):
        ask(problem, problem.minimiser).escape(problem.value, problem.minimiser)
    found = ask(problem, problem.start)
    with pytest.raises(ValueError, match="pass the x that was certified"):
        found.escape(problem.value, np.zeros(2))
    with pytest.raises(RuntimeError, match="does not fall"):
        found.escape(lambda x: 1.0, problem.start)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"eps": 0.0}, "eps=0.0 must be a positive"),
        ({"eps": np.nan}, "eps=nan must be a positive"),
        ({"eps": None}, "eps=None must be a positive"),
        ({"rho": -1.0}, "rho=-1.0 must be a positive"),
        ({"curvature": 0}, "curvature=0 must be a positive"),
        ({"gradient_lipschitz": -2.0}, "gradient_lipschitz=-2.0"),
        ({"step": np.inf}, "step=inf"),
        ({"rho": 1.0, "curvature": 0.1}, "give one of them"),
        ({"failure_probability": 1.0}, "failure_probability=1.0 must be between 0 and 1"),
        ({"max_products": -1}, "max_products=-1"),
        ({"max_products": 2.5}, "max_products=2.5"),
        ({"jac": None}, "needs gradients"),
        ({"jac": "3-point"}, "needs gradients"),
        ({"hessp": lambda x, v: v[:1]}, r"hessp returned shape \(1,\), but x has shape \(2,\)"),
        ({"hessp": lambda x, v: np.nan * v}, "hessp returned values that are not finite"),
        ({"x": np.array([0.0, np.nan])}, "x is not finite"),
        ({"fun": lambda x: (0.0, x + np.nan)}, "gradient at x is not finite"),
        ({"fun": lambda x: (0.0, x if not x.any() else x + np.inf)}, "a smaller step="),
    ],
)
def test_bad_input_is_named(arguments, words):
    given = {"fun": quadratic([1.0, 2.0]), "x": np.zeros(2), "jac": True, "eps": 1e-3} | arguments
    with pytest.raises(ValueError, match=words):
        certify(**given)


def test_hessp_must_be_callable():
    with pytest.raises(TypeError, match="hessp=True"):
        ask_quadratic([1.0], hessp=True)


# --- the contract -------------------------------------------------------------------------------


def test_certificates_are_frozen_and_speak():
    found = ask(SADDLES[0], SADDLES[0].start)
    with pytest.raises(AttributeError):
        found.verdict = Verdict.SECOND_ORDER
    assert found.verdict == "saddle"
    assert f"{found.smallest_eigenvalue:.6g}" in found.message
    assert "direction" not in repr(found).replace("`direction`", "")


def test_every_argument_is_documented():
    module = importlib.import_module("momentous.certify")
    for name in inspect.signature(module.certify).parameters:
        assert f"\n{name} : " in inspect.getdoc(module.certify), name
    for name in Certificate.__dataclass_fields__:
        assert name in Certificate.__doc__, name


@pytest.mark.parametrize("d", [2, 1200])
def test_a_hessian_beyond_the_numbers_of_its_precision_is_refused(d):
    def fun(x):
        return np.float32(0.0), x * np.float32(1e38) * np.float32(100)

    with pytest.raises(ValueError, match="beyond the numbers of float32; scale fun"):
        certify(fun, np.zeros(d, np.float32), jac=True)


def test_without_tau_nothing_is_said_of_a_larger_one():
    found = certify(lambda x: (float(x[0] ** 4), 4 * x**3), np.zeros(1), jac=True)
    assert found.verdict is Verdict.FIRST_ORDER
    assert "tau" not in found.message
