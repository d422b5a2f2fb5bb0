"""
A fit with physical limits
==========================

Two decays over a background: amplitudes, rates and the background cannot be negative.  Without
bounds the best fit of few data may say otherwise; with them it has a physical meaning, error bars,
and a certificate.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous import certify, minimize

rng = np.random.default_rng(0)
t = np.linspace(0, 6, 60)
noise = 0.03
y = 1.0 * np.exp(-2.0 * t) + 0.6 * np.exp(-0.4 * t) + noise * rng.standard_normal(t.size)


def model(x):
    a, p, b, q, background = x
    return a * np.exp(-p * t) + b * np.exp(-q * t) + background


def misfit(x):
    """Half the sum of squared residuals in units of the noise: its Hessian is that of chi^2/2."""
    a, p, b, q, _ = x
    first, second = np.exp(-p * t), np.exp(-q * t)
    r = (model(x) - y) / noise
    columns = [first, -a * t * first, second, -b * t * second, np.ones_like(t)]
    return r @ r / 2, np.array([r @ column for column in columns]) / noise


# %%
# The same start without bounds and with them.  The background ends at its bound: the data would
# rather have it below zero, and the multiplier says by how much chi^2/2 would fall per unit.

names = "amplitude 1", "rate 1", "amplitude 2", "rate 2", "background"
start = np.array([0.5, 3.0, 0.5, 0.5, 0.1])
box = [(0, None), (0, 20), (0, None), (0, 20), (0, None)]
free = minimize(misfit, start, jac=True, tol=1e-6)
fit = minimize(misfit, start, jac=True, tol=1e-6, bounds=box)
print(fit.message)
print("background without bounds:", free.x[4].round(3))
print("multipliers:", fit.multipliers.round(2))
print(certify(misfit, fit.x, jac=True, eps=1e-4, bounds=box).message)

# %%
# Error bars are those of the variables that no bound holds: ``hess_inv`` is what L-BFGS has learned
# of the inverse Hessian.  It is checked here against the Hessian by differences of the gradient.

bars = np.sqrt(np.diag(fit.hess_inv))
inside = fit.active == 0
steps = 1e-5 * np.eye(5)[inside]
hessian = [(misfit(fit.x + h)[1] - misfit(fit.x - h)[1])[inside] / 2e-5 for h in steps]
exact = np.zeros(5)
exact[inside] = np.sqrt(np.diag(np.linalg.inv(hessian)))
for row in zip(names, fit.x, bars, exact, strict=True):
    print("{:12} {:.3f} +- {:.3f} (exactly {:.3f})".format(*row))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(t, y, ".", color="0.6", label="data")
left.plot(t, model(fit.x), label="fit")
left.plot(t, fit.x[2] * np.exp(-fit.x[3] * t), "--", label="slow part")
left.legend()
left.set(xlabel="time", ylabel="signal")
right.errorbar(fit.x, range(5), xerr=exact, fmt="o", capsize=3)
right.axvline(0, color="C1", label="bound")
right.set_yticks(range(5), names)
right.legend()
plt.show()
