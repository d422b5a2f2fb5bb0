"""The objective of matrix completion: a loss over the observed entries, as a function of x."""

from __future__ import annotations

import math
import numbers
import operator
import os
import warnings
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.losses import find_loss
from momentous.lowrank.plain import PlainPass, products
from momentous.lowrank.start import svd_start

GRAM_BLOCK = 4096  # rows whose products are added up in the factor's own precision


class LowRankObjective:
    """Fit a matrix of rank r to observed entries: value and gradient in one pass over them.

    With N entries X_ij, factors U (m x r) and V (n x r) and ``D = U'U - V'V``

        ``F(U, V) = (1/N) sum_{ij} l(u_i . v_j, X_ij) + (balance/2N) |D|_F^2
        + (ridge/2N) (|U|^2 + |V|^2)``

    where l is ``(z - X)^2 / 2`` (squared) or ``log(1 + exp(-X z))`` (logistic, with labels +-1 for
    X). With E the sparse matrix of slopes, ``grad_U = (E V + 2 balance U D + ridge U) / N`` and
    ``grad_V = (E' U - 2 balance V D + ridge V) / N``. With the defaults these are the two problems
    of [1]_.

    A point x is one flat vector: U row by row, then V.

    Parameters
    ----------
    ratings : Ratings
        For the logistic loss labels +1 and -1, as `Ratings.signs` makes them.
    rank : int
        From 1 to ``min(ratings.shape)``.
    loss : "squared" or "logistic"
    balance : float
        Weight of the term that keeps the factors of equal size; it is 0 at every minimiser.
    ridge : float
        Weight of the squared factors.
    dtype : float32 or float64, optional
        Of the computation; by default that of the ratings. Sums over all entries that make the
        value are in double precision in any case.
    threads : int, optional
        Of the compiled pass; by default as many as this process may use. The same number gives the
        same bits on the same machine.
    compiled : bool, optional
        True insists on the compiled pass, which needs numba; False takes the one in NumPy. By
        default the compiled one where numba is installed.

    Attributes
    ----------
    dimension : int
        ``(m + n) r``, the length of x.

    References
    ----------
    .. [1] Li & Lin, Restarted nonconvex accelerated gradient descent, JMLR 24 (2023), section 4.

    Examples
    --------
    >>> from momentous import minimize
    >>> from momentous.lowrank import LowRankObjective, Ratings
    >>> ratings = Ratings([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [1.0, 2.0, 2.0, 4.0, 3.0])
    >>> problem = LowRankObjective(ratings, rank=1)
    >>> result = minimize(problem.value_and_gradient, problem.start(), jac=True, tol=1e-9)
    >>> problem.predict(result.x, 2, 1).round(4)
    np.float64(6.0)
    """

    def __init__(
        self,
        ratings: Ratings,
        rank: int,
        loss: Literal["squared", "logistic"] = "squared",
        balance: float = 1.0,
        ridge: float = 0.0,
        dtype: Any = None,
        threads: int | None = None,
        *,
        compiled: bool | None = None,
    ):
        if not isinstance(ratings, Ratings):
            raise TypeError(f"expected Ratings, not {type(ratings).__name__}")
        self.rank = _rank(rank, ratings.shape)
        self.loss = find_loss(loss).name
        find_loss(loss).check(ratings)
        self.balance, self.ridge = _weight(balance, "balance"), _weight(ridge, "ridge")
        self.dtype = np.dtype(ratings.dtype if dtype is None else dtype)
        self.ratings = ratings.astype(self.dtype)
        # Groups are the longer side: the shorter factor is the one that must fit the caches, and
        # of whose gradient each thread has a copy.
        self._by_row = ratings.shape[0] >= ratings.shape[1]
        groups = self.ratings.by_row if self._by_row else self.ratings.by_col
        kernels = compiled_part("kernels", compiled)
        self._pass = (
            PlainPass(groups, find_loss(loss))
            if kernels is None
            else kernels.CompiledPass(groups, find_loss(loss), thread_count(threads))
        )

    @property
    def dimension(self) -> int:
        """Length of x."""
        return sum(self.ratings.shape) * self.rank

    @property
    def threads(self) -> int:
        """Threads in use; 1 where the pass is not compiled."""
        return int(self._pass.threads)

    @property
    def compiled(self) -> bool:
        """Whether the pass over the entries is compiled."""
        return not isinstance(self._pass, PlainPass)

    def __repr__(self) -> str:
        how = f"compiled, {self.threads} threads" if self.compiled else "plain"
        return (
            f"<LowRankObjective {self.loss}, rank {self.rank}, {self.dtype}, {how}, "
            f"of {self.ratings!r}>"
        )

    # --- points -----------------------------------------------------------------------------------

    def start(self) -> Floats:
        """The balanced factors of the truncated SVD (of the labels, for the logistic loss)."""
        return self._start.copy()

    @cached_property
    def _start(self) -> Floats:
        return self.join(*svd_start(self.ratings, self.rank))

    def split(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """The factors (U, V) in x, as read-only views where x has the right dtype."""
        x = np.ascontiguousarray(x, dtype=self.dtype)
        if x.shape != (self.dimension,):
            m, n = self.ratings.shape
            raise ValueError(
                f"x must be a flat vector of length ({m} + {n}) * {self.rank} = {self.dimension}, "
                f"not of shape {x.shape}"
            )
        U, V = self._factors(x)
        U.flags.writeable = V.flags.writeable = False
        return U, V

    def join(self, U: ArrayLike, V: ArrayLike) -> Floats:
        """The point x that has these factors."""
        x = np.empty(self.dimension, self.dtype)
        for part, factor, name in zip(self._factors(x), (U, V), "UV", strict=True):
            if np.shape(factor) != part.shape:
                raise ValueError(f"{name} must be of shape {part.shape}, not {np.shape(factor)}")
            part[...] = factor
        return x

    def predict(self, x: ArrayLike, rows: ArrayLike, cols: ArrayLike) -> Floats:
        """``u_i . v_j`` for each pair: a rating, or for the logistic loss the log odds of +1."""
        U, V = self.split(x)
        return products(U, V, rows, cols)[()]

    def _factors(self, x: Floats) -> tuple[Floats, Floats]:
        cut = self.ratings.shape[0] * self.rank
        return x[:cut].reshape(-1, self.rank), x[cut:].reshape(-1, self.rank)

    # --- the function -----------------------------------------------------------------------------

    def value(self, x: ArrayLike) -> float:
        """F(x); not finite, without a warning, where x is so large that numbers overflow."""
        U, V = self.split(x)
        with np.errstate(over="ignore", invalid="ignore"):
            gram_U, gram_V = _gram(U), _gram(V)
            losses = self._pass.value(*((U, V) if self._by_row else (V, U)))
            return self._sum(losses, gram_U, gram_V)

    def gradient(self, x: ArrayLike) -> Floats:
        """Gradient of F at x."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: ArrayLike) -> tuple[float, Floats]:
        """F and its gradient at x, for ``minimize(..., jac=True)``."""
        U, V = self.split(x)
        gradient = np.empty(self.dimension, self.dtype)
        grad_U, grad_V = self._factors(gradient)
        scale = 1.0 / self.ratings.nnz
        with np.errstate(over="ignore", invalid="ignore"):
            gram_U, gram_V = _gram(U), _gram(V)
            pull = 2.0 * self.balance * (gram_U - gram_V)
            keep = self.ridge * np.eye(self.rank)
            np.matmul(U, (scale * (keep + pull)).astype(self.dtype), out=grad_U)
            np.matmul(V, (scale * (keep - pull)).astype(self.dtype), out=grad_V)
            if self._by_row:
                losses = self._pass.add_gradient(U, V, scale, grad_U, grad_V)
            else:
                losses = self._pass.add_gradient(V, U, scale, grad_V, grad_U)
            return self._sum(losses, gram_U, gram_V), gradient

    def _sum(
        self, losses: float, gram_U: NDArray[np.float64], gram_V: NDArray[np.float64]
    ) -> float:
        imbalance = float(np.sum((gram_U - gram_V) ** 2))
        squares = float(np.trace(gram_U) + np.trace(gram_V))
        penalty = 0.5 * (self.balance * imbalance + self.ridge * squares)
        return (losses + penalty) / self.ratings.nnz


def _gram(factor: Floats) -> NDArray[np.float64]:
    """``factor' factor``, with long sums in double precision: the imbalance is a difference."""
    rows, rank = factor.shape
    whole = rows - rows % GRAM_BLOCK
    blocks = factor[:whole].reshape(-1, GRAM_BLOCK, rank)
    gram = np.sum(blocks.transpose(0, 2, 1) @ blocks, axis=0, dtype=np.float64)
    rest = factor[whole:]
    total: NDArray[np.float64] = gram + rest.T @ rest
    return total


# --- what is accepted -----------------------------------------------------------------------------


def _rank(rank: Any, shape: tuple[int, int]) -> int:
    try:
        r = operator.index(rank)
    except TypeError:
        raise TypeError(f"the rank must be a whole number, not {rank!r}") from None
    if not 1 <= r <= min(shape):
        raise ValueError(
            f"the rank must be from 1 to {min(shape)}, the smaller side of a {shape[0]} x "
            f"{shape[1]} matrix, not {r}"
        )
    return r


def _weight(weight: float, what: str) -> float:
    if not (math.isfinite(weight) and weight >= 0.0):
        raise ValueError(f"{what} must be a finite number, 0 or more, not {weight!r}")
    return float(weight)


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, whole: bool = False
) -> None:
    """Raise an error that names the parameter unless it is a finite number from low to high."""
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name}={value!r} must be a {'whole ' if whole else ''}number")
    if not (math.isfinite(value) and low <= float(value) <= high):
        what = f">= {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name}={value!r} must be a finite number {what}")


def thread_count(threads: Any) -> int:
    if threads is None:
        allowed = getattr(os, "sched_getaffinity", None)
        return len(allowed(0)) if allowed else os.cpu_count() or 1
    try:
        count = operator.index(threads)
    except TypeError:
        raise TypeError(f"threads must be a whole number, not {threads!r}") from None
    if count < 1:
        raise ValueError(f"threads must be 1 or more, not {count}")
    return count


def compiled_part(module: str, compiled: bool | None) -> Any:
    """The file of that name in this room, which needs numba; None where NumPy takes its place."""
    if compiled is not False:
        try:
            return import_module(f"momentous.lowrank.{module}")
        except ImportError as error:
            if compiled:
                raise ImportError(
                    f"the compiled pass needs numba ({error}); install it with: "
                    'pip install "momentous[app]", or take compiled=False'
                ) from error
            if find_spec("numba"):  # installed, but not for this Python or this NumPy
                warnings.warn(
                    f"numba cannot be used ({error}); going on with the slower pass in NumPy",
                    RuntimeWarning,
                    stacklevel=3,
                )
    return None
