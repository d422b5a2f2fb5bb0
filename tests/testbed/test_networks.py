"""The networks of the testbed: derivatives, starts, data, array libraries."""

import importlib
import sys

import numpy as np
import pytest

from momentous.testbed import Problem, autoencoder, mlp_classifier

pytest.importorskip("sklearn")

NETWORKS = [
    mlp_classifier("wine", (5,)),
    mlp_classifier("breast-cancer", (6, 4), samples=40, ridge=0.01),
    mlp_classifier("digits", (), samples=50),  # no hidden layer: a linear classifier
    autoencoder("wine", (6, 2, 6)),
    autoencoder("digits", (4,), samples=30, ridge=0.0),
]


def each(networks):
    return pytest.mark.parametrize("problem", networks, ids=lambda p: p.name)


def elsewhere(problem: Problem, seed: int = 1):
    """A point and a direction off the start, where biases count, too."""
    rng = np.random.default_rng(seed)
    x = problem.start + 0.3 * rng.standard_normal(problem.dimension)
    return x, rng.standard_normal(problem.dimension)


@each(NETWORKS)
def test_gradient_agrees_with_central_differences(problem):
    x, v = elsewhere(problem)
    h = 1e-4 / np.linalg.norm(v)
    difference = (problem.value(x + h * v) - problem.value(x - h * v)) / (2.0 * h)
    assert problem.gradient(x) @ v == pytest.approx(difference, rel=1e-6)


@each(NETWORKS)
def test_value_is_that_of_the_pair(problem):
    x, _ = elsewhere(problem)
    assert problem.value(x) == problem.value_and_gradient(x)[0]


@each(NETWORKS)
def test_gradient_agrees_with_automatic_differentiation(problem):
    torch = pytest.importorskip("torch")
    x, _ = elsewhere(problem)
    point = torch.tensor(x, requires_grad=True)
    problem.value(point).backward()
    np.testing.assert_allclose(problem.gradient(x), point.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_the_loss_of_the_classifier_is_the_cross_entropy_of_torch():
    torch = pytest.importorskip("torch")
    datasets = importlib.import_module("sklearn.datasets")
    problem = mlp_classifier("wine", (5,), ridge=0.1)
    x, _ = elsewhere(problem)
    features, labels = datasets.load_wine(return_X_y=True)
    inputs = (features - features.min(axis=0)) / np.ptp(features, axis=0)
    W1, b1, W2, b2 = np.split(x, np.cumsum([13 * 5, 5, 5 * 3]))
    outputs = np.tanh(inputs @ W1.reshape(13, 5) + b1) @ W2.reshape(5, 3) + b2
    entropy = torch.nn.functional.cross_entropy(torch.tensor(outputs), torch.tensor(labels))
    assert problem.value(x) == pytest.approx(float(entropy) + 0.05 * x @ x, rel=1e-12)


def test_an_autoencoder_that_repeats_nothing_has_the_inputs_as_error():
    """With all weights 0 the outputs are 0; with the last biases at the means, the variance."""
    problem = autoencoder("digits", (3,), ridge=0.0)
    pixels = importlib.import_module("sklearn.datasets").load_digits().data
    pixels = pixels / np.maximum(pixels.max(axis=0), 1.0)
    silent = np.zeros(problem.dimension)
    assert problem.value(silent) == pytest.approx(0.5 * np.mean(np.sum(pixels**2, axis=1)))
    silent[-64:] = pixels.mean(axis=0)
    assert problem.value(silent) == pytest.approx(0.5 * np.sum(pixels.var(axis=0)))


@each(NETWORKS)
def test_outputs_of_any_size_do_not_overflow(problem):
    f, g = problem.value_and_gradient(1e4 * problem.start)
    assert np.isfinite(f)
    assert np.all(np.isfinite(g))


def test_weights_start_within_the_bounds_of_glorot_and_biases_at_zero():
    start = mlp_classifier("wine", (5,)).start
    W1, b1, W2, b2 = np.split(start, np.cumsum([13 * 5, 5, 5 * 3]))
    assert not np.any(b1)
    assert not np.any(b2)
    for W, fans in ((W1, 13 + 5), (W2, 5 + 3)):
        bound = np.sqrt(6.0 / fans)
        assert np.all(np.abs(W) <= bound)
        assert np.abs(W).max() > 0.7 * bound


def test_a_seed_means_the_same_problem_and_another_seed_another():
    problem = mlp_classifier("wine", samples=30)
    again, other = mlp_classifier("wine", samples=30), mlp_classifier("wine", samples=30, rng=1)
    x, _ = elsewhere(problem)
    assert problem.value(x) == again.value(x) != other.value(x)
    np.testing.assert_array_equal(problem.start, again.start)
    assert np.any(problem.start != other.start)


def same_in(problem: Problem, xp, dtype, tolerance: float, wrap=lambda f: f):
    x, _ = elsewhere(problem)
    f, g = wrap(problem.value_and_gradient)(xp.asarray(x, dtype=dtype))
    assert f.dtype == g.dtype == dtype
    assert type(g) is type(problem.start_in(xp))
    expected_f, expected_g = problem.value_and_gradient(x)
    assert float(f) == pytest.approx(float(expected_f), rel=tolerance)
    size = np.abs(expected_g).max()
    np.testing.assert_allclose(np.asarray(g), expected_g, atol=tolerance * size)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 3e-5)])
@pytest.mark.parametrize("module", ["numpy", "torch", "array_api_strict"])
@each(NETWORKS)
def test_same_in_every_library(problem, module, dtype, tolerance):
    xp = pytest.importorskip(module)
    same_in(problem, xp, getattr(xp, dtype), tolerance)


@pytest.mark.slow
@each(NETWORKS[1:4])
def test_same_in_compiled_jax(problem):
    jax = pytest.importorskip("jax")
    same_in(problem, jax.numpy, jax.numpy.float32, 3e-5, wrap=jax.jit)


@each(NETWORKS)
def test_device_is_kept(problem):
    strict = pytest.importorskip("array_api_strict")
    x = problem.start_in(strict, device=strict.Device("device1"))
    f, g = problem.value_and_gradient(x)
    assert f.device == g.device == problem.value(x).device == x.device


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"data": "iris-of-the-eye"}, "unknown data 'iris-of-the-eye'.*digits"),
        ({"data": "wine", "samples": 1000}, "'wine' has 178 samples.*1000"),
        ({"data": "wine", "hidden": (3, 0)}, "units"),
        ({"data": "wine", "ridge": -1.0}, "ridge"),
    ],
)
def test_what_cannot_be_built_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        mlp_classifier(**wrong)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"momentous\[app\]"):
        autoencoder("wine")
