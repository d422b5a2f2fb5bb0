"""Runs with a simple term: the optimum, the stop, honest endings, every array, resumed runs."""

import numpy as np
import pytest
from scipy import optimize

import momentous
from momentous import (
    L1,
    AdaRAGD,
    Ball,
    Box,
    Checkpoint,
    ElasticNet,
    GroupL2,
    NonNegative,
    Safeguarded,
    Simplex,
    Status,
    certify,
    iterate,
    minimize,
    minimize_many,
)
from momentous.methods.classical.projected_gradient import ProjectedGradient

N, D = 40, 25


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    truth = np.where(rng.random(D) < 0.3, 2 * rng.standard_normal(D), 0.0)
    return X, X @ truth + 0.3 * rng.standard_normal(N)


def squares(X, y):
    def fun(w):
        e = X @ w - y
        return float(e @ e) / (2 * N), X.T @ e / N

    return fun


def logistic(X, y):
    def fun(w):
        z = np.sign(y) * (X @ w)
        return float(np.logaddexp(0, -z).mean()), -X.T @ (np.sign(y) / (1 + np.exp(z))) / N

    return fun


def student(X, y):
    def fun(w):
        e = X @ w - y
        return float(np.log1p(e * e / 2).mean()), X.T @ (e / (1 + e * e / 2)) / N

    return fun


TERMS = [
    L1(0.2), L1(np.linspace(0, 0.5, D)), ElasticNet(0.1, 0.3), GroupL2(0.3, np.arange(D) // 3),
    NonNegative(), Box(-0.4, 0.7), Simplex(2.0), Ball(1.5),
]  # fmt: skip


def residual(fun, term, x):
    """|x - prox(x - g, 1)|, by the term itself and not by what a run has seen."""
    return float(np.linalg.norm(x - term.prox(x - fun(x)[1], 1.0)))


@pytest.mark.parametrize("term", TERMS, ids=lambda term: type(term).__name__)
@pytest.mark.parametrize("loss", [squares, logistic, student])
def test_auto_finds_first_order_points(term, loss):
    fun = loss(*data())
    start = term.prox(np.zeros(D), 1.0)
    result = minimize(fun, start, jac=True, penalty=term, tol=1e-9)
    assert result.success, result.message
    # An elastic net is judged with its ridge in f: the two residuals differ by a factor.
    assert residual(fun, term, result.x) <= 2e-9
    assert result.fun == pytest.approx(fun(result.x)[0] + float(term.value(result.x)), abs=1e-12)
    np.testing.assert_allclose(result.jac, fun(result.x)[1], atol=1e-12)
    assert result.fun <= fun(start)[0] + float(term.value(start))


def test_lasso_satisfies_its_optimality_conditions():
    """g_i = -weight sign(x_i) where x_i is not 0, |g_i| <= weight elsewhere; many are exactly 0."""
    fun = squares(*data())
    result = minimize(fun, np.zeros(D), jac=True, penalty=L1(0.2), tol=1e-10)
    g, zero = fun(result.x)[1], result.x == 0.0
    assert 5 <= zero.sum() < D
    np.testing.assert_allclose(g[~zero], -0.2 * np.sign(result.x[~zero]), atol=1e-9)
    assert np.abs(g[zero]).max() <= 0.2 + 1e-9
    assert result.penalty == pytest.approx(0.2 * np.abs(result.x).sum())
    assert result.optimality == result.grad_norm <= 1e-10
    assert "proximal gradient norm" in result.message


def test_optimum_is_that_of_other_solvers():
    X, y = data(1)
    linear_model = pytest.importorskip("sklearn.linear_model")
    fun, a = squares(X, y), 0.15
    theirs = linear_model.Lasso(alpha=a, fit_intercept=False, tol=1e-14, max_iter=10**5)
    best = fun(theirs.fit(X, y).coef_)[0] + a * np.abs(theirs.coef_).sum()
    ours = minimize(fun, np.zeros(D), jac=True, penalty=L1(a), tol=1e-10).fun
    assert ours <= best * (1 + 1e-10)
    theirs = linear_model.ElasticNet(
        alpha=a, l1_ratio=0.3, fit_intercept=False, tol=1e-14, max_iter=10**5
    )
    net = ElasticNet(a * 0.3, a * 0.7)
    best = fun(theirs.fit(X, y).coef_)[0] + float(net.value(theirs.coef_))
    assert minimize(fun, np.zeros(D), jac=True, penalty=net, tol=1e-10).fun <= best * (1 + 1e-10)
    best = optimize.nnls(X, y)[1] ** 2 / (2 * N)
    ours = minimize(fun, np.zeros(D), jac=True, penalty=NonNegative(), tol=1e-10).fun
    assert ours == pytest.approx(best, rel=1e-10)


def test_l1_needs_far_fewer_gradients_than_proximal_gradients():
    fun = squares(*data())
    fast = minimize(fun, np.zeros(D), jac=True, penalty=L1(0.05), tol=1e-8)
    slow = minimize(fun, np.zeros(D), jac=True, penalty=L1(0.05), tol=1e-8, method="gd")
    assert fast.success
    assert slow.success
    assert fast.fun == pytest.approx(slow.fun, abs=1e-12)
    assert fast.njev < slow.njev / 2


def test_box_and_nonnegative_are_bounds_bit_for_bit():
    fun = squares(*data())
    for term, bounds in ((Box(-0.4, 0.7), (-0.4, 0.7)), (NonNegative(), (0.0, None))):
        a = minimize(fun, np.zeros(D), jac=True, penalty=term)
        b = minimize(fun, np.zeros(D), jac=True, bounds=bounds)
        assert a.x.tobytes() == b.x.tobytes()
        assert (a.active == b.active).all()


class Sparse:
    """A term of the user's own: L1 within [-1, 1]."""

    def value(self, x):
        return 0.2 * np.abs(x).sum() if np.abs(x).max() <= 1.0 else np.inf

    def prox(self, x, step):
        return np.clip(np.sign(x) * np.maximum(np.abs(x) - 0.2 * step, 0.0), -1.0, 1.0)


def test_terms_of_the_users_own():
    fun = squares(*data())
    result = minimize(fun, np.zeros(D), jac=True, penalty=Sparse(), tol=1e-9)
    assert result.success
    assert residual(fun, Sparse(), result.x) <= 1e-9
    assert (np.abs(result.x) == 1.0).any()
    assert (result.x == 0.0).any()


class NetUpTo1(ElasticNet):
    def value(self, x):
        return super().value(x) if (x <= 1.0).all() else np.inf

    def prox(self, x, step):
        return np.minimum(super().prox(x, step), 1.0)


class From0To1(NonNegative):
    def prox(self, x, step):
        return np.minimum(super().prox(x, step), 1.0)


class Bounded(Sparse):
    bounds = (-1.0, 1.0)  # of the user's own, with another meaning


@pytest.mark.parametrize("term", [NetUpTo1(0.0, 0.0), From0To1()])
def test_a_subclass_keeps_its_own_prox_and_value(term):
    def fun(x):
        return float((x - 3.0) @ (x - 3.0)) / 2, x - 3.0

    x0 = np.zeros(2)
    np.testing.assert_allclose(minimize(fun, x0, jac=True, penalty=term).x, 1.0)
    assert certify(fun, np.ones(2), jac=True, penalty=term).verdict == "first-order"
    with pytest.raises(ValueError, match="is infinite at x"):
        certify(fun, np.full(2, 3.0), jac=True, penalty=term)
    many = minimize_many(fun, [x0], jac=True, penalty=term, vectorized=False)
    np.testing.assert_allclose(many.x, 1.0)


def test_bounds_of_a_term_of_the_users_own_are_none_of_ours():
    fun = squares(*data())
    own, bounded = (minimize(fun, np.zeros(D), jac=True, penalty=p()) for p in (Sparse, Bounded))
    assert own.x.tobytes() == bounded.x.tobytes()


@pytest.mark.parametrize("term", TERMS, ids=lambda term: type(term).__name__)
def test_function_is_evaluated_in_the_domain_alone(term):
    points = []
    fun = student(*data(3))

    def seen(x):
        points.append(x.copy())
        return fun(x)

    for method in ("auto", "lbfgs", "gd"):
        start = term.prox(np.ones(D), 1.0)
        minimize(seen, start, jac=True, penalty=term, method=method, max_iterations=40)
    assert all(np.isfinite(float(term.value(x))) for x in points)


def test_guard_alone_lowers_f_and_h_by_what_its_theorem_says():
    """F falls by L |p|^2/2 in every accepted step."""
    fun, term = student(*data()), L1(0.1)
    run = iterate(
        fun, np.ones(D), jac=True, penalty=term, method=ProjectedGradient(), max_iterations=50
    )
    x, value = np.ones(D), fun(np.ones(D))[0] + float(term.value(np.ones(D)))
    for step in run:
        p = step.x - x
        assert step.fun <= value - (p @ p) / step.step_size / 2 + 1e-12
        x, value = step.x, step.fun


def test_a_hopeless_fast_method_is_saved_by_the_guard():
    """With a fast method that goes nowhere the run still ends at the optimum."""
    fun, term = squares(*data()), L1(0.2)
    slow = Safeguarded(fast=ProjectedGradient(gradient_lipschitz=1e9))
    result = minimize(fun, np.zeros(D), jac=True, penalty=term, method=slow, tol=1e-6)
    assert result.success
    assert residual(fun, term, result.x) <= 1e-6


def test_random_problems_have_no_false_success():
    """KKT in extended precision; every run ends with a reason."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 9))
        A = rng.standard_normal((d, d))
        Q, c = (A + A.T) / 2, rng.standard_normal(d) * 10.0 ** rng.uniform(-2, 2)
        waves, a = rng.standard_normal(d), 10.0 ** rng.uniform(-2, 1)
        term = [L1(a), ElasticNet(a, 1.0), GroupL2(a, rng.integers(0, 3, d)), Simplex(a), Ball(a)]
        term = term[seed % 5]

        def fun(x, Q=Q, c=c, w=waves):
            wide = x.astype(np.longdouble)
            value = wide @ Q @ wide / 2 + (wide**4).sum() / 4 + c @ wide + w @ np.cos(wide)
            g = Q @ wide + wide**3 + c - w * np.sin(wide)
            return float(value), g.astype(float)

        start = term.prox(rng.standard_normal(d) * 3.0, 1.0)
        result = minimize(fun, start, jac=True, penalty=term, tol=1e-7)
        assert result.message
        if result.success:
            assert residual(fun, term, result.x) <= 2.0 * 1e-7 * (1 + getattr(term, "ridge", 0))
        assert result.success or result.status is Status.NO_PROGRESS, (seed, result.message)


def test_where_f_is_not_finite_a_run_steps_back():
    def fun(x):
        with np.errstate(all="ignore"):
            return float(np.sum(x - np.log(x))), 1 - 1 / x  # NaN below 0

    term = L1(0.5)
    result = minimize(fun, np.full(4, 5.0), jac=True, penalty=term, tol=1e-9)
    assert result.success
    np.testing.assert_allclose(result.x, 1 / 1.5, atol=1e-8)


@pytest.mark.parametrize("term", [L1(0.2), ElasticNet(0.1, 0.3), Simplex(2.0)])
def test_resumed_runs_go_on_bit_for_bit(term, tmp_path):
    fun, path = student(*data(2)), tmp_path / "run.npz"
    start = term.prox(np.ones(D), 1.0)
    options = {"jac": True, "penalty": term, "tol": 1e-9}
    whole = minimize(fun, start, **options)
    minimize(fun, start, max_iterations=6, checkpoint=Checkpoint(path), **options)
    resumed = minimize(fun, start, resume=path, max_iterations=10**5, **options)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.nfev == whole.nfev
    with pytest.raises(momentous.CheckpointError, match="fun"):
        minimize(fun, start, jac=True, penalty=L1(0.9), resume=path)


def test_separate_value_and_gradient_count_honestly():
    both, calls = squares(*data()), {"f": 0, "g": 0}

    def value(x):
        calls["f"] += 1
        return both(x)[0]

    def gradient(x):
        calls["g"] += 1
        return both(x)[1]

    result = minimize(value, np.zeros(D), jac=gradient, penalty=L1(0.2), tol=1e-8)
    assert result.success
    assert (result.nfev, result.njev) == (calls["f"], calls["g"])
    differences = minimize(value, np.zeros(D), jac="2-point", penalty=L1(0.2), tol=1e-4)
    assert differences.fun == pytest.approx(result.fun, rel=1e-6)


def test_trace_shows_f_and_h():
    fun, term = squares(*data()), L1(0.2)
    run = iterate(fun, np.zeros(D), jac=True, penalty=term)
    for step in run:
        assert step.fun == pytest.approx(fun(step.x)[0] + float(term.value(step.x)), abs=1e-12)
    assert run.result.trace["fun"][-1] == run.result.fun


@pytest.mark.parametrize("term", [L1(0.2), ElasticNet(0.1, 0.3), GroupL2(0.3), Simplex(), Ball()])
def test_tensors_of_torch_are_minimised_as_arrays_are(term):
    torch = pytest.importorskip("torch")
    X, y = (torch.from_numpy(a) for a in data())
    Y = torch.stack([y, -y], dim=1)  # x has two axes: rows are groups

    def fun(W):
        e = X @ W - Y
        return (e * e).sum() / (2 * N), X.T @ e / N

    start = term.prox(torch.zeros(D, 2, dtype=torch.float64), 1.0)
    result = minimize(fun, start, jac=True, penalty=term, tol=1e-8)
    host = minimize(
        lambda W: tuple(a.numpy() for a in fun(torch.tensor(W))),
        start.numpy(), jac=True, penalty=term, tol=1e-8,
    )  # fmt: skip
    assert result.success
    assert isinstance(result.x, torch.Tensor)
    np.testing.assert_allclose(result.x.numpy(), host.x, atol=1e-6)


def test_messages_speak_of_proximal_gradients():
    def nowhere_else(x):
        return 1.0 if (x == 1.0).all() else np.inf, 2 * x

    found = minimize(nowhere_else, np.ones(3), jac=True, penalty=L1(), method=ProjectedGradient())
    assert found.status == Status.NO_PROGRESS
    assert "at proximal gradient norm" in found.message
    assert "projected" not in found.message


class Longer(L1):
    def prox(self, x, step):
        return np.append(x, 0.0)


def test_what_cannot_be_is_refused_in_words():
    fun, x0 = squares(*data()), np.zeros(D)
    with pytest.raises(ValueError, match=r"'cg' does not take one; these do: auto, .*lbfgs"):
        minimize(fun, x0, jac=True, penalty=L1(), method="cg")
    with pytest.raises(ValueError, match="bounds= and penalty= cannot"):
        minimize(fun, x0, jac=True, penalty=L1(), bounds=(0, 1))
    with pytest.raises(TypeError, match="must be one of L1"):
        minimize(fun, x0, jac=True, penalty=0.1)
    with pytest.raises(ValueError, match=r"fast='ada-ragd' of 'safeguarded' does not take one"):
        minimize(fun, x0, jac=True, penalty=L1(), method=Safeguarded(fast=AdaRAGD()))
    with pytest.raises(TypeError, match=r"penalty=L1 is a class; pass an object: L1\("):
        minimize(fun, x0, jac=True, penalty=L1)
    for term in (L1(np.ones((2, D))), ElasticNet([1.0, 2.0]), GroupL2([1.0, 2.0], np.arange(D))):
        with pytest.raises(ValueError, match=r"numbers of shape .* groups of shape \(25,\)"):
            minimize(fun, x0, jac=True, penalty=term)
    for count in (D - 1, D + 1):
        with pytest.raises(ValueError, match=f"{count} labels, and x of shape .* has 25 entries"):
            minimize(fun, x0, jac=True, penalty=GroupL2(1.0, np.arange(count)))
    for groups in ([[0, 1], [2, 3]], [[0, 1], [2]]):  # not read as labels of four entries
        with pytest.raises(ValueError, match=r"lists in a list; give one label per entry"):
            GroupL2(1.0, groups)
    with pytest.raises(ValueError, match="it must keep both"):
        minimize(fun, x0, jac=True, penalty=Longer())
    with pytest.warns(RuntimeWarning, match="infinite at x0: the run starts at prox"):
        assert minimize(fun, x0, jac=True, penalty=Simplex()).success


@pytest.mark.parametrize("term", [L1(0.0), L1(1e-9), GroupL2(1e-9), ElasticNet(1e-9, 0.0)])
@pytest.mark.parametrize(("dtype", "far", "slope"), [("f4", 1e6, 2e-8), ("f8", 1e12, 1e-17)])
def test_far_from_0_no_small_gradient_is_taken_for_none(term, dtype, far, slope):
    """x - g is x there: slope |x|^2/2, of gradient norms above tol at the start."""

    def fun(x):
        x = x.astype(float)
        return slope * float(x @ x) / 2, (slope * x).astype(dtype)

    found = minimize(fun, np.full(3, far, dtype), jac=True, penalty=term, tol=1e-7)
    assert found.success
    assert np.linalg.norm(slope * found.x.astype(float)) < 1e-7 + 3e-9


@pytest.mark.parametrize(
    ("term", "most"), [(Ball(0.5), 400), (GroupL2(12.0, np.arange(40) // 5), 700)]
)
def test_the_search_goes_beyond_the_model_where_a_term_bends_and_f_does_not(term, most):
    """Along a sphere, or a group of constant norm, f may bend down: pairs say nothing of that.
    With steps of at most 1 the ball takes more than 20,000 calls."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((80, 40)) @ np.diag(np.geomspace(1, 30, 40))
    right = 5 * rng.standard_normal(80)
    points = []

    def student(x):
        points.append(x)
        e = matrix @ x - right
        return float(np.log1p(e * e / 2).sum()), matrix.T @ (e / (1 + e * e / 2))

    size = np.linalg.norm(student(np.zeros(40))[1])
    run = minimize(student, np.zeros(40), jac=True, method="lbfgs", penalty=term, tol=1e-6 * size)
    assert run.success
    assert run.nfev <= most
    assert all(np.isfinite(term.value(x)) for x in points)


@pytest.mark.parametrize("term", [Simplex(1.0), Ball(1.0)])
def test_a_search_ends_where_the_proximal_map_gets_nowhere(term):
    c = np.array([1.0, 2.0, 3.0])
    found = minimize(
        lambda x: (c @ x, c), [0.3, 0.3, 0.4], jac=True, penalty=term, method="lbfgs", tol=1e-8
    )
    assert found.success
    least = c.min() if isinstance(term, Simplex) else -np.linalg.norm(c)
    assert found.fun == pytest.approx(least, rel=1e-12)
    assert found.nfev <= (8 if isinstance(term, Simplex) else 60)  # 19 with the slope at the end


@pytest.mark.parametrize(
    "term", [L1(1.0), ElasticNet(1.0, 2.0), GroupL2(1.0), Ball(9.0), Simplex()]
)
def test_the_check_of_the_gradient_leaves_the_term_out(term):
    def right(x):
        return float(((x - 2) ** 2).sum()), 2 * (x - 2)

    def wrong(x):
        value, gradient = right(x)
        return value, gradient + np.array([0.0, 0.1, 0.0])

    options = {"jac": True, "penalty": term, "check_gradient": True}
    start = np.full(3, 1 / 3)
    assert minimize(right, start, **options).success
    with pytest.raises(ValueError, match=r"entry \(1,\) is"):
        minimize(wrong, start, **options)


class InPlace:
    """L1 that writes into whatever it is given."""

    def value(self, x):
        return np.abs(x, out=x).sum()

    def prox(self, x, step):
        x -= np.clip(x, -step, step)
        return x


class OneBuffer:
    """L1 that returns the same array again and again."""

    value = L1().value

    def __init__(self):
        self.buffer = np.empty(6)

    def prox(self, x, step):
        np.copyto(self.buffer, L1().prox(x, step))
        return self.buffer


@pytest.mark.parametrize("term", [InPlace(), OneBuffer()], ids=["in place", "one buffer"])
def test_a_prox_may_work_in_place_or_return_one_buffer(term):
    def fun(x):
        rest = x - np.arange(6.0)
        return 0.5 * float(rest @ rest) + float(np.cos(x).sum()), rest - np.sin(x)

    x0, wanted = np.full(6, 3.0), minimize(fun, np.full(6, 3.0), jac=True, penalty=L1())
    found = minimize(fun, x0, jac=True, penalty=term)
    many = minimize_many(fun, x0[None], jac=True, penalty=term, vectorized=False)[0]
    for run in (found, many):
        assert run.success
        np.testing.assert_allclose(run.x, wanted.x, atol=1e-5)
        assert (run.nit, run.nfev) == (wanted.nit, wanted.nfev)
    assert certify(fun, found.x, jac=True, penalty=term, eps=1e-3).is_first_order
    np.testing.assert_array_equal(x0, 3.0)
    np.copyto(getattr(term, "buffer", x0), 0.0)  # it is still the user's own


def test_a_prox_that_changes_its_shape_is_refused():
    class Grows(OneBuffer):
        def prox(self, x, step):
            made = super().prox(x, step)
            return made if step == 1.0 else np.append(made, 0.0)

    with pytest.raises(ValueError, match=r"the prox of penalty=Grows returned shape \(7,\)"):
        minimize(lambda x: (float(x @ x), 2 * x), np.full(6, 3.0), jac=True, penalty=Grows())
