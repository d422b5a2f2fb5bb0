"""Jin's AGD and "convex until proven guilty" go where their definitions go, and keep their word.

The references below store every point and know no rounding guards.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import momentous
from helpers import Waves, counted, fingerprint
from momentous import EventKind, Status, iterate, minimize, testbed
from momentous.methods.guilty import ConvexUntilGuilty
from momentous.methods.jin import JinAGD
from reference import CHAIN, COSINES, FLAT_SADDLE, FUNCTIONS, SADDLE, Watched, started

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
GUILT = EventKind.NEGATIVE_CURVATURE


def separable(name, dimension=12, spread=2.0):
    """With the constants L, rho and L3 of the loss, all exact."""
    weights = np.linspace(1.0, 0.3, dimension)
    problem = testbed.rotated(testbed.separable(name, weights=weights, scales=1.0))
    return started(problem, spread), testbed.LOSSES[name].fourth_bound


WELSCH, WELSCH_L3 = separable("welsch")
TANH, TANH_L3 = separable("tanh-squared")
COSINE, COSINE_L3 = separable("cosine", spread=0.1)
# Near the top of the hill, where every direction curves downwards.
HILL = replace(SADDLE, start=1e-4 * np.arange(1.0, 11.0), name="hill")


def near(points, references):
    assert len(points) == len(references)
    np.testing.assert_allclose(np.array(points), np.array(references), rtol=1e-10, atol=1e-12)


def mean_curvature(problem, u, v):
    """2 (f(u) - f(v) - <grad f(v), u - v>)/|u - v|^2, from the Hessian between v and u."""
    apart = u - v
    total = 0.0
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        tau = (node + 1) / 2
        bent = apart @ problem.hessian_product(v + tau * apart, apart)
        total += weight / 2 * (1 - tau) * bent
    return 2 * total / (apart @ apart)


def kinds(step):
    return [event.kind for event in step.events]


# --- Jin ------------------------------------------------------------------------------------------


def jin(problem, *, eta, theta, gamma, s, most, eps=0.0, wait=math.inf, draw=None):
    """Algorithm 2 of Jin et al.: (y, next x, next v, kind) for every iteration."""
    f, gradient = problem.value, problem.gradient
    x, v, rows, perturbed_at = problem.start, np.zeros(problem.dimension), [], -math.inf
    draws = 0
    for t in range(most):
        if t - perturbed_at > wait and np.linalg.norm(gradient(x)) <= eps:
            x, perturbed_at, draws = x + draw(draws), t, draws + 1
        y = x + (1 - theta) * v
        g, length = gradient(y), np.linalg.norm(v)
        if length > 0 and f(x) < f(y) + g @ (x - y) - gamma / 2 * (x - y) @ (x - y):
            if length < s:
                ends = [x + s * v / length, x - s * v / length]
                x, kind = min(ends, key=f), "moved"
            else:
                kind = "dropped"
            v = np.zeros_like(x)
        else:
            x_next, kind = y - eta * g, "step"
            x, v = x_next, x_next - x
        rows.append((y, x, v, kind))
    return rows


def theory(problem, eps):
    eta = 1 / (4 * problem.gradient_lipschitz)
    theta = 0.5 * (eps * problem.hessian_lipschitz * eta**2) ** 0.25
    gamma = theta**2 / eta
    return {"eta": eta, "theta": theta, "gamma": gamma, "s": gamma / 4 / problem.hessian_lipschitz}


def jin_method(problem, eps, **options):
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    return JinAGD(gradient_lipschitz=L, hessian_lipschitz=rho, eps=eps, **options)


def steps_of(problem, method, most, **options):
    counter = counted(problem)
    run = iterate(
        counter.fun, problem.start, jac=counter.jac, method=method, max_iterations=most, **options
    )
    return [(step, counter.values, counter.gradients) for step in run]


JIN_CASES = [
    (HILL, 1e-3, {"step", "moved", "dropped"}),
    (WELSCH, 1e-3, {"step", "moved", "dropped"}),
    (CHAIN, 1e-3, {"step", "dropped"}),
    (TANH, 1e-3, {"step"}),
]


@pytest.mark.parametrize(
    ("problem", "eps", "shows"), JIN_CASES, ids=lambda c: getattr(c, "name", "")
)
def test_jin_goes_where_the_algorithm_goes(problem, eps, shows):
    rows = jin(problem, **theory(problem, eps), most=150)
    steps = steps_of(problem, jin_method(problem, eps, perturbed=False), 150, tol=0.0)
    assert {row[3] for row in rows} == shows
    near([step.x for step, *_ in steps], [row[0] for row in rows])
    near([step.memory.x for step, *_ in steps], [row[1] for row in rows])
    assert [GUILT in kinds(step) for step, *_ in steps] == [row[3] != "step" for row in rows]


@pytest.mark.parametrize("problem", [WELSCH, CHAIN], ids=lambda p: p.name)
def test_jin_as_li_and_lin_ran_it(problem):
    eta, eps = 0.7 / problem.gradient_lipschitz, 1e-4
    theta = 0.04 * (eps * eta**2) ** 0.25
    numbers = {"eta": eta, "theta": theta, "gamma": theta**2 / eta, "s": theta**2 / eta / 4}
    rows = jin(problem, **numbers, most=150)
    steps = steps_of(problem, JinAGD.as_compared(eta), 150, tol=0.0)
    near([step.memory.x for step, *_ in steps], [row[1] for row in rows])
    assert "dropped" in {row[3] for row in rows} or problem is CHAIN


def test_jin_is_perturbed_from_a_stream_for_each_draw():
    eps, r, wait, seed = 0.1, 1e-2, 7, 5

    def draw(n):
        random = np.random.default_rng([seed, n])
        direction = random.standard_normal(10)
        return r * random.random() ** (1 / 10) * direction / np.linalg.norm(direction)

    problem = replace(SADDLE, start=np.zeros(10))
    rows = jin(problem, **theory(problem, eps), most=60, eps=eps, wait=wait, draw=draw)
    method = jin_method(problem, eps, perturbation=r, wait=wait, drop=1e-9)
    steps = steps_of(problem, method, 60, rng=seed)
    near([step.memory.x for step, *_ in steps], [row[1] for row in rows])
    assert sum(EventKind.PERTURBED in kinds(step) for step, *_ in steps) >= 2


@pytest.mark.parametrize("problem", [HILL, WELSCH, CHAIN], ids=lambda p: p.name)
def test_jin_takes_one_gradient_and_two_values_an_iteration(problem):
    eps = 1e-2
    rows = jin(problem, **theory(problem, eps), most=100)
    steps = steps_of(problem, jin_method(problem, eps, perturbed=False), 100, tol=0.0)
    values = gradients = 1  # at x0
    resting = True  # y = x: the value there is known
    for row, (step, all_values, all_gradients) in zip(rows, steps, strict=True):
        values += (not resting) + {"step": 1, "moved": 2, "dropped": 0}[row[3]]
        gradients += step.nit > 1  # at x0 it is known
        resting = row[3] != "step"
        assert (all_values, all_gradients) == (values, gradients)
        assert (step.nfev, step.njev) == (values, gradients)


@pytest.mark.parametrize("problem", [HILL, *FUNCTIONS], ids=lambda p: p.name)
def test_the_hamiltonian_falls_as_the_theory_says(problem):
    rho, L = problem.hessian_lipschitz, problem.gradient_lipschitz
    for eps in (1e-4 * L**2 / rho, 1e-2 * L**2 / rho, L**2 / rho):
        p = theory(problem, eps)
        eta, s = p["eta"], p["s"]
        exploited = min(s**2 / (2 * eta), (p["gamma"] - 2 * rho * s) * s**2 / 2)
        method = jin_method(problem, eps, perturbed=False)
        run = iterate(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-4,
            max_iterations=200,
        )  # fmt: skip
        energy, speed, value = run.memory.energy, run.memory.speed, run.memory.value
        for step in run:
            memory = step.memory
            noise = 1e-14 * (abs(energy) + 1)
            if GUILT in kinds(step):
                assert memory.energy <= energy - exploited + noise
                assert memory.value <= value
            else:
                kept = p["theta"] / (2 * eta) * speed**2 + eta / 4 * step.grad_norm**2
                assert memory.energy <= energy - kept + noise
            energy, speed, value = memory.energy, memory.speed, memory.value


def test_exploited_curvature_is_there_and_f_falls():
    """What the event claims is between x and y; a move by s lowers f."""
    method, p = jin_method(HILL, 1e-3, perturbed=False), theory(HILL, 1e-3)
    run = iterate(HILL.value, HILL.start, jac=HILL.gradient, method=method, tol=0.0,
                  max_iterations=150)  # fmt: skip
    x, value, found, lowered = HILL.start, HILL.value(HILL.start), 0, 0
    for step in run:
        if GUILT in kinds(step):
            found += 1
            claimed = step.events[0].value
            assert claimed > p["gamma"]
            assert mean_curvature(HILL, x, step.x) == pytest.approx(-claimed, rel=1e-5, abs=1e-6)
            moved = step.memory.x is not x
            lowered += moved
            assert step.memory.value < value if moved else step.memory.value == value
        x, value = step.memory.x, step.memory.value
    assert found >= 5
    assert lowered >= 3


def test_rounding_is_not_taken_for_curvature():
    """At a minimum, on top of a constant, the signs of differences of values are noise."""
    bowl = testbed.shifted(replace(COSINE, start=COSINE.start), 1e6)
    method = jin_method(bowl, 1e-6, perturbed=False)
    run = iterate(bowl.value, bowl.start, jac=bowl.gradient, method=method, tol=0.0,
                  max_iterations=2000)  # fmt: skip
    last = max(run, key=lambda step: step.nit)
    settled = [nit for nit, event in run.result.trace.events if event.kind is GUILT and nit > 500]
    assert not settled
    assert last.grad_norm < 1e-8


def test_a_displacement_that_does_not_help_is_not_made():
    """With a ridiculous s both ends are higher: x stays, without momentum."""
    method = jin_method(HILL, 1e-3, perturbed=False, curvature_step=1e3)
    kept = None
    for step, *_ in steps_of(HILL, method, 100, tol=0.0):
        if GUILT in kinds(step):
            assert step.memory.x is kept
            assert step.memory.speed == 0.0
            break
        kept = step.memory.x
    else:
        pytest.fail("no negative curvature was met")


@pytest.mark.parametrize("kappa", [4, 30, 60])
@pytest.mark.parametrize("seed", range(2))
def test_jin_leaves_a_saddle_that_the_theory_says_it_leaves(kappa, seed):
    """Started exactly on it, with the least negative curvature that is no goal."""
    g = 1.2 / kappa  # 1.2 sqrt(rho eps)
    problem = testbed.saddle(8, 1, curvature=1.0, negative_curvature=g)
    eps = min(1 / (kappa * kappa * g), 1.0)
    result = minimize(
        problem.value, problem.start, jac=problem.gradient, rng=seed,
        method=JinAGD(gradient_lipschitz=1.0, hessian_lipschitz=g, eps=eps),
    )  # fmt: skip
    assert result.status is Status.COMPLETED
    assert result.grad_norm <= eps
    assert abs(result.x[-1]) == pytest.approx(math.pi, abs=0.5)
    assert result.numbers["fallen"] < result.numbers["drop"]


def test_a_perturbation_is_not_lost_in_rounding():
    problem, far = testbed.saddle(2, 2), 1e6
    result = minimize(
        lambda x: problem.value(x - far), np.full(4, far), jac=lambda x: problem.gradient(x - far),
        method=JinAGD(1.0, 1.0, eps=1e-4, perturbation=1e-14),
    )  # fmt: skip
    assert result.status is Status.COMPLETED
    np.testing.assert_allclose(np.abs(result.x - far), [0, 0, math.pi, math.pi], atol=1e-3)


# --- guilty ---------------------------------------------------------------------------------------


def inner(f, gradient, p, alpha, Lg, inner_eps, cap):
    """AGD-Until-Proven-Guilty: all x_s, all y_s, and w (None: innocent)."""

    def g(x):
        return f(x) + alpha * (x - p) @ (x - p)

    def slope(x):
        return gradient(x) + 2 * alpha * (x - p)

    kappa = Lg / alpha
    omega = (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
    xs, ys, t = [p], [p], 0
    while True:
        t += 1
        ys.append(xs[-1] - slope(xs[-1]) / Lg)
        xs.append(ys[-1] + omega * (ys[-1] - ys[-2]))
        z = ys[-1] - slope(ys[-1]) / Lg
        psi = g(p) - g(z) + alpha / 2 * (z - p) @ (z - p)
        w = None
        if g(ys[-1]) > g(p):
            w = p
        elif slope(ys[-1]) @ slope(ys[-1]) > 2 * Lg * psi * math.exp(-t / math.sqrt(kappa)):
            w = z
        if w is None and np.linalg.norm(slope(ys[-1])) > inner_eps and t < cap:
            continue
        if w is None:
            return xs, ys, None, None
        for s in range(t):
            for u in (ys[s], w):
                d = u - xs[s]
                if g(u) < g(xs[s]) + slope(xs[s]) @ d + alpha / 2 * d @ d:
                    return xs, ys, u, s
        raise AssertionError("a violation without a pair")


def guilty(problem, eps, order, constant, most, cap=math.inf):
    """Guarded-Non-Convex-AGD: (ys, pair or None, next p, s, points tried) for every k."""
    f, gradient, L = problem.value, problem.gradient, problem.gradient_lipschitz
    if order == 2:
        alpha = 2 * math.sqrt(constant * eps)
        eta = alpha / constant
    else:
        alpha = 2 * constant ** (1 / 3) * eps ** (2 / 3)
        eta = math.sqrt(2 * alpha / constant)
    p, rows = problem.start, []
    for _ in range(most):
        xs, ys, u, s = inner(f, gradient, p, alpha, L + 2 * alpha, eps / 10, cap)
        tried = []
        if u is None:
            p, pair = ys[-1], None
        else:
            v = xs[s]
            pair, length = (u, v), np.linalg.norm(u - v)
            d = (u - v) / length
            if order == 2:
                tried = [u + eta * d, u - eta * d]
            else:
                tried = [u + (math.sqrt(eta * (eta + length)) - length) * d, v - eta * d]
                if s >= 1:
                    tried += [(ys[s] + ys[s - 1]) / 2, -2 * ys[s] + 3 * ys[s - 1]]
            p = min([*ys, u, *tried], key=f)
        rows.append((ys, pair, p, s, tried))
        if np.linalg.norm(gradient(p)) <= eps:
            break
    return rows


def guilty_method(problem, eps, order, constant, **options):
    name = {2: "hessian_lipschitz", 3: "third_lipschitz"}[order]
    return ConvexUntilGuilty(
        problem.gradient_lipschitz, eps=eps, order=order, **{name: constant}, **options
    )


GUILTY_CASES = [
    pytest.param(HILL, 1e-4, 2, 1.0, {}, id="hill-2"),
    pytest.param(HILL, 1e-3, 3, 1.0, {}, id="hill-3"),
    pytest.param(WELSCH, 1e-4, 2, WELSCH.hessian_lipschitz, {}, id="welsch-2"),
    pytest.param(WELSCH, 1e-4, 3, WELSCH_L3, {}, id="welsch-3"),
    pytest.param(TANH, 1e-4, 2, TANH.hessian_lipschitz, {}, id="tanh-2"),
    pytest.param(TANH, 1e-4, 3, TANH_L3, {}, id="tanh-3"),
    pytest.param(CHAIN, 1e-2, 2, CHAIN.hessian_lipschitz, {}, id="chain-2"),
    pytest.param(HILL, 1e-3, 2, 1.0, {"inner_cap": 6}, id="hill-2-capped"),
]


@pytest.mark.parametrize(("problem", "eps", "order", "constant", "options"), GUILTY_CASES)
def test_guilty_goes_where_the_algorithm_goes(problem, eps, order, constant, options):
    rows = guilty(problem, eps, order, constant, 25, options.get("inner_cap", math.inf))
    method = guilty_method(problem, eps, order, constant, **options)
    seen = Watched(problem)
    run = iterate(seen.value, problem.start, jac=seen.gradient, method=method, tol=0.0)
    outer, pairs, tried, ys = [], [], [], []
    for step in run:
        memory = step.memory
        if memory.search is None and len(memory.values) > 1:
            ys.append(memory.y)
        if memory.pair is not None:
            pairs.append((memory.pair.u, memory.pair.v))
            tried += seen.values[-len(rows[len(outer)][4]) :]
        if EventKind.RESTART in kinds(step):
            outer.append(step.x)
            if len(outer) == len(rows):
                break
    near(outer, [row[2] for row in rows])
    near(pairs, [row[1] for row in rows if row[1] is not None])
    near(tried, [point for row in rows for point in row[4]])
    # The last y_t of an inner iteration is where it ended, or where the search began.
    near(ys, [y for row in rows for y in row[0][1:-1]])
    assert EventKind.ROLLBACK not in [event.kind for _, event in run.result.trace.events]
    assert pairs or problem is not HILL or options
    if options:
        assert any(len(row[0]) == 7 and row[1] is None for row in rows)


def test_the_cases_of_guilty_show_all_that_can_happen():
    """Pairs with the first point and with later ones, in both orders."""
    for case in GUILTY_CASES[:2]:
        rows = [row for row in guilty(*case.values[:4], 25) if row[1] is not None]
        assert any(row[3] == 0 for row in rows)
        assert any(row[3] > 0 for row in rows)


@pytest.mark.parametrize("order", [2, 3])
def test_guilty_takes_two_gradients_and_two_values_an_iteration(order):
    eps = {2: 1e-4, 3: 1e-3}[order]
    steps = steps_of(HILL, guilty_method(HILL, eps, order, 1.0), 400, tol=0.0)
    values = gradients = 1
    known = True  # the gradient at x_0 = p
    searched = 0  # points x_s that a search went through
    searching, pairs = False, 0
    for step, all_values, all_gradients in steps:
        assert (step.nfev, step.njev) == (all_values, all_gradients)
        new_values, new_gradients = all_values - values, all_gradients - gradients
        values, gradients = all_values, all_gradients
        guilty = step.memory.pair is not None
        if searching:
            at_x = int(searched > 0)  # a gradient and a value at x_s; those at x_0 = p are known
            tried = (2 + 2 * (order == 3 and searched > 0)) * guilty
            assert new_values == at_x + tried
            # The gradient at the next outer iterate is known where that is one of the last y_s.
            assert new_gradients - at_x in ((0, 1) if guilty else (0,))
            pairs += guilty
        else:
            assert new_values == 2
            assert new_gradients == 2 - known
        searched = searched + 1 if searching else 0
        searching = step.memory.search is not None
        known = EventKind.RESTART in kinds(step)
    assert pairs >= 2


def test_guilty_pays_for_its_values_with_gradients_where_they_come_together():
    counter = counted(HILL)
    method = guilty_method(HILL, 1e-4, 2, 1.0)
    result = minimize(counter.both, HILL.start, jac=True, method=method, tol=0.0, max_iterations=9)
    assert result.nfev == result.njev == counter.values
    assert result.nfev <= 1 + 3 * 9


def test_guilty_blames_the_step_where_there_is_no_pair():
    """With a step four times too long f rises: no pair proves anything, and the step shrinks."""
    method = ConvexUntilGuilty(step_size=4 / CHAIN.gradient_lipschitz, curvature=1.0,
                               exploration=1e-2, eps=1e-3)  # fmt: skip
    steps = steps_of(CHAIN, method, 3000, tol=1e-3)
    values, risen = 1, 0
    for step, all_values, _ in steps:
        accused = step.memory.search is not None and step.memory.t == 0
        risen += accused and all_values - values == 1  # f(z) is not asked for
        values = all_values
    assert risen
    assert steps[-1][0].grad_norm <= 1e-3
    assert steps[-1][0].step_size < 4 / CHAIN.gradient_lipschitz


PROMISES = [
    *((problem, 2, problem.hessian_lipschitz) for problem in [HILL, *FUNCTIONS]),
    (HILL, 3, 1.0),
    (COSINES, 3, 1.0),
    (WELSCH, 3, WELSCH_L3),
    (TANH, 3, TANH_L3),
    (COSINE, 3, COSINE_L3),
]


@pytest.mark.parametrize(
    ("problem", "order", "constant"), PROMISES, ids=[f"{p.name}-{o}" for p, o, _ in PROMISES]
)
def test_every_return_of_guilty_keeps_its_promise(problem, order, constant):
    """Outer iterations lower f by what the theorem says, and every pair is one."""
    L = problem.gradient_lipschitz
    largest = L**2 / 64 / constant if order == 2 else (L / 8) ** 1.5 / math.sqrt(constant)
    for eps in (largest, 1e-2 * largest, 1e-4 * largest):
        method = guilty_method(problem, eps, order, constant)
        alpha = method.resolved(0.0).curvature
        promised = alpha**3 / (64 * constant**2) if order == 2 else alpha**2 / (32 * constant)
        promised = min(eps**2 / (5 * alpha), promised)
        run = iterate(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=0.0,
            max_iterations=200,
        )  # fmt: skip
        value = problem.value(problem.start)
        for step in run:
            pair = step.memory.pair
            if pair is not None:
                u, v = pair.u, pair.v
                bend = problem.value(u) - problem.value(v) - problem.gradient(v) @ (u - v)
                assert bend < -alpha / 2 * (u - v) @ (u - v)
                assert pair.curvature > alpha
                assert step.events[0].value == pair.curvature
                if problem.hessian_product is not None:
                    curved = mean_curvature(problem, u, v)
                    assert curved == pytest.approx(-pair.curvature, rel=1e-5, abs=1e-6 * L)
            assert EventKind.ROLLBACK not in kinds(step)
            if EventKind.RESTART in kinds(step):
                assert step.fun <= value
                if step.grad_norm > eps:
                    assert step.fun <= value - promised * (1 - 1e-9)
                value = step.fun


@pytest.mark.parametrize("order", [2, 3])
def test_pairs_let_guilty_go_down_the_hill(order):
    """The lemma of the exploitation: the lower end is alpha eta^2/12 below f(u), or f(v)."""
    hill = replace(HILL, start=3 * HILL.start if order == 2 else HILL.start)
    method = guilty_method(hill, 1e-2, order, 1.0)
    p = method.resolved(0.0)
    alpha, eta = p.curvature, p.exploration
    found = 0
    for step, *_ in steps_of(hill, method, 300, tol=0.0):
        pair = step.memory.pair
        if pair is not None and np.linalg.norm(pair.u - pair.v) <= eta / 2:
            found += 1
            bound = hill.value(pair.u) - alpha * eta**2 / 12
            if order == 3:
                bound = max(bound, hill.value(pair.v) - alpha * eta**2 / 4)
            assert step.fun <= bound + 1e-12
    assert found


@pytest.mark.parametrize("shift", [1e4, 1e8])
def test_guilty_tells_rounding_from_guilt(shift):
    """On top of a constant no pair is real near the minimum, and the run ends with a reason."""
    bowl = testbed.shifted(COSINE, shift)
    result = minimize(
        bowl.value, bowl.start, jac=bowl.gradient, method=guilty_method(bowl, 1e-7, 2, 1.0),
        tol=1e-7, max_iterations=5000,
    )  # fmt: skip
    assert result.status in (Status.CONVERGED, Status.NO_PROGRESS)
    assert result.grad_norm < 1e-7 or "rounding" in result.message
    assert GUILT not in [event.kind for nit, event in result.trace.events if nit > 1000]


# --- both -----------------------------------------------------------------------------------------

METHODS = {
    "jin": lambda p, **o: JinAGD(p.gradient_lipschitz, p.hessian_lipschitz, perturbed=False, **o),
    "jin-perturbed": lambda p, **o: JinAGD(p.gradient_lipschitz, p.hessian_lipschitz, **o),
    "guilty": lambda p, **o: ConvexUntilGuilty(p.gradient_lipschitz, p.hessian_lipschitz, **o),
    "guilty-3": lambda p, **o: ConvexUntilGuilty(
        p.gradient_lipschitz, third_lipschitz=p.hessian_lipschitz, order=3, **o
    ),
}
both = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)


@both
@pytest.mark.parametrize(
    "problem", [COSINES, SADDLE, FLAT_SADDLE, WELSCH, CHAIN], ids=lambda p: p.name
)
def test_they_find_stationary_points(make, problem):
    tol = 1e-3
    result = minimize(problem.value, problem.start, jac=problem.gradient, method=make(problem),
                      tol=tol, max_iterations=20_000)  # fmt: skip
    assert result.success, result.message
    assert np.linalg.norm(problem.gradient(result.x)) <= tol
    assert result.fun <= problem.value(problem.start)


@both
@pytest.mark.parametrize("how", ["separate", "fused"])
def test_they_go_round_what_is_not_finite(make, how):
    """A cliff right behind the minimum: the first step, too long, and momentum lead beyond it."""
    waves = Waves()

    def value(x):
        return waves.value(x) if np.all(x > -0.05) else math.nan

    def gradient(x):
        return waves.gradient(x) if np.all(x > -0.05) else np.full(3, math.nan)

    wrong = SimpleNamespace(gradient_lipschitz=20.0, hessian_lipschitz=100.0)
    cliff = SimpleNamespace(value=value, gradient=gradient)
    result = minimize(**counted(cliff).given(how), x0=waves.start, method=make(wrong), tol=1e-2,
                      max_iterations=5000)  # fmt: skip
    events = [event.kind for _, event in result.trace.events]
    assert events.count(EventKind.NON_FINITE) >= 2
    assert result.success, result.message
    assert result.grad_norm <= 1e-2
    assert np.all(result.x > -0.05)


def test_jin_halves_the_step_where_dropping_the_momentum_has_not_helped():
    """A step that is a little too long for a parabola, between two cliffs."""
    method = JinAGD(step_size=0.0205, momentum=0.9, curvature=1.0, curvature_step=1e-3,
                    perturbed=False)  # fmt: skip
    run = iterate(
        lambda x: 50 * float(x @ x) if abs(x[0]) < 10 else math.nan,
        np.array([0.9]),
        jac=lambda x: 100 * x,
        method=method,
        tol=1e-4,
        max_iterations=500,
    )
    sizes = [step.step_size for step in run if EventKind.NON_FINITE in kinds(step)]
    assert sizes == [0.0205, 0.01025]
    assert run.result.success


@both
def test_they_end_where_nothing_is_finite(make):
    """Only x0 itself has a value."""
    waves = Waves()

    def both_of(x):
        inside = np.array_equal(x, waves.start)
        return (waves.value(x), waves.gradient(x)) if inside else (math.nan, np.full(3, math.nan))

    result = minimize(both_of, waves.start, jac=True, method=make(waves), max_iterations=3000)
    assert not result.success
    assert result.status in (Status.NON_FINITE, Status.NO_PROGRESS)
    np.testing.assert_array_equal(result.x, waves.start)


@both
def test_they_work_in_any_library_and_keep_its_dtype(make, library):
    waves = Waves()
    x0, method = library.array(waves.start, "float32"), make(waves)
    if getattr(method, "perturbed", False):
        method = replace(method, wait=40, drop=1e-2)
    result = minimize(waves.both, x0, jac=True, method=method, tol=9.0, max_iterations=900)
    assert result.success, result.message
    assert isinstance(result.x, library.array_type)
    assert "float32" in str(result.x.dtype)
    assert np.linalg.norm(waves.gradient(library.numpy(result.x))) <= 9.001


@both
@pytest.mark.parametrize("how", ["separate", "fused"])
@pytest.mark.parametrize("after", [1, 17, 40])
def test_they_resume_bit_for_bit(make, how, after, tmp_path):
    path, method = tmp_path / "run.npz", make(HILL, eps=1e-3)
    options = {"x0": HILL.start, "method": method, "tol": 1e-3, **counted(HILL).given(how)}
    whole = minimize(**options, max_iterations=90)
    minimize(**options, max_iterations=after, checkpoint=path)
    resumed = minimize(**options, max_iterations=90, resume=path)
    assert fingerprint(resumed) == fingerprint(whole)


def test_jin_repeats_with_the_seed_and_differs_between_seeds():
    problem = replace(SADDLE, start=np.zeros(10))
    runs = [
        minimize(problem.value, problem.start, jac=problem.gradient, rng=seed, max_iterations=50,
                 method=jin_method(problem, 0.1, perturbation=1e-2))
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert fingerprint(runs[0]) == fingerprint(runs[1]) != fingerprint(runs[2])


def test_eps_is_the_end_of_guilty_and_judged_by_the_tolerance():
    options = {"x0": WELSCH.start, "jac": WELSCH.gradient, "max_iterations": 20_000}
    method = METHODS["guilty"](WELSCH, eps=1e-3)
    own = minimize(WELSCH.value, method=method, tol=0.0, **options)
    assert own.status is Status.COMPLETED
    assert own.grad_norm <= 1e-3
    strict = minimize(WELSCH.value, method=method, tol=1e-9, **options)
    assert strict.status is Status.ABOVE_TOLERANCE


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JinAGD(1.0, 1.0, eps=-1.0), "eps=-1.0 must be positive"),
        (lambda: JinAGD(1.0, 1.0, momentum=1.0), r"momentum=1.0 .* must be in \[0, 1\)"),
        (lambda: JinAGD(1.0, 1.0, wait=1.5), "wait=1.5"),
        (lambda: JinAGD(1.0, 1.0, failure_probability=1.0), "failure_probability"),
        (lambda: JinAGD(1.0).resolved(1e-3, 3), "needs hessian_lipschitz="),
        (lambda: JinAGD(hessian_lipschitz=1.0).resolved(1e-3, 3), "needs gradient_lipschitz="),
        (lambda: JinAGD(1.0, 1.0, eps=1.1).resolved(1e-3, 3), "eps=1.1 is above 1"),
        (lambda: ConvexUntilGuilty(1.0, 1.0, order=4), "order=4"),
        (lambda: ConvexUntilGuilty(1.0, 1.0, inner_cap=0), "inner_cap=0 must be positive"),
        (lambda: ConvexUntilGuilty(1.0, order=2).resolved(1e-3), "needs hessian_lipschitz="),
        (lambda: ConvexUntilGuilty(1.0, 1.0, order=3).resolved(1e-3), "needs third_lipschitz="),
        (lambda: ConvexUntilGuilty(1.0, 1.0, eps=0.1).resolved(1e-3), "alpha <= L/4"),
        (lambda: ConvexUntilGuilty(hessian_lipschitz=1.0).resolved(1e-3), "gradient_lipschitz"),
        (
            lambda: ConvexUntilGuilty(step_size=9.0, curvature=1.0, exploration=1.0).resolved(1e-3),
            "step_size=9.0 must be below",
        ),
    ],
)
def test_parameters_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_tolerance_beyond_the_theory_is_clipped():
    assert JinAGD(1.0, 1.0).resolved(7.0, 3).eps == 1.0
    assert JinAGD(1.0, 1.0).resolved(7.0, 3).theta == 0.25
    for order, third in ((2, None), (3, 1.0)):
        p = ConvexUntilGuilty(1.0, 1.0, third_lipschitz=third, order=order).resolved(7.0)
        assert p.curvature == pytest.approx(0.25)
    assert momentous.minimize(
        COSINE.value, COSINE.start, jac=COSINE.gradient, method=METHODS["jin"](COSINE), tol=7.0
    ).success
