"""
Leave a saddle
==============

A point where the gradient vanishes need not be a minimum.  `certify` looks at the curvature there
and says which it is, with numbers.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous import certify, minimize


def f(x):
    """A valley with two minima, at (1, 0) and (-1, 0), and a saddle between them."""
    a, b = x
    return (a**2 - 1) ** 2 / 4 + b**2 / 2, np.array([(a**2 - 1) * a, b])


# %%
# From a point with a = 0 every gradient method runs along the ridge, into the saddle.

on_the_ridge = minimize(f, np.array([0.0, 1.5]), jac=True, tol=1e-8)
verdict = certify(f, on_the_ridge.x, jac=True, eps=1e-6, rho=6.0)
print(on_the_ridge.x, verdict.message)

# %%
# The certificate brings the direction in which f falls.  A small step along it is enough.

start = on_the_ridge.x + 0.1 * verdict.direction
found = minimize(f, start, jac=True, tol=1e-8)
print(found.x, certify(f, found.x, jac=True, eps=1e-6, rho=6.0).message)

# %%
a, b = np.meshgrid(np.linspace(-1.6, 1.6, 200), np.linspace(-1.2, 1.6, 200))
plt.contour(a, b, (a**2 - 1) ** 2 / 4 + b**2 / 2, levels=20, linewidths=0.7)
plt.plot(*on_the_ridge.x, "s", label="saddle")
plt.plot(*found.x, "o", label="minimum")
plt.plot([start[0], found.x[0]], [start[1], found.x[1]], "--")
plt.legend()
plt.show()
