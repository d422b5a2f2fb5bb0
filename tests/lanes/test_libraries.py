"""The same batch on arrays of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from momentous import minimize_many
from momentous.core.space import to_numpy
from momentous.lanes.machine import Guesses, Lanes

LIBRARIES = ["torch", "jax.numpy", "array_api_strict"]
X0 = 1.2 * np.random.default_rng(0).standard_normal((20, 4))


def value(X: Any, xp: Any) -> Any:
    return xp.sum(100 * (X[..., 1:] - X[..., :-1] ** 2) ** 2 + (1 - X[..., :-1]) ** 2, axis=-1)


def pair(X: Any, xp: Any) -> Any:
    a, b = X[..., 1:] - X[..., :-1] ** 2, 1 - X[..., :-1]
    none = 0 * X[..., :1]
    back = xp.concat([-400 * a * X[..., :-1] - 2 * b, none], axis=-1)
    return value(X, xp), back + xp.concat([none, 200 * a], axis=-1)


def library(name: str) -> Any:
    """Its arrays have doubles."""
    if name == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    return pytest.importorskip(name)


@pytest.fixture(autouse=True)
def precision_of_jax() -> Iterator[None]:
    """As it was, after each test: other tests are of single precision."""
    jax = sys.modules.get("jax")
    before = jax is not None and jax.config.jax_enable_x64
    yield
    if jax := sys.modules.get("jax"):
        jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def on_numpy() -> Any:
    return minimize_many(lambda X: pair(X, np), X0, jac=True, tol=1e-6)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("method", ["auto", "ada-rhb"])
def test_other_libraries(name: str, method: str) -> None:
    xp = library(name)
    options: dict[str, Any] = {"jac": True, "method": method, "tol": 1e-4}
    expected = minimize_many(lambda X: pair(X, np), X0[:8], **options)
    result = minimize_many(lambda X: pair(X, xp), xp.asarray(X0[:8]), **options)
    assert isinstance(result.x, type(xp.asarray(X0)))
    assert result.success.all()
    within = 0.1 if method == "auto" else 0.5  # momentum takes rounding further
    np.testing.assert_allclose(np.median(result.nfev), np.median(expected.nfev), rtol=within)
    np.testing.assert_allclose(to_numpy(result[0].x), to_numpy(result.x)[0])


@pytest.mark.parametrize("name", LIBRARIES[:2])
@pytest.mark.parametrize("vectorized", [True, False])
def test_automatic_differentiation(name: str, vectorized: bool, on_numpy: Any) -> None:
    xp = library(name)
    shift = xp.asarray(np.zeros(20))
    result = minimize_many(
        lambda X, s: value(X, xp) + s, xp.asarray(X0), (shift,), tol=1e-6, vectorized=vectorized
    )
    assert result.success.all()
    np.testing.assert_allclose(np.median(result.nfev), np.median(on_numpy.nfev), rtol=0.1)


def test_a_device_is_asked_once_per_turn(on_numpy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With guesses in place of questions, as on a GPU, every lane ends the same."""
    torch = pytest.importorskip("torch")
    begin = Lanes.__init__

    def with_guesses(self: Lanes, *args: Any, **given: Any) -> None:
        begin(self, *args, **given)
        self.guesses = Guesses()

    expected = minimize_many(lambda X: pair(X, torch), torch.asarray(X0), jac=True, tol=1e-6)
    monkeypatch.setattr(Lanes, "__init__", with_guesses)
    result = minimize_many(lambda X: pair(X, torch), torch.asarray(X0), jac=True, tol=1e-6)
    np.testing.assert_array_equal(result.nfev, expected.nfev)
    assert torch.equal(result.x, expected.x)


def test_a_function_that_writes_into_x_is_found_out() -> None:
    torch = pytest.importorskip("torch")

    def fun(X: Any) -> Any:
        values, gradients = (X**2).sum(1), 2 * X
        X += 1
        return values, gradients

    with pytest.raises(RuntimeError, match="written into x"):
        minimize_many(fun, torch.ones(3, 2, dtype=torch.float64), jac=True)


def test_jax_without_doubles_and_with_differences() -> None:
    jax = pytest.importorskip("jax")

    def fun(X: Any) -> Any:
        return ((X - 1) ** 2).sum(1)

    X0 = jax.numpy.zeros((3, 2), dtype="float32")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        for jac in ("autodiff", "3-point"):
            result = minimize_many(fun, X0, jac=jac, tol=1e-2)
            assert result.success.all()
            assert (str(result.x.dtype), str(result.fun.dtype)) == ("float32", "float64")
    finally:
        jax.config.update("jax_enable_x64", before)


def test_what_torch_cannot_differentiate_is_named() -> None:
    X = library("torch").asarray(X0)
    with pytest.raises(TypeError, match=r"without a graph that leads to x"):
        minimize_many(lambda X: (X.detach() ** 2).sum(1), X)
    assert "20 problems of (4,)" in repr(minimize_many(lambda X: (X**2).sum(1), X))
