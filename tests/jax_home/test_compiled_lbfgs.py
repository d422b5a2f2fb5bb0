"""L-BFGS in one compiled loop: the counts of the host, on vectors, on trees, from many starts."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import momentous
from momentous import LBFGS, Status
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import Ask, Goal, Outcome, Rule
from momentous.core.space import Space

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from momentous.jax import solve  # noqa: E402
from momentous.jax.machine import Compiled  # noqa: E402

DRAWN = np.random.default_rng(7)
ROWS, SIGNS = DRAWN.standard_normal((60, 10)), np.sign(DRAWN.standard_normal(60))
TARGETS = ROWS @ DRAWN.standard_normal(10) + DRAWN.standard_t(1.5, 60)
LOW_RANK = DRAWN.standard_normal((8, 3)) @ DRAWN.standard_normal((3, 6))
WEIGHTS = np.logspace(0, 3, 60)


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def logistic(x):
    return jnp.sum(jnp.logaddexp(0.0, -SIGNS * (ROWS @ x))) + 0.05 * jnp.sum(x * x)


def dixon_price(x):
    terms = jnp.arange(2.0, len(x) + 1) * (2 * x[1:] ** 2 - x[:-1]) ** 2
    return (x[0] - 1) ** 2 + jnp.sum(terms)


def powell(x):
    a, b, c, d = x.reshape(-1, 4).T
    terms = (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4
    return jnp.sum(terms)


def trigonometric(x):
    n, i = len(x), jnp.arange(1.0, len(x) + 1)
    return jnp.sum((n - jnp.sum(jnp.cos(x)) + i * (1 - jnp.cos(x)) - jnp.sin(x)) ** 2)


def log_sum_exp(x):
    return jax.nn.logsumexp(ROWS @ x + SIGNS) + 1e-3 * jnp.sum(x * x)


def robust_regression(x):
    return jnp.sum(jnp.log1p((ROWS @ x - TARGETS) ** 2))


def factorisation(x):
    u, v = x[:24].reshape(8, 3), x[24:].reshape(6, 3)
    return jnp.sum((u @ v.T - LOW_RANK) ** 2) / 2 + 1e-3 * jnp.sum(x * x)


def quadratic_with_cosines(x):
    return jnp.sum(WEIGHTS * x * x) / 2 + 5 * jnp.sum(jnp.cos(3 * x + jnp.roll(x, 1)))


def styblinski_tang(x):
    return jnp.sum(x**4 - 16 * x**2 + 5 * x) / 2


def helix(x):
    turn, radius = jnp.arctan2(x[1], x[0]) / (2 * np.pi), jnp.hypot(x[0], x[1])
    return 100 * ((x[2] - 10 * turn) ** 2 + (radius - 1) ** 2) + x[2] ** 2


def wall(x):
    """Not finite beyond a radius that the first trials pass."""
    return jnp.where(jnp.sum(x * x) < 9.0, rosenbrock(x), jnp.nan)


START = DRAWN.standard_normal(60)
PROBLEMS = {
    "rosenbrock 10": (rosenbrock, np.tile([-1.2, 1.0], 5)),
    "rosenbrock 100": (rosenbrock, np.tile([-1.2, 1.0], 50)),
    "logistic": (logistic, np.zeros(10)),
    "dixon-price": (dixon_price, np.ones(15)),
    "powell": (powell, np.tile([3.0, -1.0, 0.0, 1.0], 5)),
    "trigonometric": (trigonometric, np.linspace(0.08, 0.2, 12)),
    "log-sum-exp": (log_sum_exp, START[:10]),
    "robust regression": (robust_regression, np.zeros(10)),
    "factorisation": (factorisation, START[:42] / 2),
    "quadratic with cosines": (quadratic_with_cosines, START),
    "styblinski-tang": (styblinski_tang, START[:10]),
    "helix": (helix, np.array([-1.0, 0.1, 0.0])),
}
QUICK = {("rosenbrock 10", None), ("rosenbrock 10", 5)}
CASES = [  # each is a compilation of three seconds: one store per problem, in turn
    pytest.param(name, memory, marks=[] if (name, memory) in QUICK else pytest.mark.slow)
    for i, name in enumerate(PROBLEMS)
    for memory in (None, 5)
    if (memory is None) == (i % 2 == 0) or (name, memory) in QUICK
]


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def on_host(fun, x0, method, tol=1e-7):
    both = jax.jit(jax.value_and_grad(fun))

    def evaluate(x):
        value, gradient = both(x)
        return float(value), np.array(gradient)

    return momentous.minimize(evaluate, x0, jac=True, method=method, tol=tol)


@pytest.mark.parametrize(("name", "memory"), CASES)
def test_counts_are_those_of_minimize(name, memory):
    (fun, x0), method = PROBLEMS[name], LBFGS(memory=memory)
    found, host = solve(fun, x0, method=method, tol=1e-7), on_host(fun, x0, method)
    assert bool(found.success)
    assert host.success
    assert abs(int(found.nfev) - host.nfev) <= 0.1 * host.nfev + 5
    # Powell's function is of fourth order: where its gradient is 1e-7, it may be 1e-9.
    assert float(found.fun) == pytest.approx(host.fun, rel=1e-9, abs=1e-9)
    if host.nfev < 50:  # before rounding tells the two apart
        assert (int(found.nfev), int(found.nit)) == (host.nfev, host.nit)
        np.testing.assert_allclose(found.x, host.x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("memory", [3])
def test_a_tree_is_one_vector_and_many_starts_are_many_runs(memory):
    def of_tree(tree):
        return rosenbrock(jnp.concatenate([tree["a"].reshape(-1), tree["b"][None]]))

    x0 = np.array([-1.2, 1.0, 0.5, 0.8, -0.3])
    starts = x0 * np.array([[1.0], [0.3], [-2.0], [0.0]])
    trees = {"a": jnp.array(starts[:, :4].reshape(-1, 2, 2)), "b": jnp.array(starts[:, 4])}

    @jax.jit
    @jax.vmap
    def run(tree):
        return solve(of_tree, tree, method="lbfgs", memory=memory, tol=1e-8)

    found = run(trees)
    assert bool(found.success.all())
    assert found.x["a"].shape == (4, 2, 2)
    for i, start in enumerate(starts):
        host = on_host(rosenbrock, start, LBFGS(memory=memory), 1e-8)
        assert abs(int(found.nfev[i]) - host.nfev) <= 5
        assert float(found.x["b"][i]) == pytest.approx(host.x[-1], abs=1e-6)


def test_leaves_keep_their_precision():
    x0 = {"a": jnp.full(3, 2.0, jnp.float32), "b": jnp.array([1.0, -1.0])}

    def fun(x):
        return jnp.sum((x["a"] ** 2 - 2.0) ** 2) + jnp.sum((x["b"] - 3.0) ** 4)

    found = solve(fun, x0, method="lbfgs", tol=1e-3)
    assert bool(found.success)
    assert (found.x["a"].dtype, found.x["b"].dtype) == (jnp.float32, jnp.float64)


@jax.custom_jvp
def wrong_sign(x):
    return jnp.sum(x * x)


@wrong_sign.defjvp
def _(points, directions):
    return wrong_sign(*points), -2 * jnp.sum(points[0] * directions[0])


def cubic(x):
    return jnp.sum(x**3)


# Functions of two variables in one: each store is compiled once for all of them.
OF_TWO = {wall: Status.CONVERGED, wrong_sign: Status.NO_PROGRESS, cubic: Status.UNBOUNDED}
STARTS = {wall: [-1.2, 1.0], wrong_sign: [1.0, 1.0], cubic: [-1.0, -1.0]}


def one_of_two(x, index):
    return jax.lax.switch(index, list(OF_TWO), x)


@pytest.mark.parametrize("fun", OF_TWO)
@pytest.mark.parametrize("memory", [None, 3])
def test_a_run_ends_as_on_the_host(fun, memory):
    """At a minimum behind a wall; where a search fails; where there is no lower bound."""
    method, x0 = LBFGS(memory=memory), np.array(STARTS[fun])
    found = solve(one_of_two, x0, (list(OF_TWO).index(fun),), method=method, tol=1e-7)
    host = on_host(fun, x0, method)
    assert Status(int(found.status)) is host.status is OF_TWO[fun]
    assert int(found.nit) == host.nit
    if fun is not cubic:  # where the host evaluates the point that it returns, far out
        assert int(found.nfev) == host.nfev
        np.testing.assert_allclose(found.x, host.x, rtol=1e-6, atol=1e-8)


def test_pairs_are_dropped_where_rounding_is_reached():
    """Of many starts, as rounding may also lead to a gradient of zero."""
    starts = np.tile([-1.2, 1.0], 5) + 0.05 * np.random.default_rng(0).standard_normal((20, 10))
    options = {"method": "lbfgs", "memory": 10, "tol": 0.0, "max_evaluations": 1000}
    found = jax.jit(jax.vmap(lambda x: solve(rosenbrock, x, **options)))(starts)
    dropped = np.asarray(found.restarts) >= 1
    assert dropped.any()
    # Below rounding a smaller gradient is progress, too: some go on to the limit.
    ends = {Status(status) for status in np.asarray(found.status)[dropped].tolist()}
    assert Status.NO_PROGRESS in ends
    assert ends <= {Status.NO_PROGRESS, Status.MAX_EVALUATIONS}
    assert float(found.fun.max()) <= 1e-25


@pytest.mark.parametrize("memory", [None, 3])
def test_a_run_that_moves_goes_along_the_direction_of_its_new_point(memory):
    rule, goal = LBFGS(memory=memory), Goal(0.0)
    x0, elsewhere = np.array([-1.2, 1.0, 0.5, 0.8]), np.array([0.3, -0.4, 0.9, 0.1])
    both = jax.value_and_grad(rosenbrock)

    def next_point(m, array, compiled):
        def evaluate(x):
            value, gradient = both(x)
            return Sample(array(x), float(value), array(gradient), float(np.linalg.norm(gradient)))

        @compiled
        def told(memory, here):
            memory = rule.write(m, rule.tell(m, memory, here, (), ()))
            return memory, rule.ask(m, memory).point

        @compiled
        def moved(memory, here):
            return rule.ask(m, rule.move(m, memory, here, goal)).point

        memory = rule.begin(m, evaluate(x0), goal)
        point = rule.ask(m, memory).point
        for _ in range(6):
            memory, point = told(memory, evaluate(point))
        return moved(memory, evaluate(elsewhere))

    with_jax = next_point(Compiled(jnp.array(x0), None), jnp.asarray, jax.jit)
    on_host = next_point(Host(Space(x0)), np.asarray, lambda function: function)
    np.testing.assert_allclose(with_jax, on_host, rtol=1e-9)


@record
class Standing:
    current: Sample
    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class Stand(Rule[Standing]):
    """It stays where it is."""

    name, ends_at_noise = "stand", True

    def begin(self, m, here, goal):
        return Standing(here, Outcome(0.0, m.no_events))

    def ask(self, m, memory):
        return Ask(memory.current.point)

    def tell(self, m, memory, here, made, sums):
        return m.but(memory, outcome=Outcome(0.0, m.no_events))

    def accepted(self, memory):
        return memory.current

    def ending(self, memory, shown, status):
        raise AssertionError("it never ends by itself")


def test_a_run_ends_where_it_rests_at_one_value():
    found, host = (
        solve(rosenbrock, np.zeros(3), method=Stand()),
        on_host(rosenbrock, np.zeros(3), Stand()),
    )
    assert Status(int(found.status)) is host.status is Status.NO_PROGRESS
    assert int(found.nit) == host.nit


@pytest.mark.slow
def test_starts_may_be_spread_over_devices_by_shard_map():
    """In a process of its own, whose host has four devices."""
    script = Path(__file__).with_name("sharded_starts.py")
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "the same on 4 devices\n", done.stderr
