"""Accelerations of descent maps: the published ones against what is known of them, and the page."""

import dataclasses
import itertools
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from momentous import accelerate, compare
from momentous.lab.compare import Comparison
from momentous.lab.compare.accelerations import anderson, conjugate, damped_solution, plain, squarem
from momentous.lab.compare.page import page
from momentous.lab.compare.runner import Rules, plain_start
from momentous.lab.compare.scoreboard import FUNCTIONS, MAPS
from momentous.lab.compare.sweeps import SMALL, compared_maps, sweep
from momentous.lab.compare.verdicts import duel
from momentous.lab.meter import Limits, MapMeter, StopError, run_metered
from momentous.lab.record import Ended
from momentous.testbed.maps import MapProblem
from momentous.testbed.maps.expectation import poisson_mixture, soft_means
from momentous.testbed.maps.majorise import bradley_terry
from momentous.testbed.suite import Entry

WIDE = Limits(tol=0.0)
RULES = Rules(rtol=1e-6, tol=None, max_evaluations=20_000, max_time=60.0, separate=False, seed=0,
              repeats=1)  # fmt: skip
EASY = [
    Entry("poisson-mixture-3", "mixture", 3, poisson_mixture, False, 200),
    Entry("soft-means-60x2-3", "mixture", 6, partial(soft_means, 60, 2, 3), True, 200),
    Entry("bradley-terry-8", "majorise", 8, partial(bradley_terry, 8, 10), True, 100),
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
            raise StopError(Ended.STOPPED, "enough")
        return problem.step(x)

    watched = MapProblem(
        name="watched", description="", start=problem.start, step=step, value=problem.value
    )
    with pytest.raises(StopError):
        solve(MapMeter(watched, WIDE), problem.start.copy())
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
    gamma = damped_solution(F, f, target)
    assert np.linalg.norm(gamma) == pytest.approx(target * np.linalg.norm(longest), rel=0.02)
    ridges = [np.linalg.solve(F.T @ F + t * np.eye(3), F.T @ f) for t in np.logspace(-9, 2, 4000)]
    assert min(np.linalg.norm(gamma - one) for one in ridges) <= 0.02 * np.linalg.norm(gamma)


def test_daarem_without_damping_is_least_squares():
    random = np.random.default_rng(1)
    F, f = random.standard_normal((8, 3)), random.standard_normal(8)
    expected = np.linalg.lstsq(F, f, rcond=None)[0]
    assert np.allclose(damped_solution(F, f, 1 - 1e-12), expected, rtol=1e-3)
    assert np.array_equal(damped_solution(np.zeros((8, 2)), f, 0.5), np.zeros(2))


def test_conjugate_gradients_end_on_a_parabola_after_as_many_maps_as_it_has_variables():
    curvatures = np.array([1.0, 0.7, 0.5, 0.3, 0.2])
    problem = MapProblem(
        name="bowl", description="", start=np.ones(5), step=lambda x: x - curvatures * x,
        value=lambda x: 0.5 * float(curvatures @ (x * x)),
    )  # fmt: skip
    meter = MapMeter(problem, Limits(tol=0.0, goal=1e-16))
    with pytest.raises(StopError, match=r"the objective .* is at most 1e-16"):
        conjugate(meter, problem.start.copy())
    assert meter.njev <= 6
    assert meter.nfev <= 3 * meter.njev + 1  # the start, and three per line


def test_our_solver_is_accelerate_with_its_defaults():
    problem = poisson_mixture()
    found = compare(problem, "accelerate", progress=False)
    (row,), (record,) = found.rows, found.records.values()
    assert row.status is Ended.REACHED
    assert row.njev == len(record)
    ours = accelerate(
        problem.step_and_value, problem.start, True, tol=0, max_iterations=None,
        max_evaluations=len(record),
    )  # fmt: skip
    assert ours.njev == len(record)
    assert all(np.isclose(record.grad_norm, n, rtol=1e-10).any() for n in ours.trace["grad_norm"])


# --- the meter ------------------------------------------------------------------------------------


def test_maps_and_values_are_counted_apart_and_never_twice():
    problem = bradley_terry(8, 10)
    meter = MapMeter(problem, WIDE)
    x = problem.start.copy()
    y = meter.image(x)
    assert meter.image(x) is y
    assert meter.value(y) == meter.value(y) == problem.value(y)
    assert (meter.njev, meter.nfev) == (1, 1)
    assert meter.separate


def test_where_the_map_brings_the_value_a_call_is_one_of_each():
    problem = poisson_mixture()
    meter = MapMeter(problem, WIDE)
    x = problem.start.copy()
    meter.value(x)
    meter.image(x)
    assert meter.both(x)[1] == problem.value(x)
    assert (meter.njev, meter.nfev) == (1, 1)


def test_the_plain_map_meets_its_own_goal_and_asks_for_no_value():
    start = plain_start(bradley_terry(8, 10), 10, RULES)
    meter = MapMeter(start.problem, start.limits(RULES))
    ran = run_metered("plain", plain, meter)
    assert (ran.status, meter.njev, meter.nfev) == (Ended.REACHED, start.plain_maps, 0)
    assert ran.fun[-1] <= start.goal < ran.fun[-2]
    assert list(ran.njev) == list(range(1, meter.njev + 1))


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"max_maps": 5}, Ended.MAX_MAPS),
        ({"max_evaluations": 5}, Ended.MAX_EVALUATIONS),
        ({"max_time": 0.0}, Ended.MAX_TIME),
        ({"tol": math.inf}, Ended.ELSEWHERE),
        ({"goal": math.inf}, Ended.REACHED),
    ],
)
def test_a_run_is_over_at_the_goal_at_a_fixed_point_or_at_a_limit(limits, status):
    meter = MapMeter(bradley_terry(8, 10), dataclasses.replace(WIDE, **limits))
    assert run_metered("plain", plain, meter).status is status


def test_what_goes_wrong_is_an_outcome():
    def broken(x):
        raise FloatingPointError("too far")

    problem = MapProblem(
        name="broken", description="", start=np.ones(2), step=broken, value=lambda x: 0.0
    )
    (row,) = compare(problem, "plain", progress=False).rows
    assert (row.status, row.message) == (Ended.FAILED, "failed: FloatingPointError: too far")


def test_solvers_of_functions_are_not_applicable_to_maps_nor_the_other_way_round():
    (row,) = compare(poisson_mixture(), "auto", progress=False).rows
    assert (row.status, row.nfev) == (Ended.NOT_APPLICABLE, 0)
    assert "is for functions, and poisson-mixture-3 is a map" in row.message
    (row,) = compare(("bowl", lambda x: (x @ x, 2 * x), np.ones(2)), "squarem", progress=False).rows
    assert "squarem is for maps, and bowl is a function" in row.message


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
    methods = ["accelerate", "plain", "anderson-5", "squarem"]
    return compare(EASY, methods, repeats=3, progress=False).rows


def test_every_solver_has_a_row_on_every_map(rows):
    assert len(rows) == 12
    assert all(row.reached for row in rows)
    assert all(row.njev == row.nfev for row in rows if not row.separate)
    ours = duel(rows, "accelerate", ["plain"]).gradients
    assert len(ours) == 3
    assert all(share < 0.6 for share in ours.values())
    assert {row.problem for row in rows if row.separate} == {"bradley-terry-8"}


def test_a_comparison_of_maps_speaks_of_maps(rows):
    text = str(Comparison(rows))
    assert "poisson-mixture-3, 3 variables, to f <= 1.81566" in text
    assert "|x - T(x)|" in text
    assert "grad" not in text


def test_a_table_is_updated_method_by_method_and_runs_are_kept(tmp_path):
    options = {"methods": ["accelerate", "plain"], "work": tmp_path / "work", "progress": False}
    found = MAPS.run(EASY[:1], tmp_path, **options)
    assert len(list((tmp_path / "work").iterdir())) == 2
    changed = [dataclasses.replace(row, setup="of old") for row in found.rows]
    Comparison(changed).save(tmp_path / "map-scoreboard.parquet")
    MAPS.run(EASY[:1], tmp_path, **options | {"methods": ["plain"]}, update=True)
    rows = Comparison.load(tmp_path / "map-scoreboard.parquet").rows
    assert rows == [changed[0], found.rows[1]]
    assert "- of old: `accelerate`" in (tmp_path / "map-scoreboard.md").read_text()


def test_the_page_holds_the_numbers_of_its_rows(rows, tmp_path):
    Comparison(rows).save(tmp_path / "t.parquet")
    text = MAPS.write(tmp_path / "t.parquet", tmp_path).read_text()
    assert (tmp_path / "map-scoreboard.png").stat().st_size > 10_000
    opening = text.split("\n\n")[1]
    assert opening.count(". ") == 2  # three sentences
    assert opening.startswith("On 3 descent maps with 3 to 8 variables `accelerate` solves 3, `pl")
    assert "times its maps" in opening
    assert "gradient" not in text.replace("conjugate gradients", "")
    poisson = {row.method: row for row in rows if row.problem == "poisson-mixture-3"}
    cells = " | ".join(
        str(poisson[m].njev) for m in ("accelerate", "plain", "anderson-5", "squarem")
    )
    assert f"| poisson-mixture-3 | 3 | {cells} |" in text


def test_a_solver_that_fails_and_one_that_wins_are_named(rows):
    changes = {
        "accelerate": {"njev": 500},
        "squarem": {"reached": False, "status": Ended.MAX_MAPS},
    }
    worse = [dataclasses.replace(row, **changes.get(row.method, {})) for row in rows]
    text = page(MAPS, worse)
    assert (
        "`accelerate` by more than 10 % on 3, `accelerate` fewer than it on 0, and 0 are within"
        in text
    )
    assert "| `squarem` | 0 of 3 |" in text
    assert "m: max maps" in text


def test_a_misspelt_solver_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"'andersen' is no solver of the map-sc.*anderson-3"):
        MAPS.run(EASY, tmp_path, methods=["andersen"])


@pytest.mark.slow
def test_names_and_sizes_on_the_list_are_those_of_the_maps():
    for entry in compared_maps(2000):
        problem = entry.make()
        assert (problem.name, problem.dimension) == (entry.name, entry.dimension)


# --- the pages under version control --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("board", [FUNCTIONS, MAPS], ids=lambda board: board.name)
def test_the_pages_are_what_their_tables_make(board):
    docs = Path(__file__).parents[3] / "docs"
    rows = Comparison.load(docs / f"{board.name}.parquet").rows
    assert page(board, rows) == (docs / f"{board.name}.md").read_text()
