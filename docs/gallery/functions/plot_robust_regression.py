"""
Robust regression: outliers that do not count
=============================================

Squares give an outlier all the weight that it asks for.  A loss that levels off does not, but then
the objective is nonconvex.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous import certify, minimize

rng = np.random.default_rng(0)
m = 120
t = rng.uniform(-1, 1, m)
y = 0.5 + 2.0 * t + 0.1 * rng.standard_normal(m)
wrong = rng.random(m) < 0.3
y[wrong] = rng.uniform(2, 6, wrong.sum())
A = np.column_stack([np.ones(m), t])


def geman_mcclure(x, scale=0.3):
    """Sum of r^2/(r^2 + scale^2): about r^2 for small residuals, at most 1 for large ones."""
    r = A @ x - y
    s = r**2 + scale**2
    return np.sum(r**2 / s), A.T @ (2 * r * scale**2 / s**2)


# %%
# Least squares is the start.  The certificate says that the end is a minimum, not a saddle.

squares, *_ = np.linalg.lstsq(A, y, rcond=None)
robust = minimize(geman_mcclure, squares, jac=True, tol=1e-8)
print(robust.message)
print(certify(geman_mcclure, robust.x, jac=True, eps=1e-6, curvature=1e-3).message)
print("least squares", squares.round(3), " robust", robust.x.round(3), " true [0.5 2. ]")

# %%
line = np.array([-1.0, 1.0])
plt.plot(t[~wrong], y[~wrong], ".", label="data")
plt.plot(t[wrong], y[wrong], "x", color="0.5", label="outliers")
plt.plot(line, squares[0] + squares[1] * line, "--", label="least squares")
plt.plot(line, robust.x[0] + robust.x[1] * line, label="robust")
plt.legend()
plt.show()
