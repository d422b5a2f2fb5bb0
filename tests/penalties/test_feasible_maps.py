"""accelerate with feasible=: neither map nor value sees a point outside of the set."""

import numpy as np
import pytest

from momentous import NonNegative, Simplex, accelerate


def factors():
    """Nonnegative factors of a matrix by multiplicative updates, made for x >= 0 alone."""
    rng = np.random.default_rng(0)
    X, start = rng.random((20, 15)), rng.random((35, 3))

    def update(x):
        assert x.min() >= 0.0
        W, H = x[:20], x[20:]
        H = H * (X.T @ W) / (H @ (W.T @ W) + 1e-12)
        return np.concatenate([W * (X @ H) / (W @ (H.T @ H) + 1e-12), H])

    def distance(x):
        assert x.min() >= 0.0
        return float(((X - x[:20] @ x[20:].T) ** 2).sum())

    return update, start, distance, NonNegative()


def mixture():
    """The weights of a mixture by EM; most of them go to 0."""
    P = np.random.default_rng(0).random((200, 8)) * [1, 1, 0.2, 0.2, 3, 1, 0.1, 2]

    def em(w):
        assert w.min() >= 0.0
        assert abs(w.sum() - 1.0) < 1e-12
        r = P * w
        return (r / r.sum(axis=1, keepdims=True)).mean(axis=0)

    def cost(w):
        assert w.min() >= 0.0
        return float(-np.log(P @ w).sum())

    return em, np.full(8, 1 / 8), cost, Simplex()


@pytest.mark.parametrize("make", [factors, mixture])
def test_points_stay_in_the_set_and_the_run_is_faster(make):
    step, start, value, term = make()
    options = {"tol": 1e-5, "max_iterations": 5000}
    plain = accelerate(step, start, value, restart="always", **options)
    fast = accelerate(step, start, value, feasible=term, **options)
    assert fast.success
    assert fast.njev < plain.njev
    assert fast.fun <= plain.fun + 1e-5 * abs(plain.fun)
    assert np.isfinite(float(term.value(fast.x)))
    assert np.isfinite(float(term.value(fast.image)))
    by_function = accelerate(
        step, start, value, feasible=lambda x: bool(np.isfinite(float(term.value(x)))), **options
    )
    assert by_function.x.tobytes() == fast.x.tobytes()


def test_a_start_outside_and_what_is_no_set_are_refused():
    step, start, value, term = mixture()
    with pytest.raises(ValueError, match="does not hold at x0"):
        accelerate(step, start + 1.0, value, feasible=term)
    with pytest.raises(TypeError, match="must be a set such as"):
        accelerate(step, start, value, feasible=3)
