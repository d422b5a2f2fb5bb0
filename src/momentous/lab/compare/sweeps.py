"""The descent maps under comparison: those of the testbed, and sweeps over low-rank factors."""

from collections.abc import Callable
from functools import partial

import numpy as np

from momentous.lowrank import LowRankObjective, Ratings, Sweep
from momentous.testbed.maps import MapProblem, map_suite
from momentous.testbed.problem import Rng, Vector
from momentous.testbed.suite import Entry, split, up_to

SMALL = "small"  # 300 x 200 with a fifth of the entries; other names are those of twins


def compared_maps(max_dimension: int | None = None) -> list[Entry[MapProblem]]:
    """All of them, in a fixed order; sweeps last."""
    few = partial(sweep, SMALL, 5)
    many = partial(sweep, "ml-100k", 10)
    sweeps: list[tuple[str, int, Callable[[], MapProblem], int]] = [
        ("sweep-squared-small-5-0", 2500, partial(few, "squared", 0.0), 400),
        ("sweep-squared-small-5-2", 1000, partial(few, "squared", 2.0), 400),
        ("sweep-logistic-small-5-1", 2500, partial(few, "logistic", 1.0), 400),
        ("sweep-squared-ml-100k-10-0", 26250, partial(many, "squared", 0.0), 400),
        ("sweep-squared-ml-100k-10-5", 9430, partial(many, "squared", 5.0), 400),
        ("sweep-logistic-ml-100k-10-5", 26250, partial(many, "logistic", 5.0), 200),
        ("sweep-implicit-ml-100k-10-5", 9430, partial(many, "implicit", 5.0), 200),
    ]
    return up_to(max_dimension, [*map_suite(), *split({"sweep": sweeps})])


def sweep(data: str, rank: int, loss: str, ridge: float) -> MapProblem:
    """A `Sweep`: alternating least squares for quadratic losses, Newton's steps for others.

    The entries are those of a small matrix of this rank with noise, or of the twin of a data set.
    """
    ratings = _small(rank) if data == SMALL else Ratings.twin(data)
    if loss != "squared":
        ratings = ratings.signs() if loss == "logistic" else ratings
    map_of = Sweep(LowRankObjective(ratings, rank, loss, 0.0, ridge, threads=1))
    start = map_of.begin(map_of.objective.start())

    def both(x: Vector) -> tuple[Vector, float]:
        image, value = map_of(x.reshape(start.shape))
        return np.ravel(image), float(value)

    return MapProblem(
        name=f"sweep-{loss}-{data}-{rank}-{ridge:g}",
        description="a sweep over the two factors of a low-rank matrix",
        start=np.ravel(start),
        step_and_value=both,
    )


def _small(rank: int, rng: Rng = 0) -> Ratings:
    rng = np.random.default_rng(rng)
    rows, columns = np.nonzero(rng.random((300, 200)) < 0.2)
    scales = np.logspace(0, -1, rank)
    U, V = rng.standard_normal((300, rank)) * scales, rng.standard_normal((200, rank))
    values = np.sum(U[rows] * V[columns], axis=1) + 0.1 * rng.standard_normal(rows.size)
    return Ratings(rows, columns, values, (300, 200))
