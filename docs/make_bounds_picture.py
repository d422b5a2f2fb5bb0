"""Draw docs/how-to/bounds.png: a run in a box, and the size of its face.

python docs/make_bounds_picture.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from momentous import iterate, minimize


def f(x):
    a, b = x
    value = (1 - a) ** 2 + 5 * (b - a * a) ** 2
    return value, np.array([-2 * (1 - a) - 20 * a * (b - a * a), 10 * (b - a * a)])


def main():
    box = [(-1.5, 0.8), (0.3, 1.6)]
    run = iterate(f, [-1.4, 1.5], jac=True, bounds=box, tol=1e-9)
    path = np.array([[-1.4, 1.5], *(step.x for step in run)])
    size = 60
    rng = np.random.default_rng(0)
    A = rng.standard_normal((size, size))
    Q, c = A @ A.T / size + 0.01 * np.eye(size), rng.standard_normal(size)
    many = minimize(lambda x: (x @ Q @ x / 2 + c @ x, Q @ x + c), np.zeros(size), jac=True,
                    bounds=(-0.5, 0.5), tol=1e-9)  # fmt: skip
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    u, v = np.meshgrid(np.linspace(-2, 1.4, 200), np.linspace(0, 2, 200))
    left.contour(u, v, (1 - u) ** 2 + 5 * (v - u * u) ** 2, np.geomspace(0.05, 60, 14),
                 colors="0.7", linewidths=0.7)  # fmt: skip
    (a, b), (p, q) = box
    left.plot([a, b, b, a, a], [p, p, q, q, p], color="C1", label="bounds")
    left.plot(*path.T, "o-", color="C0", markersize=3, label="x")
    left.set(title="two variables", xlabel="x[0]", ylabel="x[1]")
    left.legend(loc="lower left")
    right.step(many.trace["nit"], many.trace["active"], color="C1", where="post")
    right.set(title="60 variables", xlabel="iteration", ylabel="variables at bounds")
    twin = right.twinx()
    twin.semilogy(many.trace["nit"], many.trace["grad_norm"], color="C0")
    twin.set_ylabel("norm of x - P(x - g)", color="C0")
    figure.savefig(Path(__file__).parent / "how-to" / "bounds.png", dpi=110)


if __name__ == "__main__":
    main()
