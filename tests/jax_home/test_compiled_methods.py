"""The compiled methods take the steps of `momentous.minimize`: points, restarts and counts.

Compiling takes seconds: every method is compiled once, for a family of functions of two variables
(a pytree) that a number chooses from.  Among them are the functions that Optimistix tests its own
minimisers with, for which those of momentous are held to the same accuracy.
"""

from __future__ import annotations

import numpy as np
import pytest

import momentous
from momentous import Status

jax = pytest.importorskip("jax")
optx = pytest.importorskip("optimistix")

import jax.numpy as jnp  # noqa: E402

import momentous.jax as home  # noqa: E402
from momentous.core.machine import Host  # noqa: E402
from momentous.core.oracle import Sample  # noqa: E402
from momentous.core.space import Space  # noqa: E402
from momentous.jax.machine import Compiled, norm, register_records  # noqa: E402
from momentous.methods.registry import method_class  # noqa: E402
from momentous.methods.search.rounding import Look, Rounding  # noqa: E402
from scripted import look_at_noise  # noqa: E402

STEPS = 500  # evaluations in one compiled run


def rosenbrock(y, z):
    return 100 * (z - y**2) ** 2 + (1 - y) ** 2


def waves(y, z):
    return 3 * (1 - jnp.cos(y)) + 10 * (1 - jnp.cos(z))


def himmelblau(y, z):
    return (y**2 + z - 11) ** 2 + (y + z**2 - 7) ** 2


def matyas(y, z):
    return 0.26 * (y**2 + z**2) - 0.48 * y * z


def beale(y, z):
    terms = ((1.5, 1), (2.25, 2), (2.625, 3))
    return sum((c - y + y * z**k) ** 2 for c, k in terms)


def bowl(y, z):
    return 0.1 * y**2 + 1.7 * z**2


def logarithm(y, z):
    """Not finite for y < 0."""
    return y - jnp.log(y) + 100 * (z - y) ** 2


def cliff(y, z):
    return jnp.sqrt(1 + y**2) + jnp.exp(30 * (z - 2)) + 0.1 * (z - 3) ** 2


def lowest_at_zero(y, z):
    return y**2 + z**2 - 1


# Function, start and lowest value.
PROBLEMS = {
    "rosenbrock": (rosenbrock, (-1.2, 1.0), 0.0),
    "waves": (waves, (2.5, 1.0), 0.0),
    "himmelblau": (himmelblau, (2.0, 2.5), 0.0),
    "matyas": (matyas, (6.0, 6.0), 0.0),
    "beale": (beale, (2.0, 0.0), 0.0),
    "bowl": (bowl, (1.0, -2.0), 0.0),
    "lowest at zero": (lowest_at_zero, (1.0, 0.0), -1.0),
    "logarithm": (logarithm, (5.0, -3.0), 1.0),
    "cliff": (cliff, (50.0, 0.0), 1.17),
}
BY_HAND = {"step_size": 0.0006, "momentum": 0.97, "radius": 1.0, "epoch_length": 300}

# The minimiser, its parameters, and after how many evaluations it has to agree with the other one
# to rounding (where a step is unstable, rounding grows).
CASES = {
    "ragd": (home.RAGD, BY_HAND, 300),
    "rhb": (home.RHB, BY_HAND, 300),
    "ada-ragd, Algorithm 2": (home.AdaRAGD, {"by_paper": True, "initial_radius": 1.0}, STEPS),
    "ada-ragd": (home.AdaRAGD, {}, 120),
    "ada-rhb": (home.AdaRHB, {}, 120),
    "parameter-free-agd": (home.ParameterFreeAGD, {}, STEPS),
    "universal-hb": (home.UniversalHeavyBall, {}, STEPS),
    "lbfgs": (home.LBFGS, {}, STEPS),
    "lbfgs, pairs": (home.LBFGS, {"memory": 3}, STEPS),
    "lbfgs, self": (home.LBFGS, {"memory": 3, "scaling": "self"}, STEPS),
    "ssbroyden": (home.SelfScaledBroyden, {"plain_pairs": 3}, STEPS),
}
# The functions of Optimistix's own tests, and which of them a method does not solve in so many
# evaluations: with one step size for all of them it is too short for some.
CLIENTS = ("himmelblau", "matyas", "beale", "bowl", "lowest at zero")
NOT_SOLVED = {"ragd": ["matyas", "beale", "bowl"], "rhb": ["himmelblau", "matyas", "beale", "bowl"]}
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def family(tree, index):
    y, z = tree["y"], tree["z"][0]
    value = jax.lax.switch(index, [fun for fun, _, _ in PROBLEMS.values()], y, z)
    return value, {"doubled": 2 * value}


def joined(tree):
    return jnp.array([tree["y"], tree["z"][0]])


@jax.jit
@jax.value_and_grad
def pair(x, index):
    return family({"y": x[0], "z": x[1:]}, index)[0]


def compiled(solver):
    """All steps of a solve, as Optimistix makes them: what is known after each of them."""
    struct = jax.ShapeDtypeStruct((), jnp.float64)

    def run(start, index):
        def step(carry, _):
            y, state = carry
            y, state, aux = solver.step(family, y, index, {}, state, frozenset())
            ended, result = solver.terminate(family, y, index, {}, state, frozenset())
            value, final, stats = solver.postprocess(
                family, y, aux, index, {}, state, frozenset(), result
            )
            seen = {"x": joined(value), "y": joined(y)}
            seen |= {"ended": ended, "good": result == optx.RESULTS.successful}
            return (y, state), seen | stats | {"aux": final["doubled"]}

        aux = {"doubled": struct}
        state = solver.init(family, start, index, {}, struct, aux, frozenset())
        return jax.lax.scan(step, (start, state), None, length=STEPS)[1]

    return jax.jit(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_minimize(name):
    cls, parameters, sure = CASES[name]
    solver = cls(rtol=0.0, atol=TOLERANCE, **parameters)
    run = compiled(solver)
    unsolved = []
    for index, (problem, (fun, start, lowest)) in enumerate(PROBLEMS.items()):
        tree = {"y": jnp.array(start[0]), "z": jnp.array([start[1]])}
        seen = {key: np.asarray(a) for key, a in run(tree, jnp.array(index)).items()}
        last = int(np.argmax(seen["ended"])) if seen["ended"].any() else STEPS - 1
        compare(seen, last, sure, solver.method, start, problem)
        value = float(fun(*seen["x"][last]))
        assert seen["aux"][last] == pytest.approx(2 * value, rel=1e-9, abs=1e-14)
        if problem in CLIENTS and not (seen["good"][last] and abs(value - lowest) < 1e-4):
            unsolved.append(problem)
    assert unsolved == NOT_SOLVED.get(name, [])


def compare(seen, last, sure, method, start, problem):
    """With a run by `momentous.iterate`: every point that both have reported, and the end."""
    index = jnp.array(list(PROBLEMS).index(problem))

    def both(x):
        value, gradient = pair(x, index)
        return float(value), np.array(gradient)

    run = momentous.iterate(
        both, np.array(start), jac=True, method=method, tol=TOLERANCE, max_evaluations=STEPS
    )
    points, x = {}, np.array(start)
    for step in run:
        if step.report.sample.has_finite_gradient:  # what is not finite is not reported
            x = step.x.copy()
        points[step.nit] = (x, step.restarts)
    for turn in range(last + 1):
        nit, evaluations = int(seen["num_iterations"][turn]), int(seen["num_evaluations"][turn])
        if nit == 0 or evaluations > sure or nit == seen["num_iterations"][turn - 1]:
            continue
        # Where the iteration has ended with the evaluation that the next one begins with, the
        # point reported may be that of the next.
        near = [points[i][0] for i in (nit, nit + 1) if i in points]
        assert any(np.allclose(seen["y"][turn], point, rtol=1e-6, atol=1e-9) for point in near), (
            f"{problem}, iteration {nit}: {seen['y'][turn]} is not one of {near}"
        )
        assert seen["num_restarts"][turn] == points[nit][1]
    if not seen["ended"][last] or last >= sure:
        return
    result = run.result
    assert (int(seen["num_iterations"][last]), int(seen["num_restarts"][last])) == (
        result.nit, result.restarts,
    )  # fmt: skip
    assert Status(int(seen["status"][last])) is result.status
    # The gradient at x0 is taken again after the search for a step size, and after rollbacks of
    # the rule without constants.  The parameter-free methods ask for x_k again after a look at the
    # noise of values.
    extra = int(seen["num_evaluations"][last]) - result.njev
    free = getattr(method, "is_free", False)
    probed = getattr(method, "by_paper", False) or free
    rollbacks = len(result.trace.when("rollback"))
    most = probed + free * rollbacks + 2 * hasattr(method, "guards")
    assert probed <= extra <= most


@pytest.mark.parametrize("scale", [1e-170, 1e160])
def test_gradients_whose_squares_leave_the_range_of_numbers_have_a_norm(scale):
    # With a norm of 0 or inf the start would be the solution, or no place to start from.
    gradient = jnp.array([3.0, 0.0, -4.0]) * scale
    assert float(jax.jit(norm)(gradient)) == pytest.approx(5 * scale)
    assert float(norm(jnp.zeros(2))) == float(norm(jnp.zeros(0))) == 0.0
    assert not np.isfinite(float(norm(jnp.array([jnp.inf, 1.0]))))
    assert np.isnan(float(norm(jnp.array([jnp.nan, 1.0]))))


def test_a_function_of_tiny_values_is_not_solved_at_its_start():
    def tiny(x):
        return 1e-170 * jnp.sum((x - 1.0) ** 2)

    given = {"method": "ada-ragd", "tol": 0.0, "rtol": 1e-6, "max_evaluations": 100}
    found = home.solve(tiny, jnp.array([3.0, -4.0]), **given)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)


@pytest.mark.parametrize("length", [0.5, 20.0, 300.0])
@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-3])
def test_noise_is_measured_as_by_minimize(noise, length):
    """Over waves, which look like noise on a long step, and with noise of their values."""

    def fun(x):
        return 10 - float(np.cos(x[0])) + noise * float(np.sin(1e9 * x[0]))

    x, slope, change = np.array([1.3]), np.sin(1.3), 0.1
    here, v, m = Sample(x, fun(x), np.array([slope]), slope), np.array([-length]), Host.of(Space(x))
    known = Rounding.at(m, here.value), here, v, -length * slope, change
    known, values = look_at_noise(m, fun, *known)

    register_records()
    m = Compiled(jnp.array(x), None)
    at_x = Sample(jnp.array(x), jnp.array(here.value), jnp.array([slope]), jnp.array(slope))
    rounding = Rounding.at(m, at_x.value)
    look = Look.along(m, at_x, jnp.array(v), jnp.array(-length * slope), change)
    answered = jax.jit(lambda rounding, look, value: look.answered(m, rounding, at_x, value))
    looks = 0
    while not look.done:
        point = np.asarray(look.point(m, at_x, jnp.array(v)))
        rounding, look = answered(rounding, look, fun(point))
        looks += 1
    assert looks == values
    assert float(rounding.trusted) == known.trusted
    for name in ("level", "seen", "largest"):
        assert float(getattr(rounding, name)) == pytest.approx(getattr(known, name), rel=1e-9)


@pytest.mark.parametrize("name", ["parameter-free-agd", "universal-hb"])
def test_values_that_are_noisy_are_looked_at_in_compiled_code_too(name):
    """Rounding of a large constant: nothing but gradients can tell, and the counts are the same."""

    def fun(x):
        return 1e7 + jnp.sum(jnp.array([1.0, 3.0, 10.0]) * (1 - jnp.cos(x)))

    pair = jax.jit(jax.value_and_grad(fun))

    def both(x):
        value, gradient = pair(x)
        return float(value), np.array(gradient)

    start = np.array([2.0, 1.0, 0.5])
    result = momentous.minimize(both, start, jac=True, method=name, tol=1e-7)
    found = home.solve(fun, jnp.array(start), method=name, tol=1e-7)
    assert result.success
    assert bool(found.success)
    # In compiled code x_k is evaluated again after a look.
    assert abs(int(found.nfev) - result.nfev) <= 5 + 0.1 * result.nfev
    assert (int(found.nit), int(found.restarts)) == (result.nit, result.restarts)


@pytest.mark.parametrize("name", ["parameter-free-agd", "universal-hb"])
def test_a_start_without_a_gradient_is_complete_in_compiled_code(name):
    cls = method_class(name)
    endless = type(cls.__name__, (cls,), {"stops_at_tolerance": False})()  # by its own rule alone
    found = home.solve(lambda x: jnp.sum(x**2), jnp.zeros(3), method=endless)
    assert Status(int(found.status)) is Status.COMPLETED
    assert found.x.tolist() == [0.0, 0.0, 0.0]


def test_a_branch_in_lanes_changes_no_other_lane():
    """Also where it returns what other cases have made, within it or before it."""

    def run(x):
        m = Compiled(x, jax.random.key(0), lanes=True)
        record = x, 10.0 * x
        within = m.case(
            record,
            (x > 1.0, lambda: m.case(record, (x > 2.0, lambda: (2.0 * x, record[1])))),
            otherwise=lambda: (record[0], -x),
        )
        made_before = m.case(record, (x > 0.0, lambda: (x + 1.0, record[1])))
        return *within, *m.case(record, (x > 2.0, lambda: made_before))

    found = jax.vmap(run)(jnp.asarray([0.5, 1.5, 2.5]))
    expected = [[0.5, 1.5, 5.0], [-0.5, 15.0, 25.0], [0.5, 1.5, 3.5], [5.0, 15.0, 25.0]]
    assert np.asarray(found).tolist() == expected


@pytest.mark.parametrize("asks", [True, False])
def test_a_branch_in_lanes_reads_what_it_was_given(asks):
    """Also where an array has two places, and a branch before has changed one of them."""

    def run(x):
        m = Compiled(x, jax.random.key(0), lanes=True)
        m.asks = asks
        record = x, x

        def first():
            return m.case(x, (x > 3.0, lambda: 7.0 * x)), x

        def second():
            return x, m.case(x, (x > 1.5, lambda: -x))

        def third():
            return m.case(x, (x > 0.5, lambda: x + 1.0)), 2.0 * x

        return m.case(record, (x > 2.0, first), (x > 1.0, second), otherwise=third)

    found = jax.vmap(run)(jnp.asarray([0.25, 0.75, 1.25, 1.75, 2.5, 4.0]))
    expected = [[0.25, 1.75, 1.25, 1.75, 2.5, 28.0], [0.5, 1.5, 1.25, -1.75, 2.5, 4.0]]
    assert np.asarray(found).tolist() == expected


def test_where_there_is_a_gpu_lanes_compute_every_branch(monkeypatch):
    def many(x):
        run = jax.vmap(lambda x: home.solve(lambda x: jnp.sum(x**4 + x**2), x, method="gd"))
        return run(x)

    starts, chosen = jnp.asarray([[1.0, 2.0], [0.1, -3.0], [0.0, 0.5]]), []
    expected = many(starts)

    def on_gpu(*arguments, cpu, default):
        chosen.append(default)
        return default(*arguments)

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(many(starts).x, expected.x)  # the CPU is asked for
    monkeypatch.setattr(jax.lax, "platform_dependent", on_gpu)
    found = many(starts)
    assert len(chosen) == 1
    assert found.nfev.tolist() == expected.nfev.tolist()
    np.testing.assert_allclose(found.x, expected.x, atol=1e-6)
