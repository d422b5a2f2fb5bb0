"""Simple terms of parameters of PyTorch, by name."""

import numpy as np
import pytest

import momentous
from momentous import L1, GroupL2, NonNegative

torch = pytest.importorskip("torch")

from momentous.torch import Optimizer, minimize  # noqa: E402


def regression():
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((40, 12)), rng.standard_normal(40)
    net = torch.nn.Linear(12, 1, dtype=torch.float64)
    torch.nn.init.constant_(net.weight, 0.3)
    torch.nn.init.constant_(net.bias, 0.0)
    x, y = torch.from_numpy(A), torch.from_numpy(b)[:, None]
    return net, lambda: (net(x) - y).square().mean() / 2, A, b


def test_a_lasso_with_a_free_intercept_is_that_of_minimize():
    net, loss, A, b = regression()
    result = minimize(net, loss, tol=1e-9, penalty={"weight": L1(0.1)})
    full, weights = np.hstack([A, np.ones((40, 1))]), np.append(np.full(12, 0.1), 0.0)

    def f(x):
        r = full @ x - b
        return float(r @ r) / 80, full.T @ r / 40

    wanted = momentous.minimize(f, np.zeros(13), jac=True, tol=1e-9, penalty=L1(weights))
    assert result.success
    assert wanted.success
    assert result.fun == pytest.approx(wanted.fun, rel=1e-12)
    assert result.penalty == pytest.approx(0.1 * abs(wanted.x[:12]).sum(), rel=1e-6)
    np.testing.assert_array_equal(net.weight.detach().numpy()[0] == 0.0, wanted.x[:12] == 0.0)
    assert (wanted.x == 0.0).any()


def test_a_term_alone_is_for_every_parameter_in_its_shape():
    net, loss, *_ = regression()
    result = minimize(net, loss, tol=1e-9, penalty=GroupL2(10.0))  # the one row, and the bias
    assert result.success
    assert not net.weight.any()
    assert not net.bias.any()


def test_an_optimizer_takes_terms():
    net, loss, *_ = regression()
    optimizer = Optimizer(net.named_parameters(), tol=1e-8, penalty={"weight": NonNegative()})
    while not optimizer.done:
        optimizer.step(loss)
        assert (net.weight >= 0.0).all()
    assert optimizer.result.success
    assert (net.weight == 0.0).any()


@pytest.mark.parametrize(
    ("penalty", "words"),
    [({"wait": L1(1.0)}, "penalty= names 'wait', which is not trained"), (L1, "is a class")],
)
def test_terms_that_cannot_be_taken(penalty, words):
    net, loss, *_ = regression()
    with pytest.raises((ValueError, TypeError), match=words):
        minimize(net, loss, penalty=penalty)
