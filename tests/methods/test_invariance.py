"""What must not matter does not: zeros stay zeros; constants, axes, the unit of f change nothing.

The unit of x changes nothing where the parameters are given in it; of the methods that need none,
only where |x0| >= 1, and not that of L-BFGS.

Runs are compared by the points at which they asked for gradients, output included.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import momentous
from momentous import RAGD, RHB, AdaRAGD, AdaRHB, EventKind, PerturbedRAGD, Status, testbed
from reference import CHAIN, COSINES, NESTED, SADDLE, Theory, Watched

PROBLEMS = [COSINES, SADDLE, CHAIN, NESTED]
CHAINS = [
    testbed.carmon_chain(10),
    testbed.second_order_chain(10, 0.2),
    testbed.nested_chain(3, 0.05),
]

each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
each_chain = pytest.mark.parametrize("problem", CHAINS, ids=lambda p: p.name)


@dataclass
class Setting:
    """A method class, and how its parameters follow from a problem."""

    method: type
    kind: str

    def __str__(self):
        return f"{self.method.name}-{self.kind}"

    def arguments(self, problem):
        """Method and tolerance, in the units of the problem."""
        steepness = float(np.linalg.norm(problem.gradient(problem.start)))
        if self.kind == "scale-free":
            return self.method(), 1e-3 * steepness
        heavy_ball = self.method in (RHB, AdaRHB)
        theory = Theory.with_integer_length(problem, 12 if heavy_ball else 8, heavy_ball)
        constants = {"gradient_lipschitz": theory.L, "hessian_lipschitz": theory.rho}
        if self.kind == "theory":
            return self.method(**constants, eps=theory.eps), 0.0
        # "wide": a large step and radius, so that epochs are discarded (Remark 2); with a smaller
        # eps theta ~ (eps rho eta^2)^(1/4) stays.
        chosen = self.method(
            **constants,
            eps=theory.eps / 20**2,
            step_size=20 * theory.eta,
            initial_radius=1e3 * theory.B,
            radius_shrink=1.1,
            backoff=2.0,
            decrease=0.5,
        )
        return chosen, 1e-5 * steepness


ADAPTIVE = [Setting(method, kind) for method in (AdaRAGD, AdaRHB) for kind in ("theory", "wide")]
SCALE_FREE = [Setting(method, "scale-free") for method in (AdaRAGD, AdaRHB)]
DETERMINISTIC = [Setting(RAGD, "theory"), Setting(RHB, "theory"), *ADAPTIVE, *SCALE_FREE]
PERTURBED = Setting(PerturbedRAGD, "theory")


def each_setting(settings):
    return pytest.mark.parametrize("setting", settings, ids=str)


def run(problem, method, tol=0.0, iterations=150, **options):
    """The points at which gradients were taken, and the result."""
    seen = Watched(problem)
    result = momentous.minimize(
        seen.value,
        problem.start,
        jac=seen.gradient,
        method=method,
        tol=tol,
        max_iterations=iterations,
        **options,
    )
    return np.array(seen.gradients), result


def points(problem, setting, **options):
    return run(problem, *setting.arguments(problem), **options)[0]


# --- zero-chains ----------------------------------------------------------------------------------

BY_HAND = {"step_size": 0.05, "momentum": 0.9, "epoch_length": 40}
ON_CHAINS = {
    "ragd": RAGD(**BY_HAND, radius=2.0),
    "rhb": RHB(**BY_HAND, radius=2.0),
    "ada-ragd": AdaRAGD(**BY_HAND, radius=2.0, initial_radius=50.0, eps=1e-3, radius_shrink=1.5),
    "ada-rhb": AdaRHB(**BY_HAND, radius=2.0, initial_radius=50.0, eps=1e-3, radius_shrink=1.5),
    "ada-ragd-scale-free": AdaRAGD(),
    "ada-rhb-scale-free": AdaRHB(),
}


@each_chain
@pytest.mark.parametrize("name", ON_CHAINS)
def test_each_gradient_discovers_one_coordinate_at_most(problem, name):
    """From 0, the n-th point asked about has n - 1 nonzero coordinates at most, exactly."""
    tol = 0.0 if "scale-free" not in name else 1e-6
    asked, result = run(problem, ON_CHAINS[name], tol=tol, iterations=2000)
    for n, point in enumerate(asked):
        assert not np.any(point[n:])
    assert np.count_nonzero(asked[-1]) > problem.dimension / 2, "hardly anything was discovered"
    if result.status is Status.COMPLETED:  # the output is an average, or next to one
        assert len(asked) > result.nit


@each_chain
@pytest.mark.parametrize("method", [RAGD, RHB, AdaRAGD, AdaRHB])
def test_averages_keep_zeros(problem, method):
    """Epochs of a few iterations end before the chain does: so does their average."""
    radius = {"initial_radius": 1e3} if method in (AdaRAGD, AdaRHB) else {}
    chosen = method(step_size=0.01, momentum=0.9, radius=1e3, epoch_length=4, **radius)
    asked, result = run(problem, chosen)
    assert result.status is Status.COMPLETED
    for n, point in enumerate(asked):
        assert not np.any(point[n:])
    assert np.count_nonzero(result.x) <= 4


@each_chain
def test_a_perturbed_method_keeps_zeros_until_it_perturbs(problem):
    chosen = PerturbedRAGD(gradient_lipschitz=20.0, hessian_lipschitz=1.0, eps=1e-3, radius=1e-5)
    asked, result = run(problem, chosen)
    perturbations = result.trace.when(EventKind.PERTURBED)
    before = asked[: perturbations[0]] if perturbations else asked
    assert len(before) > 3
    for n, point in enumerate(before):
        assert not np.any(point[n:])


# --- constants, axes, units -----------------------------------------------------------------------


@each_problem
@each_setting([*DETERMINISTIC, PERTURBED])
def test_a_constant_added_to_the_objective_changes_nothing(problem, setting):
    lifted = testbed.shifted(problem, 8.0)
    np.testing.assert_array_equal(points(problem, setting), points(lifted, setting))


@each_problem
@each_setting(DETERMINISTIC)
def test_rotated_axes_change_nothing_but_rounding(problem, setting):
    rotated = testbed.rotated(problem, rng=5)
    axes = [replace(problem, start=axis) for axis in np.eye(problem.dimension)]
    q = np.array([testbed.rotated(axis, rng=5).start for axis in axes])
    here, there = points(problem, setting), points(rotated, setting)
    tolerance = 1e-9
    if setting.kind == "scale-free":
        # The probe divides a difference of gradients by 1e-8, and long first steps amplify this.
        here, there, tolerance = here[:8], there[:8], 1e-6
    np.testing.assert_allclose(there @ q.T, here, rtol=0, atol=tolerance * np.max(np.abs(here)))


SCALES = [(8.0, 1.0), (2.0**-20, 1.0), (1.0, 4.0), (2.0**20, 2.0**6)]
SMALL_SCALES = [(1.0, 2.0**-4), (2.0**-9, 2.0**-7)]


@each_problem
@each_setting([*DETERMINISTIC, PERTURBED])
@pytest.mark.parametrize(("c", "s"), SCALES + SMALL_SCALES)
def test_units_of_value_and_length_change_nothing(problem, setting, c, s):
    """c f(x/s) with L, rho and eps in its units; powers of two, so that rounding is the same.

    Where |x0| < 1 the probe of the scale-free start has an absolute length, hence no small s there.
    """
    if setting.kind == "scale-free" and s < 1:
        problem = replace(problem, start=problem.start / s)
    there = testbed.scaled(problem, value_scale=c, length_scale=s)
    np.testing.assert_array_equal(s * points(problem, setting), points(there, setting))


WITHOUT_PARAMETERS = [
    "auto", "ada-ragd", "ada-rhb", "parameter-free-agd", "universal-hb", "gd", "heuristic-agd",
    "cg", "lbfgs",
]  # fmt: skip
FIRST_STEP_WITHIN_LIMITS = ("auto", "lbfgs")  # a tenth of |x0|, from 0.1 to 1


def same_run(method, problem, c, s):
    """Does c f(x/s), with the tolerance in its unit, take the same steps?"""
    tol = 1e-3 * float(np.linalg.norm(problem.gradient(problem.start)))
    there = testbed.scaled(problem, value_scale=c, length_scale=s)
    found, expected = run(there, method, tol=tol * c / s)[0], run(problem, method, tol=tol)[0]
    return found.shape == expected.shape and np.array_equal(found, s * expected)


@each_problem
@pytest.mark.parametrize("method", WITHOUT_PARAMETERS)
@pytest.mark.parametrize("c", [8.0, 2.0**-20])
def test_the_unit_of_f_changes_nothing_of_a_method_without_parameters(problem, method, c):
    assert same_run(method, problem, c, 1.0)


@each_problem
@pytest.mark.parametrize("method", WITHOUT_PARAMETERS)
def test_the_unit_of_x_changes_a_run_that_starts_near_0_or_of_lbfgs_far_from_it(problem, method):
    """What the pages say about units: where this is mended they can say more."""
    size = float(np.linalg.norm(problem.start))
    limited = method in FIRST_STEP_WITHIN_LIMITS and not 1.0 <= size <= 4.0 * size <= 10.0
    assert same_run(method, problem, 1.0, 4.0) is not limited
    assert not same_run(method, problem, 1.0, 2.0**-8)  # |x0| < 1


@each_setting(SCALE_FREE)
@pytest.mark.parametrize(
    "problem", [testbed.rosenbrock(10), testbed.nested_chain(4, 0.03)], ids=lambda p: p.name
)
def test_a_huge_constant_only_hides_small_decreases(problem, setting):
    """With 1e11 added, f is known to 1e-5 only; the gradient still tells the way."""
    lifted = testbed.shifted(problem, 1e11)
    _, result = run(lifted, setting.method(), tol=1e-6, iterations=20_000)
    assert result.status is Status.CONVERGED
    assert result.grad_norm <= 1e-6


# --- methods that coincide ------------------------------------------------------------------------


@each_problem
@pytest.mark.parametrize(("method", "fixed"), [(AdaRAGD, RAGD), (AdaRHB, RHB)])
@pytest.mark.parametrize("fraction", [1.0, 0.1])
def test_an_adaptive_method_that_starts_narrow_is_the_fixed_one(problem, method, fixed, fraction):
    """B0 <= B: the same points; only, the last iterate is a candidate for the output as well."""
    chosen, tol = Setting(fixed, "theory").arguments(problem)
    radius = chosen.resolved(tol, problem.dimension).radius
    narrow = method(
        gradient_lipschitz=chosen.gradient_lipschitz,
        hessian_lipschitz=chosen.hessian_lipschitz,
        eps=chosen.eps,
        initial_radius=fraction * radius,
        decrease=method.scheme.decrease_factor,
    )
    expected, theirs = run(problem, chosen, iterations=3000)
    found, ours = run(problem, narrow, iterations=3000)
    assert theirs.restarts > 20
    assert ours.trace.when(EventKind.RESTART) == theirs.trace.when(EventKind.RESTART)
    assert not ours.trace.when(EventKind.ROLLBACK)
    # The output of a completed run, or of one that was stopped above another point, comes last.
    count = min(len(found), len(expected)) - (theirs.status is Status.COMPLETED)
    assert abs(len(found) - len(expected)) <= 1
    np.testing.assert_array_equal(found[:count], expected[:count])


@each_problem
@pytest.mark.parametrize("method", [RAGD, RHB])
@pytest.mark.parametrize("radius", [math.inf, 1e-2])
def test_without_momentum_all_is_gradient_descent(problem, method, radius):
    """theta = 1: restarts change nothing, and z^k = x^k."""
    eta = 1 / problem.gradient_lipschitz
    chosen = method(step_size=eta, momentum=0.0, radius=radius, epoch_length=10**6)
    x, expected = problem.start, []
    for _ in range(100):
        expected.append(x)
        x = x - eta * problem.gradient(x)
    found, _ = run(problem, chosen, iterations=100)
    np.testing.assert_array_equal(found[:100], expected)


@each_problem
@each_setting([*DETERMINISTIC, PERTURBED])
def test_runs_repeat(problem, setting):
    np.testing.assert_array_equal(points(problem, setting), points(problem, setting))


def test_only_the_seed_makes_perturbed_runs_differ():
    problem = replace(SADDLE, start=np.zeros(SADDLE.dimension))
    one, same, other = (points(problem, PERTURBED, rng=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.all(np.any(one[1:] != other[1:], axis=1))
