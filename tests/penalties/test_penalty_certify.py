"""Certificates with a simple term: the multipliers of what it holds, the curvature of the rest."""

import numpy as np
import pytest
from scipy.linalg import null_space

from momentous import (
    L1,
    Ball,
    Box,
    ElasticNet,
    GroupL2,
    NonNegative,
    Simplex,
    Verdict,
    certify,
    minimize,
)

D = 12
RNG = np.random.default_rng(3)
Q = RNG.standard_normal((D, D))
Q = Q + Q.T + 14.0 * np.eye(D)
C = 3.0 * RNG.standard_normal(D)
LABELS = np.arange(D) // 3


def f(x):
    return float(x @ Q @ x / 2 + C @ x + 3 * np.cos(x).sum()), Q @ x + C - 3 * np.sin(x)


def hessian(x):
    return Q - 3 * np.diag(np.cos(x))


def on_free(H, x, free):
    return H[np.ix_(free, free)]


def of_groups(H, x, weight):
    H = H.copy()
    for label in np.unique(LABELS):
        group = np.flatnonzero(label == LABELS)
        if size := np.linalg.norm(x[group]):
            n = x[group] / size
            H[np.ix_(group, group)] += weight / size * (np.eye(len(group)) - np.outer(n, n))
    return on_free(H, x, x != 0)


def on_sphere(H, x, g):
    H = H - (g @ x) / (x @ x) * np.eye(D)
    N = null_space(x[None])
    return N.T @ H @ N


def on_simplex(H, x):
    N = null_space(np.ones((1, int((x > 0).sum()))))
    return N.T @ on_free(H, x, x > 0) @ N


# A term, and the Hessian of f + h along what it leaves free, by hand.
TERMS = {
    "L1": (L1(2.0), lambda x: on_free(hessian(x), x, x != 0)),
    "L1 with a free entry": (
        L1([0.0] + [9.0] * (D - 1)), lambda x: on_free(hessian(x), x, np.arange(D) == 0)
    ),
    "ElasticNet": (
        ElasticNet(2.0, 1.5), lambda x: on_free(hessian(x) + 1.5 * np.eye(D), x, x != 0)
    ),
    "GroupL2": (GroupL2(5.0, LABELS), lambda x: of_groups(hessian(x), x, 5.0)),
    "NonNegative": (NonNegative(), lambda x: on_free(hessian(x), x, x > 0)),
    "Box": (Box(-0.2, 0.3), lambda x: on_free(hessian(x), x, (x > -0.2) & (x < 0.3))),
    "Simplex": (Simplex(2.0), lambda x: on_simplex(hessian(x), x)),
    "Ball": (Ball(0.5), lambda x: on_sphere(hessian(x), x, f(x)[1])),
    "Ball without contact": (Ball(50.0), hessian),
}  # fmt: skip


@pytest.mark.parametrize("by", ["differences", "products"])
@pytest.mark.parametrize("name", TERMS)
def test_the_curvature_is_that_of_f_and_h_where_h_is_smooth(name, by):
    term, matrix = TERMS[name]

    def inside(x):
        assert np.isfinite(term.value(x))
        return f(x)

    x = minimize(f, term.prox(np.zeros(D), 1.0), jac=True, penalty=term, tol=1e-10).x
    product = None if by == "differences" else lambda x, v: hessian(x) @ v
    found = certify(inside, x, jac=True, eps=1e-7, penalty=term, hessp=product)
    expected = np.linalg.eigvalsh(matrix(x))
    assert found.verdict is Verdict.SECOND_ORDER, found.message
    assert found.smallest_eigenvalue == pytest.approx(expected[0], rel=1e-6)
    assert found.weakly_active == ()
    at_bounds = (x <= -0.2) | (x >= 0.3) if name == "Box" else x == 0
    assert (found.active != 0).tolist() == at_bounds.tolist()


def test_lanczos_on_a_face_of_many_variables():
    d = 700
    slopes = np.linspace(1.0, 2.0, d)
    q = lambda x: (float(slopes @ (x * x) / 2 - x.sum()), slopes * x - 1.0)  # noqa: E731
    x = minimize(q, np.full(d, 300.0 / d), jac=True, penalty=Simplex(300.0), tol=1e-9).x
    found = certify(q, x, jac=True, eps=1e-6, penalty=Simplex(300.0))
    assert found.verdict is Verdict.SECOND_ORDER, found.message
    assert 1.0 <= found.smallest_eigenvalue <= 1.1
    assert found.probability > 0.0


def bowl_up(x):
    """Falls away from 0, faster along each next entry."""
    return -float(x[0] ** 2 + 2 * x[1] ** 2 + 3 * x[2] ** 2), -np.array([2.0, 4.0, 6.0]) * x


@pytest.mark.parametrize(
    ("term", "x", "slope", "expected"),
    [
        (Ball(1.0), [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], -4.0),  # 2 - 6
        (Ball(1.0), [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], -2.0),
        (Ball(2.0), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], -6.0),
        (L1(0.0), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], -6.0),
        (Simplex(1.0), [0.5, 0.5, 0.0], [1.0, 2.0, 9.0], -3.0),  # stationary on its edge
    ],
)
def test_saddles_are_left_within_the_set(term, x, slope, expected):
    x, slope = np.array(x), np.array(slope)

    def both(z):
        value, gradient = bowl_up(z)
        return value + slope @ z, gradient + slope

    found = certify(both, x, jac=True, eps=1e-6, penalty=term)
    assert found.verdict is Verdict.SADDLE
    assert found.smallest_eigenvalue == pytest.approx(expected, rel=1e-6)
    for rho in (None, 1.0):
        left = found.escape(both, x, jac=True, rho=rho)
        assert np.isfinite(term.value(left))
        assert both(left)[0] + term.value(left) < both(x)[0] + term.value(x)


def test_the_lowest_point_of_a_sphere_is_of_second_order():
    found = certify(bowl_up, np.array([0.0, 0.0, 1.0]), jac=True, eps=1e-6, penalty=Ball(1.0))
    assert found.verdict is Verdict.SECOND_ORDER
    assert found.smallest_eigenvalue == pytest.approx(2.0)  # 6 - 4
    assert "on the sphere" in found.message


@pytest.mark.parametrize("radius", [1e-3, 1.0, 1e4])
def test_steps_are_as_long_as_x_asks_for(radius):
    """A sphere has no point of its own size among its tangents."""
    slopes, c = np.linspace(1.0, 3.0, 5), 10.0 * radius * np.array([1.0, -2.0, 0.5, 1.5, -1.0])
    q = lambda x: (float(slopes @ (x * x) / 2 + c @ x), slopes * x + c)  # noqa: E731
    x = minimize(q, np.zeros(5), jac=True, penalty=Ball(radius), tol=1e-9 * radius).x
    found = certify(q, x, jac=True, eps=1e-6 * radius, penalty=Ball(radius))
    N = null_space(x[None])
    expected = np.linalg.eigvalsh(N.T @ np.diag(slopes - (q(x)[1] @ x) / (x @ x)) @ N)[0]
    assert found.smallest_eigenvalue == pytest.approx(expected, rel=1e-6)
    assert found.verdict is Verdict.SECOND_ORDER


@pytest.mark.parametrize(
    ("term", "x", "slope"),
    [
        (L1(1.0), [0.0, 2.0], [1.0, -1.0]),
        (GroupL2(1.0, [0, 1]), [0.0, 2.0], [-1.0, -1.0]),
        (Simplex(1.0), [0.0, 1.0], [0.5, 0.5]),
        (Ball(2.0), [0.0, 2.0], [0.0, 0.0]),
        (NonNegative(), [0.0, 2.0], [0.0, 0.0]),
    ],
)
def test_a_term_that_holds_by_nothing_is_not_called_second_order(term, x, slope):
    x, slope = np.array(x), np.array(slope)
    q = lambda z: (float(slope @ z + (z - x) @ (z - x) / 2), slope + z - x)  # noqa: E731
    found = certify(q, x, jac=True, eps=1e-6, penalty=term)
    assert found.verdict is Verdict.FIRST_ORDER
    assert 0 in found.weakly_active
    assert "strict complementarity" not in found.message


def test_the_first_order_is_that_of_the_proximal_gradient():
    found = certify(f, np.ones(D), jac=True, penalty=L1(1.0))
    assert found.verdict is Verdict.NOT_STATIONARY
    gap = np.ones(D) - L1(1.0).prox(np.ones(D) - f(np.ones(D))[1], 1.0)
    assert found.grad_norm == pytest.approx(np.linalg.norm(gap))
    assert "|x - prox(x - grad f(x), 1)|" in found.message


class Own:
    value, prox = L1(2.0).value, L1(2.0).prox


class Heavier(L1):
    """A subclass may hold something else."""


@pytest.mark.parametrize("term", [Own(), Heavier(2.0)])
def test_of_a_term_of_the_users_own_only_the_first_order_is_told(term):
    x = minimize(f, np.zeros(D), jac=True, penalty=L1(2.0), tol=1e-9).x
    found = certify(f, x, jac=True, eps=1e-6, penalty=term)
    assert found.verdict is Verdict.FIRST_ORDER
    assert "known of L1, ElasticNet" in found.message


def test_points_outside_and_two_answers_are_refused():
    with pytest.raises(ValueError, match="is infinite at x"):
        certify(f, np.ones(D), jac=True, penalty=Simplex())
    with pytest.raises(ValueError, match="outside of the bounds"):
        certify(f, -np.ones(D), jac=True, penalty=NonNegative())
    with pytest.raises(ValueError, match="cannot be given together"):
        certify(f, np.ones(D), jac=True, penalty=L1(), bounds=(0, 1))


def test_the_bend_of_a_small_group_does_not_hide_a_saddle():
    """1/|group| is its largest eigenvalue: a thousandth of that would be allowed to f."""

    def fun(x):
        u, v, w = x
        slopes = np.array([u - 1.0005, v, w**3 - w])
        return float(((u - 1.0005) ** 2 + v**2) / 2 + w**4 / 4 - w * w / 2), slopes

    h = GroupL2([1.0, 0.0], [0, 0, 1])
    x = minimize(fun, np.array([0.5, 0.1, 0.0]), jac=True, penalty=h).x
    assert 0.0 < np.linalg.norm(x[:2]) < 1e-3
    calls = []

    def product(x, v):
        calls.append(v)
        return v * np.array([1.0, 1.0, 3 * x[2] ** 2 - 1.0])

    for hessp in (None, product):
        found = certify(fun, x, jac=True, penalty=h, hessp=hessp)
        assert found.verdict is Verdict.SADDLE, found.message
        assert found.smallest_eigenvalue == pytest.approx(-1.0, rel=1e-4)
    assert found.products == len(calls)


@pytest.mark.parametrize(
    ("size", "slope", "bend"),
    [
        (1e-6, [-(1.0 + 1e-7), 0.0], 1.0),
        (2e-5, [-np.sin(0.45), -np.cos(0.45)], 0.01),
        (5e-5, [-np.sin(0.19), -np.cos(0.19)], 0.01),
    ],
)
def test_the_direction_of_a_group_of_a_few_eps_is_not_known(size, slope, bend):
    """f falls along another one, from the point of that group that is 0."""
    H, slope, x = np.diag([-1.0, bend]), np.array(slope), np.array([0.0, size])
    q = lambda z: (float(slope @ z + z @ H @ z / 2), slope + H @ z)  # noqa: E731
    options = {"jac": True, "eps": 1e-5, "curvature": 1e-3, "penalty": GroupL2(1.0, [0, 0])}
    found = certify(q, x, **options)
    assert found.verdict is Verdict.FIRST_ORDER, found.message
    assert found.active.tolist() == [1, 1]
    assert "within 10 eps of it" in found.message


def test_a_ball_no_larger_than_eps_has_two_sides():
    q = lambda z: (float(z[0]), np.array([1.0, 0.0, 0.0]))  # noqa: E731
    for side, verdict in ((4e-6, Verdict.NOT_STATIONARY), (-4e-6, Verdict.SECOND_ORDER)):
        found = certify(q, np.array([side, 0.0, 0.0]), jac=True, penalty=Ball(4e-6))
        assert found.verdict is verdict, found.message


@pytest.mark.parametrize(
    ("product", "message"),
    [
        (lambda x, v: np.diag([1.0, -2.0, -3.0]), r"shape \(3, 3\), but x has shape \(3,\)"),
        (lambda x, v: 1.0, "hessp returned"),
        (lambda x, v: None, "hessp returned None"),
    ],
)
@pytest.mark.parametrize("held", [{"penalty": L1(1.0)}, {"bounds": (0, 10)}])
def test_products_of_another_shape_are_refused(held, product, message):
    x, slope = np.array([0.0, 2.0, 3.0]), np.array([0.2, 0.0, 0.0])
    slope = slope - (x > 0) * ("penalty" in held)
    q = lambda z: (float(slope @ z), slope.copy())  # noqa: E731
    with pytest.raises((ValueError, TypeError), match=message):
        certify(q, x, jac=True, eps=1e-6, hessp=product, **held)


@pytest.mark.parametrize(("radius", "size"), [(1e-5, 0.0), (1.0, 1.0 - 1e-6)])
def test_difference_steps_stay_within_a_small_or_a_nearly_filled_ball(radius, size):
    x = np.random.default_rng(0).standard_normal(100)
    x *= size / np.linalg.norm(x)
    q = lambda z: (float((z - x) @ (z - x) / 2), z - x)  # noqa: E731
    found = certify(q, x, jac=True, penalty=Ball(radius))
    assert found.verdict is Verdict.SECOND_ORDER, found.message
    assert found.smallest_eigenvalue == pytest.approx(1.0, rel=1e-5)


def precision(library):
    """A dtype of the library, and tolerances for it."""
    if "float64" in library.dtypes:
        return "float64", 1e-9, 1e-6, 1e-6
    return "float32", 1e-4, 1e-3, 1e-2


def test_rows_of_several_simplices_on_any_array(library):
    dtype, tol, eps, rel = precision(library)
    target = np.array([[0.6, 0.5, -3.0], [0.1, 0.1, 0.9]])

    def q(x):
        y = library.numpy(x) - target
        weights = np.array([1.0, 2.0, 3.0])
        return float((weights * y * y).sum() / 2), library.array(weights * y, dtype)

    start = library.array(np.full((2, 3), 1 / 3), dtype)
    x = minimize(q, start, jac=True, penalty=Simplex(), tol=tol).x
    found = certify(q, x, jac=True, eps=eps, penalty=Simplex())
    assert found.verdict is Verdict.SECOND_ORDER, found.message
    assert library.numpy(found.active).tolist() == (library.numpy(x) == 0).tolist()
    free, N = np.diag([1.0, 2.0, 3.0]), null_space(np.ones((1, 3)))
    expected = min(1.5, np.linalg.eigvalsh(N.T @ free @ N)[0])
    assert found.smallest_eigenvalue == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("name", ["L1", "ElasticNet", "GroupL2", "Ball"])
def test_other_terms_on_any_array(library, name):
    dtype, tol, eps, rel = precision(library)
    term, matrix = TERMS[name]

    def fun(x):
        value, gradient = f(library.numpy(x))
        return value, library.array(gradient, dtype)

    x = minimize(fun, library.array(np.zeros(D), dtype), jac=True, penalty=term, tol=tol).x
    found = certify(fun, x, jac=True, eps=eps, penalty=term)
    assert found.verdict is Verdict.SECOND_ORDER, found.message
    expected = np.linalg.eigvalsh(matrix(library.numpy(x)))[0]
    assert found.smallest_eigenvalue == pytest.approx(expected, rel=rel)
    assert type(found.active) is type(x)
