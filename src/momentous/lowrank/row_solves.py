"""Half a sweep: for every row the parameters that are best while the other side stays as it is."""

from __future__ import annotations

from typing import Literal

from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.objective import compiled_part, thread_count
from momentous.lowrank.plain_sweep import HalfStep, solve_plainly


class RowSolver:
    """For every row i a p_i that lowers ``G(p) = sum_j l(p.f_j + o_j, X_ij) + weights_i.p^2 / 2``.

    Squared loss: the minimiser, by one linear system.

    Logistic loss: Newton's step d, cut short where it goes too far.  With H the Hessian of G and R
    the largest |d.f_j|, ``G(p + t d) <= G(p) - t d'Hd + (e^(tR) - tR - 1)/R^2 d'Hd`` because
    |l'''| <= l'' (Bach [1]_, proposition 1).  So t = 1 lowers G as long as R <= 1.79, and
    t = log(1 + R)/R, where the bound is least, does for every R.  Bounds that hold everywhere, such
    as l'' <= 1/4 (Boehning & Lindsay [2]_) and tanh(z/2)/(2z) (Jaakkola & Jordan [3]_), do not
    need R, but their steps are shorter: what 60 sweeps with the first of them reach takes 26 and 11
    accelerated ones with the two, and 8 with this; with ridge 5 it is 19, 17 and 15 (MovieLens-100K
    twin, rank 10; `benchmarks/sweeps.py`).

    Solved for is the change of a row.  Where the entries and the penalty do not determine it, or
    hardly, a damping of 1e-10, relatively, makes it the shortest one.  With the squared loss the
    row itself is the shortest one, as long as G, by the sums at hand, is no higher there than at
    the current row.  So G does not rise, up to the rounding of these sums, however near to singular
    a system is.  A row without entries gets zeros.

    Rows are independent and their sums are taken in one order: the outcome does not depend on the
    number of threads.  Sums are in double precision.

    Parameters
    ----------
    groups : Compressed
        The entries by row, with values or labels.
    weights : array, (rows, parameters)
    threads : int, optional
        By default as many as this process may use.
    compiled : bool, optional
        By numba; by default where it is installed and works.
    loss : "squared" or "logistic", optional
        By default squared in a call without current parameters and logistic in one with them.

    References
    ----------
    .. [1] F. Bach, "Self-concordant analysis for logistic regression", Electron. J. Stat. 4 (2010).
    .. [2] D. Boehning, B. Lindsay, "Monotonicity of quadratic-approximation algorithms", Ann. Inst.
       Statist. Math. 40 (1988).
    .. [3] T. Jaakkola, M. Jordan, "Bayesian parameter estimation via variational methods", Stat.
       Comput. 10 (2000).
    """

    def __init__(
        self,
        groups: Compressed,
        weights: Floats,
        threads: int | None = None,
        compiled: bool | None = None,
        loss: Literal["squared", "logistic"] | None = None,
    ):
        self.groups, self.weights, self.threads = groups, weights, thread_count(threads)
        self.loss = loss
        kernels = compiled_part("row_kernels", compiled)
        self._solve = solve_plainly if kernels is None else kernels.solve_compiled

    def __call__(
        self,
        features: Floats,
        offsets: Floats | None = None,
        current: Floats | None = None,
        *,
        telling: bool = True,
    ) -> tuple[Floats, float]:
        """The solutions, and what the step tells about the objective.

        Parameters
        ----------
        features : array, (others, parameters)
            f.
        offsets : array, (others,), optional
            o, what is predicted without the row's parameters; by default nothing.
        current : array, (rows, parameters), optional
            The parameters now; by default zeros.
        telling : bool
            False: the losses are not wanted, which saves their logarithms.

        Returns
        -------
        solutions : array, (rows, parameters)
        told : float
            Squared loss: the sum of the least G.  Logistic loss: the sum of the losses at
            ``current``.
        """
        loss = self.loss or ("squared" if current is None else "logistic")
        asked = HalfStep(
            self.groups, self.weights, features, offsets, current, loss == "logistic", telling
        )
        solutions, told = self._solve(asked, self.threads)
        return solutions, told
