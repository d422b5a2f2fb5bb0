"""Small neural networks on data that scikit-learn ships, as functions of one flat vector.

The layers follow one another in the vector: first the weights, one row per input and one column per
unit, then the biases of the units. Hidden units are tanh, the last layer is linear.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from momentous.io.optional import require
from momentous.testbed.problem import Array, Constants, Problem, Rng, Vector

Layer = tuple[Array, Array]
"""Weights and biases."""

LOADERS = {"breast-cancer": "load_breast_cancer", "digits": "load_digits", "wine": "load_wine"}
"""The data sets, and which function of `sklearn.datasets` has them."""


def mlp_classifier(
    data: str = "digits",
    hidden: Sequence[int] = (32, 16),
    samples: int | None = None,
    ridge: float = 1e-4,
    rng: Rng = 0,
) -> Problem:
    """Multilayer perceptron: mean cross-entropy of the softmax of its outputs z, plus a ridge.

    ``f(w) = (1/m) sum_i [log sum_c exp(z_ic) - z_i,label(i)] + (ridge/2)|w|^2``. Without the ridge
    a network that tells the classes apart has no minimum: the larger its weights, the better.
    No global constants; the minimum is the lower bound 0.

    ``data`` is "breast-cancer" (569 samples of 30 features in 2 classes), "digits" (1797 of 64 in
    10) or "wine" (178 of 13 in 3), with every feature scaled to [0, 1]; ``samples`` of them (m, by
    default all) are drawn without replacement.  ``hidden`` has the units of each hidden layer.
    Weights start uniform on ``+-sqrt(6/(inputs + units))`` in each layer [1]_, biases at 0.

    References
    ----------
    .. [1] Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
       networks", AISTATS (2010), equation 16.
    """
    rng = np.random.default_rng(rng)
    inputs, labels = _load(data, samples, rng)
    one_hot = np.eye(int(labels.max()) + 1)[labels]
    return _network("mlp", data, inputs, one_hot, hidden, _cross_entropy, ridge, rng)


def autoencoder(
    data: str = "digits",
    hidden: Sequence[int] = (32, 8, 32),
    samples: int | None = None,
    ridge: float = 1e-4,
    rng: Rng = 0,
) -> Problem:
    """Autoencoder: how far its outputs z are from its inputs a, plus a ridge.

    ``f(w) = (1/2m) sum_i |z_i - a_i|^2 + (ridge/2)|w|^2``, through layers of which at least one is
    narrow. The ridge bounds the level sets. Parameters as in `mlp_classifier`, of which the labels
    are not used; no global constants, the minimum is the lower bound 0.
    """
    rng = np.random.default_rng(rng)
    inputs, _ = _load(data, samples, rng)
    return _network("autoencoder", data, inputs, inputs, hidden, _half_squares, ridge, rng)


def _network(
    kind: str,
    data: str,
    inputs: Vector,
    targets: Vector,
    hidden: Sequence[int],
    loss: Callable[[Array, Array], tuple[Array, Array]],
    ridge: float,
    rng: np.random.Generator,
) -> Problem:
    """A network under a loss of outputs and targets, summed over samples, given with its slope."""
    sizes = (inputs.shape[1], *hidden, targets.shape[1])
    if min(sizes) < 1 or not ridge >= 0.0:
        raise ValueError(f"need units in every layer and ridge >= 0, not {hidden} and {ridge}")
    count, ridge = inputs.shape[0], float(ridge)
    constants = Constants(inputs, targets)

    def layers(x: Array) -> list[Layer]:
        xp = array_namespace(x)
        found, at = [], 0
        for fan_in, units in pairwise(sizes):
            biases = at + fan_in * units
            found.append((xp.reshape(x[at:biases], (fan_in, units)), x[biases : biases + units]))
            at = biases + units
        return found

    def forward(network: list[Layer], inputs: Array) -> list[Array]:
        """What enters each layer, and what leaves the last one."""
        xp = array_namespace(inputs)
        signals = [inputs]
        for weights, biases in network[:-1]:
            signals.append(xp.tanh(signals[-1] @ weights + biases))
        weights, biases = network[-1]
        return [*signals, signals[-1] @ weights + biases]

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        inputs, targets = constants.like(x)
        network = layers(x)
        *signals, output = forward(network, inputs)
        error, slope = loss(output, targets)
        pieces: list[Array] = []
        for depth in reversed(range(len(network))):
            # slope: how the error changes with what the units of this layer sum up
            signal, (weights, _) = signals[depth], network[depth]
            pieces += [xp.sum(slope, axis=0), xp.reshape(signal.T @ slope, (-1,))]
            if depth > 0:
                slope = (slope @ weights.T) * (1.0 - signal**2)
        f = error / count + 0.5 * ridge * xp.sum(x**2)
        return f, xp.concat(pieces[::-1]) / count + ridge * x

    return Problem(
        name=f"{kind}-{data}-{'x'.join(map(str, sizes))}",
        start=np.concatenate([_glorot(*shape, rng) for shape in pairwise(sizes)]),
        value_and_gradient=value_and_gradient,
        minimum=0.0,
    )


def _cross_entropy(outputs: Array, one_hot: Array) -> tuple[Array, Array]:
    xp = array_namespace(outputs)
    outputs = outputs - xp.max(outputs, axis=1, keepdims=True)  # so that exp cannot overflow
    odds = xp.exp(outputs)
    total = xp.sum(odds, axis=1, keepdims=True)
    return xp.sum(xp.log(total)) - xp.sum(one_hot * outputs), odds / total - one_hot


def _half_squares(outputs: Array, targets: Array) -> tuple[Array, Array]:
    excess = outputs - targets
    return 0.5 * array_namespace(outputs).sum(excess**2), excess


def _glorot(fan_in: int, units: int, rng: np.random.Generator) -> Vector:
    bound = np.sqrt(6.0 / (fan_in + units))
    return np.concatenate([rng.uniform(-bound, bound, fan_in * units), np.zeros(units)])


def _load(
    data: str, samples: int | None, rng: np.random.Generator
) -> tuple[Vector, NDArray[np.int64]]:
    """Features scaled to [0, 1], and labels."""
    if data not in LOADERS:
        raise ValueError(f"unknown data {data!r}; there are {', '.join(sorted(LOADERS))}")
    datasets = require("sklearn.datasets", "app", f"The data set {data!r}")
    features, labels = getattr(datasets, LOADERS[data])(return_X_y=True)
    if samples is not None:
        if not 1 <= samples <= labels.size:
            raise ValueError(f"{data!r} has {labels.size} samples, of which not {samples} exist")
        chosen = np.sort(rng.choice(labels.size, samples, replace=False))
        features, labels = features[chosen], labels[chosen]
    low, width = features.min(axis=0), np.ptp(features, axis=0)
    scaled = (features - low) / np.where(width > 0.0, width, 1.0)  # some pixels are always blank
    return scaled, labels
