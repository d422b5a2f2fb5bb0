"""Sets that are narrower than the tolerance, and steep norms: where x may move by less than it, a
point is not a solution for that."""

import numpy as np
import pytest

from momentous import GroupL2, Simplex, Verdict, certify, minimize, minimize_many
from momentous.core.penalties import L1, Ball, Box

WIDTH = 1e-6  # in metres, say


def quadratic(target):
    """Along variables of that width; 0 at the target, which is given in parts of it."""
    target = np.asarray(target)
    return lambda z: (
        float(np.sum((z / WIDTH - target) ** 2)) / 2,
        (z / WIDTH - target) / WIDTH,
    )


def bowl(z):
    return float(np.sum((z - 1.0) ** 2)) / 2, z - 1.0


SETS = {
    "bounds": ({"bounds": (0.0, WIDTH)}, quadratic([0.98]), [0.0], [0.98 * WIDTH]),
    "Box": ({"penalty": Box(0.0, WIDTH)}, quadratic([0.5, 2.0]), [0.0, 0.0], [WIDTH / 2, WIDTH]),
    "Simplex": (
        {"penalty": Simplex(WIDTH)}, quadratic([0.7, 0.3, -1.0]), [WIDTH / 3] * 3,
        [0.7 * WIDTH, 0.3 * WIDTH, 0.0],
    ),
    "Ball": ({"penalty": Ball(WIDTH)}, quadratic([0.6, 0.2]), [0.0, 0.0], [6e-7, 2e-7]),
    "L1": ({"penalty": L1(1e9)}, bowl, [5e-6, 5e-6], [0.0, 0.0]),
    "GroupL2": ({"penalty": GroupL2([1e9, 0.1], [0, 1])}, bowl, [5e-6, 5e-6], [0.0, 0.9]),
}  # fmt: skip
each_set = pytest.mark.parametrize("name", SETS)


@each_set
def test_no_point_of_a_set_narrower_than_the_tolerance_is_a_solution_for_that(name):
    given, fun, start, solution = SETS[name]
    start = np.array(start)
    found = certify(fun, start, jac=True, **given)
    assert found.verdict is Verdict.NOT_STATIONARY, found.message
    result = minimize(fun, start, jac=True, **given)
    assert result.success
    assert result.x == pytest.approx(solution, rel=1e-4, abs=1e-4 * WIDTH)
    assert certify(fun, result.x, jac=True, **given).verdict is Verdict.SECOND_ORDER


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("width", [1e-6, 1e-12])
@pytest.mark.parametrize("single", [False, True])
def test_differences_fit_into_narrow_bounds(jac, width, single):
    def fun(x):
        value = 2.0 * (x[0] / width - 0.5) ** 2
        return np.float32(value) if single else value

    result = minimize(fun, np.array([width / 100]), jac=jac, bounds=[(0.0, width)])
    assert result.x[0] == pytest.approx(width / 2, rel=1e-3), result.message


def test_noise_of_differences_longer_than_the_way_to_a_bound_is_no_success():
    def fun(x):  # in a simple set, of which steps of differences know nothing
        return 1e3 + 2.0 * (x[0] * 1e12 - 0.5) ** 2

    given = {"jac": "2-point", "penalty": Simplex(1e-12)}
    result = minimize(lambda x: fun(x), np.array([1e-14, 0.99e-12]), **given)
    assert not result.success or result.fun == pytest.approx(1e3), result.message


def test_a_batch_and_a_compiled_run_go_on_too():
    given, fun, start, solution = SETS["bounds"]
    many = minimize_many(fun, np.array([start, start]), jac=True, vectorized=False, **given)
    assert many.success.all()
    assert many.x[1] == pytest.approx(solution, rel=1e-4)
    jax = pytest.importorskip("jax")
    from momentous.jax import solve

    compiled = solve(lambda z: jax.numpy.sum((z * 1e6 - 0.98) ** 2) / 2, np.array([0.0]),
                     bounds=(0.0, WIDTH), tol=1e-5)  # fmt: skip
    assert float(compiled.x[0]) == pytest.approx(solution[0], rel=1e-3)


def test_the_message_says_that_the_tolerance_is_more_than_the_width():
    """At the end by evaluations, with what f may still fall by at first order."""
    given, fun, start, _ = SETS["bounds"]
    result = minimize(fun, np.array(start), jac=True, max_evaluations=1, **given)
    assert not result.success
    words = "the tolerance 1e-05 is more than the width between the bounds of 1 free variables"
    assert words in result.message
    assert result.message.endswith("they can lower f by 0.98")
    assert "eps = 1e-05 is more than" in certify(fun, np.array(start), jac=True, **given).message
    wide = minimize(bowl, np.zeros(2), jac=True, bounds=(0, 3), max_evaluations=1)
    assert "more than the width" not in wide.message


@pytest.mark.parametrize(
    ("given", "x"),
    [
        ({"bounds": (0.0, 2.0)}, [1e-9, 1.0]),
        ({"penalty": L1(0.5)}, [1e-9, 1.0]),
        ({"penalty": GroupL2(0.5, [0, 1])}, [1e-9, 1.0]),
        ({"penalty": Simplex(1.0)}, [1e-9, 1.0 - 1e-9]),
        ({"penalty": Ball(1.0)}, [0.0, 1.0 - 1e-9]),
    ],
    ids=["bounds", "L1", "GroupL2", "Simplex", "Ball"],
)
def test_what_is_only_near_its_bound_is_not_held_strictly(given, x):
    """Within eps of it, where the first-order condition holds; at the bound it is of second order,
    and beside it f has another gradient, as steep as may be."""
    slope = {0.5: np.array([0.1, -0.5])}.get(getattr(given.get("penalty"), "weight", 0.0))
    slope = np.array([3.0, 0.0]) if slope is None else slope
    if isinstance(given.get("penalty"), Ball):
        slope = np.array([0.0, -3.0])
    centre = np.array([0.0, 1.0])
    fun = lambda z: (  # noqa: E731
        float(slope @ z + (z - centre) @ (z - centre) / 2), slope + z - centre,
    )  # fmt: skip
    found = certify(fun, np.array(x), jac=True, eps=1e-6, **given)
    assert found.verdict is Verdict.FIRST_ORDER, found.message
    assert "within eps of" in found.message
    at = certify(fun, centre, jac=True, eps=1e-6, **given)
    assert at.verdict is Verdict.SECOND_ORDER, at.message
