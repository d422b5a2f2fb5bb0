"""
Accelerate your own EM
======================

You have a map that never raises an objective: an EM step, an ALS sweep, a multiplicative update.
`accelerate` puts restarted momentum around it, and never ends higher than the map would.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous import accelerate

# %%
# A mixture of three normal distributions that overlap: EM needs many steps here.  The variables
# are the logarithms of the weights, the means, and the logarithms of the variances.

rng = np.random.default_rng(0)
data = np.concatenate([rng.normal(c, 1.0, 400) for c in (-1.5, 0.5, 2.5)])


def log_densities(x):
    weights, means, logs = x
    weights = weights - np.logaddexp.reduce(weights)
    square = (data[:, None] - means) ** 2 / np.exp(logs)
    return weights - (square + logs + np.log(2 * np.pi)) / 2


def em_step(x):
    """One step of expectation and maximisation."""
    joint = log_densities(x)
    share = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    total = share.sum(axis=0)
    means = share.T @ data / total
    variances = np.sum(share * (data[:, None] - means) ** 2, axis=0) / total
    return np.array([np.log(total / len(data)), means, np.log(variances)])


def minus_log_likelihood(x):
    return -np.mean(np.logaddexp.reduce(log_densities(x), axis=1))


# %%
# ``restart="always"`` is the plain iteration, counted in the same way.

start = np.array([[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
plain = accelerate(em_step, start, minus_log_likelihood, restart="always", tol=1e-6)
fast = accelerate(em_step, start, minus_log_likelihood, tol=1e-6)
print(f"plain:       {plain.njev:5d} steps, {plain.fun:.9f}")
print(f"accelerated: {fast.njev:5d} steps, {fast.fun:.9f}")

# %%
lowest = min(plain.fun, fast.fun)
for name, result in (("EM", plain), ("EM with restarted momentum", fast)):
    plt.loglog(result.trace["njev"], result.trace["fun"] - lowest + 1e-12, label=name)
plt.xlabel("EM steps")
plt.ylabel("minus log-likelihood, above the lowest")
plt.legend()
plt.show()
