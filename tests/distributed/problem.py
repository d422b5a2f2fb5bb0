"""A robust regression whose rows, or whose columns, are spread over ranks: one function, all ways.

f(x) = sum over i of log(1 + (a_i x - b_i)^2 / 2), smooth and nonconvex.
"""

from __future__ import annotations

import numpy as np

from momentous.distributed import Ranks

ROWS, COLUMNS = 60, 150


class Regression:
    def __init__(self, rows: int = ROWS, columns: int = COLUMNS):
        random = np.random.default_rng(3)
        self.A = random.standard_normal((rows, columns)) / np.sqrt(rows)
        self.b = 3 * random.standard_normal(rows)
        self.start = np.linspace(-1, 1, columns)
        size = float(np.linalg.norm(self.A, 2))
        self.gradient_lipschitz, self.hessian_lipschitz = size**2, size**3

    def whole(self, x):
        return self._both(self.A, self.b, x)

    @staticmethod
    def _both(A, b, x):
        r = A @ x - b
        return float(np.log1p(r * r / 2).sum()), A.T @ (r / (1 + r * r / 2))

    def by_rows(self, ranks: Ranks):
        """The part of the sum over the rows of this rank."""
        mine = ranks.share(len(self.b))
        A, b = self.A[mine], self.b[mine]
        return lambda x: self._both(A, b, x)

    def columns(self, ranks: Ranks) -> slice:
        return ranks.share(len(self.start))

    def by_columns(self, ranks: Ranks):
        """The value of the whole, and the part of the gradient, for a part of x."""
        A = self.A[:, self.columns(ranks)]

        def fun(x):
            r = ranks.all_reduce(A @ x) - self.b
            return float(np.log1p(r * r / 2).sum()), A.T @ (r / (1 + r * r / 2))

        return fun

    def start_on(self, ranks: Ranks, layout: str) -> np.ndarray:
        return self.start if layout == "data" else self.start[self.columns(ranks)]

    def on(self, ranks: Ranks, layout: str):
        return self.by_rows(ranks) if layout == "data" else self.by_columns(ranks)
