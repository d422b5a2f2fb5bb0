"""
scikit-learn's LogisticRegression
=================================

`LogisticRegression` calls ``scipy.optimize.minimize`` with ``method="L-BFGS-B"``.  SciPy takes a
function in place of that name, and `momentous.minimize` is one: scikit-learn stays as it is.
"""

from unittest.mock import patch

import matplotlib.pyplot as plt
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import momentous

features, label = load_breast_cancer(return_X_y=True)
features = scale(features)


def by_momentous(fun, x0, *, method, **arguments):
    return minimize(fun, x0, method=momentous.minimize, **arguments)


# %%
# The same fit twice: with SciPy's method, and with ours.
settings = {"tol": 1e-8, "max_iter": 1000}
usual = LogisticRegression(**settings).fit(features, label)
with patch("scipy.optimize.minimize", by_momentous):
    ours = LogisticRegression(**settings).fit(features, label)
print("iterations:", usual.n_iter_[0], "by SciPy,", ours.n_iter_[0], "by momentous")
print(f"accuracy: {usual.score(features, label):.4f} and {ours.score(features, label):.4f}")

# %%
plt.plot(usual.coef_[0], ours.coef_[0], "o")
plt.axline((0, 0), slope=1, color="0.6", zorder=0)
plt.gca().set(xlabel="coefficients by SciPy's method", ylabel="by momentous")
plt.show()
