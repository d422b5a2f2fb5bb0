"""A default fit where most rows and columns have one entry: CPU seconds, and the held-out error.

The data have the shape of Book-Crossing: 78,000 users, 186,000 books, 381,000 ratings from 1 to 10,
of which 28,000 users and 130,000 books have one.  A tenth is held out.  Kernels are compiled, or
loaded, before.

    OMP_NUM_THREADS=1 python benchmarks/short_rows.py [--rank 10]

On a shared core, rank 10: 3.8 CPU seconds with learned priors, 4.4 with the fixed ridge (9.0 and
15.2 where each row was solved by a system of the rank's size).  With learned priors a third of it
is the solution of rows, the rest are passes over arrays as large as the factors.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

from momentous.lowrank import MatrixCompletion, Ratings

USERS, BOOKS, COUNT = 78_000, 186_000, 390_000  # before repeated pairs go


def long_tail(rng: np.random.Generator, size: int) -> np.ndarray:
    """Who has the entries: everybody one, the rest by a power law."""
    weights = 1.0 / (np.arange(size) + 10.0)
    more = rng.choice(size, COUNT - size, p=weights / weights.sum())
    return rng.permutation(np.concatenate([np.arange(size), more]))


def twin(seed: int = 0) -> Ratings:
    """Ratings of rank 12 with biases and noise."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(long_tail(rng, USERS) * BOOKS + long_tail(rng, BOOKS))
    rows, cols = np.divmod(pairs, BOOKS)
    decay = 0.9 ** np.arange(12)
    U, V = (rng.standard_normal((size, 12)) * decay for size in (USERS, BOOKS))
    values = 7.6 + 0.8 * rng.standard_normal(USERS)[rows] + 0.5 * rng.standard_normal(BOOKS)[cols]
    values += 0.25 * np.einsum("ij,ij->i", U[rows], V[cols])
    values += 1.2 * rng.standard_normal(rows.size)
    return Ratings(rows, cols, np.clip(np.rint(values), 1.0, 10.0), (USERS, BOOKS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=10)
    given = parser.parse_args()
    known, held_out = twin().split(0.1)
    for ridge in (None, "fixed"):
        estimator = MatrixCompletion(given.rank, ridge=ridge)
        estimator.fit(known.where(known.rows < 2000))
        before = process_time()
        estimator.fit(known)
        cpu = process_time() - before
        errors = np.clip(estimator.predict(held_out), 1.0, 10.0) - held_out.values
        error = np.sqrt(np.mean(errors**2))
        print(f"ridge {ridge}: {cpu:.1f} CPU s, {estimator.n_iter_} sweeps, held out {error:.4f}")


if __name__ == "__main__":
    main()
