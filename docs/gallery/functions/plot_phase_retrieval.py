"""
Phase retrieval: a signal from magnitudes
=========================================

Only the squares :math:`y_i = (a_i^T x)^2` of linear measurements are known.  The least-squares fit
is a polynomial of degree four: nonconvex, with saddles, and without a global Lipschitz constant.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous import minimize

rng = np.random.default_rng(1)
n, m = 64, 512
t = np.linspace(0, 1, n)
signal = np.sin(6 * np.pi * t) * np.exp(-3 * (t - 0.5) ** 2) + 0.5 * (np.abs(t - 0.7) < 0.05)
A = rng.standard_normal((m, n))
y = (A @ signal) ** 2


def misfit(x):
    """Value and gradient: one product with A and one with its transpose."""
    z = A @ x
    r = z**2 - y
    return r @ r / (4 * m), A.T @ (r * z) / m


# %%
# The start is the leading eigenvector of a weighted sum of the measurement vectors; from there the
# methods go on by themselves, without a step size.  Near a solution this function is well
# conditioned, so that even gradient descent with a line search is quick.

_, vectors = np.linalg.eigh(A.T * y @ A / m)
start = vectors[:, -1] * np.sqrt(y.mean())
found = {name: minimize(misfit, start, jac=True, method=name, tol=1e-10)
         for name in ("auto", "ada-rhb", "gd")}  # fmt: skip
for name, result in found.items():
    x = result.x * np.sign(result.x @ signal)  # the sign cannot be known
    print(f"{name:8s} {result.njev:5d} gradients, error {np.linalg.norm(x - signal):.1e}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for name, result in found.items():
    left.semilogy(result.trace["grad_norm"], label=name)
left.set(xlabel="iterations", ylabel="gradient norm")
left.legend()
right.plot(t, signal, color="0.7", linewidth=4, label="signal")
right.plot(t, found["auto"].x * np.sign(found["auto"].x @ signal), label="recovered")
right.legend()
plt.show()
