"""The proximal maps of the simple terms: against brute force, and by their laws."""

import array_api_compat
import numpy as np
import pytest
from scipy import optimize

from momentous import L1, Ball, Box, ElasticNet, GroupL2, NonNegative, Simplex, minimize
from momentous.core.penalties import Penalty

D = 6
LABELS = [0, 2, 1, 0, 2, 2]
TERMS = {
    "L1": L1(0.7),
    "weighted L1": L1(np.linspace(0.0, 2.0, D)),
    "ElasticNet": ElasticNet(0.4, 1.5),
    "GroupL2": GroupL2(0.8, LABELS),
    "weighted GroupL2": GroupL2(np.array([0.0, 0.5, 2.0]), LABELS),
    "NonNegative": NonNegative(),
    "Box": Box(-0.5, np.linspace(0.0, 2.0, D)),
    "Simplex": Simplex(2.0),
    "Ball": Ball(1.3),
}


def points(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, D)) * 2.0


@pytest.fixture(params=TERMS, ids=TERMS.keys())
def term(request):
    return TERMS[request.param]


def test_prox_is_lowest_of_brute_force(term):
    """h(z) + |z - x|^2/(2t) is no lower at 180 points, near and far, of the domain of h."""
    rng = np.random.default_rng(1)
    for x, t in zip(points(6), 10.0 ** rng.uniform(-1, 1, 6), strict=True):

        def objective(z, x=x, t=t):
            return float(term.value(z)) + float((z - x) @ (z - x)) / (2 * t)

        y = term.prox(x, t)
        lowest = objective(y)
        assert np.isfinite(lowest)
        for scale in (1e-3, 1e-1, 1.0):
            for move in rng.standard_normal((10, D)):
                near = term.prox(y + scale * move, 1e-9)  # in the domain of h
                assert objective(near) >= lowest - 1e-9 * (1 + abs(lowest))
                # A convex function is no lower anywhere if it is no lower on the way there.
                assert objective(y + 1e-4 * (near - y)) >= lowest - 1e-12 * (1 + abs(lowest))


def test_prox_agrees_with_a_solver_of_bounded_problems():
    """L1 and the elastic net as x = u - v, u, v >= 0."""
    for term in (TERMS["L1"], TERMS["weighted L1"], TERMS["ElasticNet"]):
        x, t = points(1, 5)[0], 0.6

        def split(z, x=x, t=t, term=term):
            w, both = z[:D] - z[D:], z[:D] + z[D:]
            ridge = getattr(term, "ridge", 0.0)
            value = np.sum(term.weight * both) + ridge * w @ w / 2 + (w - x) @ (w - x) / (2 * t)
            g = (w - x) / t + ridge * w
            return value, np.concatenate([g + term.weight, term.weight - g])

        found = optimize.minimize(
            split, np.ones(2 * D), jac=True, bounds=[(0, None)] * (2 * D), method="L-BFGS-B",
            options={"ftol": 0.0, "gtol": 1e-10},
        ).x  # fmt: skip
        np.testing.assert_allclose(found[:D] - found[D:], term.prox(x, t), atol=1e-7)


def test_prox_is_firmly_nonexpansive(term):
    for x, y in zip(points(50, 2), points(50, 3), strict=True):
        p, q = term.prox(x, 0.8), term.prox(y, 0.8)
        assert (p - q) @ (p - q) <= (p - q) @ (x - y) + 1e-12


def test_subgradients_of_prox_support_h(term):
    """(x - prox(x))/t is a subgradient of h at prox(x)."""
    for x, z in zip(points(50, 4), points(50, 5), strict=True):
        y, z = term.prox(x, 0.5), term.prox(z, 1e-9)
        slope = (x - y) / 0.5
        assert float(term.value(z)) >= float(term.value(y)) + slope @ (z - y) - 1e-9


@pytest.mark.parametrize("t", [0.3, 2.0])
def test_moreau_identity(t):
    """x = prox_th(x) + t prox_h*/t(x/t), with h* the indicator of the dual ball."""
    for x in points(20, 6):
        dual = np.clip(x / t, -0.7, 0.7)
        np.testing.assert_allclose(TERMS["L1"].prox(x, t) + t * dual, x, atol=1e-12)
        for label in set(LABELS):
            part = np.equal(LABELS, label)
            dual = Ball(0.8).prox(x[part] / t, 1.0)
            prox = GroupL2(0.8, LABELS).prox(x, t)[part]
            np.testing.assert_allclose(prox + t * dual, x[part], atol=1e-12)
    # Of a cone: x = P(x) + P_polar(x), the two at right angles.
    x = points(1, 7)[0]
    kept = NonNegative().prox(x, t)
    assert kept @ (x - kept) == 0.0
    assert (x - kept <= 0.0).all()


def test_sets_are_zero_inside_and_infinite_outside():
    inside = {"NonNegative": np.zeros(D), "Box": np.zeros(D), "Ball": np.full(D, 0.1)}
    inside["Simplex"] = np.full(D, 2.0 / D)
    for name, x in inside.items():
        assert float(TERMS[name].value(x)) == 0.0
        np.testing.assert_allclose(TERMS[name].prox(x, 3.0), x, atol=1e-15)
        for outside in (x - 3.0, np.full(D, np.nan)):
            assert float(TERMS[name].value(outside)) == np.inf


def test_rows_are_groups_and_simplices_without_labels():
    x = points(4, 8)
    prox = GroupL2(0.8).prox(x, 0.5)
    labels = np.repeat(np.arange(4), D)
    np.testing.assert_allclose(prox, GroupL2(0.8, labels).prox(x, 0.5), atol=1e-15)
    assert float(GroupL2(0.8).value(x)) == pytest.approx(float(GroupL2(0.8, labels).value(x)))
    rows = [Simplex().prox(row, 1.0) for row in x]
    np.testing.assert_allclose(Simplex().prox(x, 1.0), rows, atol=1e-15)


def test_simplex_keeps_the_sum_of_far_points():
    x = 1e6 + np.random.default_rng(0).random(50)
    assert abs(Simplex().prox(x, 1.0).sum() - 1.0) < 1e-14


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy"])
@pytest.mark.parametrize(
    ("term", "shape"),
    [(L1(), 0), (ElasticNet(), 0), (GroupL2(1.0, []), 0), (Ball(), 0), (NonNegative(), 0),
     (GroupL2(), (0, 3)), (Simplex(), (0, 3))],
)  # fmt: skip
def test_terms_of_no_entries_are_0(library, term, shape):
    x = pytest.importorskip(library).zeros(shape)
    assert float(term.value(x)) == 0.0
    assert term.prox(x, 0.5).shape == x.shape
    assert gap(term, x, x).shape == x.shape


@pytest.mark.parametrize("shape", [0, (2, 0), ()])
def test_a_simplex_of_no_entries_is_refused(shape):
    with pytest.raises(ValueError, match="give x at least one entry along its last axis"):
        minimize(lambda x: (0.0, x), np.zeros(shape), jac=True, penalty=Simplex())


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "array_api_strict"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_terms_are_the_same_in_every_library(library, dtype):
    xp = pytest.importorskip(library)
    if library.startswith("jax") and dtype == "float64":
        pytest.skip("JAX has double precision where it is switched on")
    atol = 1e-5 if dtype == "float32" else 1e-12
    for term in TERMS.values():
        host = points(1, 9)[0].astype(dtype)
        x = xp.asarray(host.copy(), dtype=getattr(xp, dtype))
        y = term.prox(x, 0.5)
        assert y.dtype == x.dtype
        assert array_api_compat.array_namespace(y)
        np.testing.assert_allclose(np.asarray(y), term.prox(host, 0.5), atol=atol)
        value = float(term.value(y))
        assert value == pytest.approx(float(term.value(np.asarray(y))), abs=atol)


@pytest.mark.parametrize("make", [L1, Simplex, Ball, GroupL2, ElasticNet])
@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_negative_weights_are_refused(make, wrong):
    with pytest.raises(ValueError, match="must be finite and >= 0"):
        make(wrong)


def gap(term, x, g):
    """As a run measures it."""
    return Penalty(term).gap(None, x, g)


class Own:
    """L1 as a user would write it."""

    def value(self, x):
        return np.sum(np.abs(x))

    def prox(self, x, t):
        x -= np.clip(x, -t, t)
        return x


MEASURED = {name: TERMS[name] for name in TERMS if name not in ("NonNegative", "Box")}
MEASURED |= {"Own": Own(), "ElasticNet": ElasticNet(0.4, 0.0)}  # whose ridge is counted in g


@pytest.mark.parametrize("name", MEASURED)
def test_the_measure_is_that_of_the_prox(name):
    """With the step 1, or 1/w where a weight w is more than that."""
    term = MEASURED[name]
    step = 1.0 / np.maximum(1.0, getattr(term, "weight", 1.0))
    t = step
    if step.shape and isinstance(term, GroupL2):  # of its groups: of each entry
        t = term._spread(np.zeros(6), step)
    for scale in (1e-3, 1.0, 1e3):
        for x, g in zip(points(20, 10), scale * points(20, 11), strict=True):
            expected = (x - term.prox(x - t * g, step)) / t
            np.testing.assert_allclose(gap(term, x, g), expected, atol=1e-14 * (1 + scale))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy", "array_api_strict"])
def test_the_measure_loses_no_small_gradient_and_no_small_point(library):
    """Of float32: x - g is x, or -g."""
    xp = pytest.importorskip(library)

    def measured(term, x, g):
        x, g = (xp.asarray(np.asarray(each, "f4").copy()) for each in (x, g))
        return np.asarray(gap(term, x, g))

    far, small = np.full(4, 1e6), np.asarray([1e-3, -2e-3, 3e-3, 1e-3])
    for term in (L1(0.0), GroupL2(0.0), Ball(1e30)):
        np.testing.assert_allclose(measured(term, far, small), small, rtol=1e-6)
    np.testing.assert_allclose(measured(L1(1e-3), far, small), small + 1e-3, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(measured(GroupL2(2e-3), far, small), small + 1e-3, rtol=1e-5)
    on_faces = measured(Simplex(4e6), far, small)
    np.testing.assert_allclose(on_faces - on_faces.mean(), small - small.mean(), rtol=1e-5)
    # And where the gradient is large, and x far from the end of the step.
    steep, near = np.asarray([1e9, 0.0, 0.0, 0.0]), np.asarray([0.5, 0.0, 0.0, 0.5])
    np.testing.assert_allclose(measured(Ball(1.0), near, steep), [1.5, 0, 0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(measured(Simplex(), near, -steep), [-0.5, 0, 0, 0.5], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "far"), [("f8", 1e17), ("f4", 1e9), ("f4", 3e7)])
def test_far_points_are_projected_onto_the_simplex(dtype, far):
    with np.errstate(all="raise"):
        assert Simplex().prox(np.asarray([far, 0.0, 1.0], dtype), 1.0).tolist() == [1.0, 0.0, 0.0]
        both = Simplex().prox(np.asarray([far, 0.0, far], dtype), 1.0)
        assert both.tolist() == [0.5, 0.0, 0.5]
        assert Simplex(0.0).prox(np.asarray([far, 0.0, 1.0], dtype), 1.0).tolist() == [0.0] * 3
