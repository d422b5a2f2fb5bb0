"""Accelerations of descent maps: the published ones against what is known of them, and the page."""

import dataclasses
import itertools
import math
from functools import partial

import numpy as np
import pytest

from momentous import accelerate
from momentous.lab.compare.maps import MAP_SOLVERS, run_maps
from momentous.lab.compare.maps.meter import MapMeter, MapStop
from momentous.lab.compare.maps.page import page, shares, write_map_page
from momentous.lab.compare.maps.problems import SMALL, compared_maps, sweep
from momentous.lab.compare.maps.runs import MapRow, goal_of, run_map, save_map_rows
from momentous.lab.compare.maps.solvers import anderson, conjugate, damped, plain, squarem
from momentous.lab.compare.table import load_rows
from momentous.testbed.maps import MapEntry, MapProblem
from momentous.testbed.maps.expectation import poisson_mixture, soft_means
from momentous.testbed.maps.majorise import bradley_terry

EASY = [
    MapEntry("mixture", poisson_mixture, False, 200),
    MapEntry("mixture", partial(soft_means, 60, 2, 3), True, 200),
    MapEntry("majorise", partial(bradley_terry, 8, 10), True, 100),
]


def linear(rates, seed=0):
    """x -> M x + b with a symmetric M of these eigenvalues, and an objective that always falls."""
    random = np.random.default_rng(seed)
    axes, _ = np.linalg.qr(random.standard_normal((len(rates), len(rates))))
    M, b = axes @ np.diag(rates) @ axes.T, random.standard_normal(len(rates))
    falling = itertools.count()
    problem = MapProblem(
        name="linear", description="", start=random.standard_normal(len(rates)),
        step=lambda x: M @ x + b, value=lambda x: -float(next(falling)),
    )  # fmt: skip
    return problem, M, b


def mapped(problem, solve, count):
    """The points that a solver applies the map to, the first ``count`` of them."""
    points = []

    def step(x):
        points.append(x.copy())
        if len(points) > count:
            raise MapStop("enough")
        return problem.step(x)

    watched = MapProblem(
        name="watched", description="", start=problem.start, step=step, value=problem.value
    )
    with pytest.raises(MapStop):
        solve(MapMeter(watched), problem.start.copy())
    return np.array(points[:count])


# --- the solvers ----------------------------------------------------------------------------------


def test_anderson_with_a_long_window_is_gmres():
    """Walker & Ni (2011), theorem 2.2: the next point is the map of GMRES's iterate."""
    problem, M, b = linear([0.9, 0.7, 0.4, 0.2, -0.3, -0.6])
    points = mapped(problem, partial(anderson, 10), 6)
    A, x0 = np.eye(6) - M, problem.start
    residual = b - A @ x0
    for k in range(1, 5):
        krylov = np.array([np.linalg.matrix_power(A, i) @ residual for i in range(k)]).T
        best = x0 + krylov @ np.linalg.lstsq(A @ krylov, residual, rcond=None)[0]
        assert np.allclose(points[k + 1], M @ best + b, rtol=0, atol=1e-8)


def test_anderson_with_a_short_window_uses_the_last_points_only():
    problem, _, _ = linear([0.9, 0.7, 0.4, 0.2, -0.3, -0.6])
    points = mapped(problem, partial(anderson, 2), 7)
    images = [problem.step(x) for x in points]
    residuals = np.array(images) - points
    last = slice(3, 6)
    changes = np.diff(residuals[last], axis=0).T
    weights = np.linalg.lstsq(changes, residuals[5], rcond=None)[0]
    expected = images[5] - np.diff(images[last], axis=0).T @ weights
    assert np.allclose(points[6], expected, rtol=0, atol=1e-10)


def test_anderson_takes_the_image_where_the_objective_does_not_fall():
    problem, _, _ = linear([0.9, 0.5, 0.1])
    start = problem.start

    def value(x):
        """Lower only at images of the plain iteration."""
        point = start
        for k in range(50):
            if np.array_equal(point, x):
                return -float(k)
            point = problem.step(point)
        return 1.0

    guarded = dataclasses.replace(problem, value=value)
    points = mapped(guarded, partial(anderson, 3), 5)
    assert np.allclose(points, mapped(problem, plain, 5), rtol=0, atol=0)


def test_squarem_squares_the_polynomial_of_its_step_on_a_linear_map():
    """y = x + 2 a r + a^2 v has the error (I - a (I - M))^2 e, and one map more follows."""
    problem, M, b = linear([0.95, 0.6, 0.2])
    points = mapped(problem, squarem, 12)
    root = np.linalg.solve(np.eye(3) - M, b)
    limit, x, k = 1.0, points[0], 0
    while k + 3 < len(points):
        r = problem.step(x) - x
        v = problem.step(problem.step(x)) - problem.step(x) - r
        step = min(max(np.linalg.norm(r) / np.linalg.norm(v), 1.0), limit)
        inner = np.eye(3) - step * (np.eye(3) - M)
        y = root + inner @ inner @ (x - root)
        assert np.allclose(points[k + 1], problem.step(x), rtol=0, atol=1e-10)
        k += 2
        if step > 1.01:
            assert np.allclose(points[k], y, rtol=0, atol=1e-8)
            y, k = problem.step(y), k + 1
        limit, x = (4 * limit if step == limit else limit), y
    assert limit > 1.0


@pytest.mark.parametrize("target", [0.1, 0.5, 0.9])
def test_daarem_damps_to_the_length_that_is_asked_for(target):
    random = np.random.default_rng(1)
    F, f = random.standard_normal((8, 3)) * [1.0, 0.1, 0.01], random.standard_normal(8)
    longest = np.linalg.lstsq(F, f, rcond=None)[0]
    gamma = damped(F, f, target)
    assert np.linalg.norm(gamma) == pytest.approx(target * np.linalg.norm(longest), rel=0.02)
    ridges = [np.linalg.solve(F.T @ F + t * np.eye(3), F.T @ f) for t in np.logspace(-9, 2, 4000)]
    assert min(np.linalg.norm(gamma - one) for one in ridges) <= 0.02 * np.linalg.norm(gamma)


def test_daarem_without_damping_is_least_squares():
    random = np.random.default_rng(1)
    F, f = random.standard_normal((8, 3)), random.standard_normal(8)
    expected = np.linalg.lstsq(F, f, rcond=None)[0]
    assert np.allclose(damped(F, f, 1 - 1e-12), expected, rtol=1e-3)
    assert np.array_equal(damped(np.zeros((8, 2)), f, 0.5), np.zeros(2))


def test_conjugate_gradients_end_on_a_parabola_after_as_many_maps_as_it_has_variables():
    curvatures = np.array([1.0, 0.7, 0.5, 0.3, 0.2])
    problem = MapProblem(
        name="bowl", description="", start=np.ones(5), step=lambda x: x - curvatures * x,
        value=lambda x: 0.5 * float(curvatures @ (x * x)),
    )  # fmt: skip
    meter = MapMeter(problem, goal=1e-16)
    with pytest.raises(MapStop, match="reached"):
        conjugate(meter, problem.start.copy())
    assert meter.maps <= 6
    assert meter.values <= 3 * meter.maps + 1  # the start, and three per line


def test_our_solver_is_accelerate_with_its_defaults():
    problem = poisson_mixture()
    goal = goal_of(problem, 200)
    meter, status, _ = run_map(problem, MAP_SOLVERS["accelerate"], goal)
    assert status == "reached"
    count = len(meter.columns()["residual"])
    ours = accelerate(
        problem.step_and_value, problem.start, True, tol=0, max_iterations=None,
        max_evaluations=2 * count,
    )  # fmt: skip
    assert ours.njev == count
    seen = meter.columns()["residual"]
    assert all(np.isclose(seen, norm, rtol=1e-10).any() for norm in ours.trace["grad_norm"])


# --- the meter ------------------------------------------------------------------------------------


def test_maps_and_values_are_counted_apart_and_never_twice():
    problem = bradley_terry(8, 10)
    meter = MapMeter(problem)
    x = problem.start.copy()
    y = meter.image(x)
    assert meter.image(x) is y
    assert meter.value(y) == meter.value(y) == problem.value(y)
    assert (meter.maps, meter.values) == (1, 1)
    assert not meter.free


def test_where_the_map_brings_the_value_a_call_is_one_of_each():
    problem = poisson_mixture()
    meter = MapMeter(problem)
    x = problem.start.copy()
    meter.value(x)
    meter.image(x)
    assert meter.both(x)[1] == problem.value(x)
    assert (meter.maps, meter.values) == (1, 1)


def test_the_plain_map_meets_its_own_goal_and_asks_for_no_value():
    problem = bradley_terry(8, 10)
    goal = goal_of(problem, 10)
    meter, status, _ = run_map(problem, plain, goal)
    assert (status, meter.maps, meter.values) == ("reached", goal.plain_maps, 0)
    columns = meter.columns()
    assert columns["fun"][-1] <= goal.value < columns["fun"][-2]
    assert list(columns["maps"]) == list(range(1, meter.maps + 1))


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"max_maps": 5}, "max maps"),
        ({"max_time": 0.0}, "max time"),
        ({"residual": math.inf}, "elsewhere"),
        ({"goal": math.inf}, "reached"),
    ],
)
def test_a_run_is_over_at_the_goal_at_a_fixed_point_or_at_a_limit(limits, status):
    problem = bradley_terry(8, 10)
    with pytest.raises(MapStop, match=status):
        plain(MapMeter(problem, **limits), problem.start.copy())


def test_what_goes_wrong_is_an_outcome():
    def broken(x):
        raise FloatingPointError("too far")

    problem = MapProblem(
        name="broken", description="", start=np.ones(2), step=broken, value=lambda x: 0.0
    )
    goal = dataclasses.replace(goal_of(poisson_mixture(), 5))
    _, status, message = run_map(problem, plain, goal)
    assert (status, message) == ("failed", "FloatingPointError: too far")


# --- sweeps ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "ridge"), [("squared", 0.0), ("squared", 2.0), ("logistic", 1.0)])
def test_a_sweep_lowers_its_objective(loss, ridge):
    problem = sweep(SMALL, 3, loss, ridge)
    x, values = problem.start, []
    for _ in range(6):
        x, value = problem.step_and_value(x)
        values.append(value)
    assert np.all(np.diff(values) < 0)


def test_at_least_twenty_maps_are_compared():
    assert len(compared_maps()) >= 40
    assert {"sweep", "mixture", "nmf", "proximal", "k-means"} <= {e.family for e in compared_maps()}


# --- the table and the page -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return run_maps(EASY, ["accelerate", "plain", "anderson-5", "squarem"], progress=False)


def test_every_solver_has_a_row_on_every_map(rows):
    assert len(rows) == 12
    assert all(row.reached for row in rows)
    assert all(row.maps == row.values for row in rows if row.free_value)
    ours = shares(rows, "maps", "accelerate")
    assert all(share < 0.6 for share in ours.values())
    assert set(shares(rows, "maps", "plain").values()) == {1.0}
    by_hand = [row for row in rows if row.problem == "bradley-terry-8"]
    assert all(row.calls == row.maps + row.values for row in by_hand)


def test_a_table_is_updated_method_by_method(rows, tmp_path):
    save_map_rows(rows, tmp_path)
    changed = [dataclasses.replace(row, maps=1, setup="new") for row in rows[:1]]
    path = save_map_rows(changed, tmp_path, update=True)
    again = load_rows(path, MapRow)
    assert again == [*changed, *rows[1:]]
    text = page(again, "p.png")
    assert "- new: `accelerate`" in text


def test_the_page_holds_the_numbers_of_its_rows(rows, tmp_path):
    table = save_map_rows(rows, tmp_path)
    text = write_map_page(table, tmp_path).read_text()
    assert (tmp_path / "map-scoreboard.png").stat().st_size > 10_000
    opening = text.split("\n\n")[1]
    assert opening.count(". ") == 2  # three sentences
    assert opening.startswith("On 3 descent maps with 3 to 8 variables `accelerate` comes to where")
    poisson = {row.method: row for row in rows if row.problem == "poisson-mixture-3"}
    cells = " | ".join(
        str(poisson[m].maps) for m in ("accelerate", "plain", "anderson-5", "squarem")
    )
    assert f"| poisson-mixture-3 | 3 | 200 | {cells} |" in text


def test_a_solver_that_fails_and_one_that_wins_are_named(rows):
    worse = [
        dataclasses.replace(row, maps=500) if row.method == "accelerate" else
        dataclasses.replace(row, reached=False, status="max maps") if row.method == "squarem" else
        row
        for row in rows
    ]  # fmt: skip
    text = page(worse, "p.png")
    assert "maps by more than 10 % on 0, more on 3, and about as many on 0." in text
    assert "| `squarem` | 0 of 3 |" in text
    assert "unsolved (poisson-mixture-3)" in text


def test_a_misspelt_solver_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no solver of maps is called 'andersen'.*anderson-3"):
        run_maps(EASY, ["andersen"], progress=False)
