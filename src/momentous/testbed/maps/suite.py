"""The descent maps on which `accelerate` is compared with other accelerations."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from momentous.testbed.maps.alternating import lloyd, sinkhorn, tensor_factors
from momentous.testbed.maps.expectation import (
    factor_analysis,
    gaussian_mixture,
    latent_classes,
    poisson_mixture,
    soft_means,
    student,
)
from momentous.testbed.maps.majorise import (
    bounded_logistic,
    bradley_terry,
    deconvolution,
    mixing_weights,
    nonnegative_factors,
    reweighted,
    scaling,
)
from momentous.testbed.maps.problem import MapProblem
from momentous.testbed.maps.proximal import lasso, nonnegative_squares, sparse_logistic

Factory = Callable[[], MapProblem]


@dataclass(frozen=True)
class MapEntry:
    """A map problem of the list, built only when it is needed."""

    family: str
    make: Factory
    held_back: bool  # not looked at when defaults were chosen
    maps: int  # so many plain maps at most set the goal


def split(families: dict[str, list[tuple[int, Factory]]], first: int = 0) -> list[MapEntry]:
    """Within a family every second problem is held back; every second family begins with one."""
    return [
        MapEntry(family, make, (first + number + place) % 2 == 1, maps)
        for number, (family, instances) in enumerate(families.items())
        for place, (maps, make) in enumerate(instances)
    ]


def map_suite() -> list[MapEntry]:
    """The maps in a fixed order, half of them held back from choosing defaults by."""
    return split(
        {
            "mixture": [
                (1000, poisson_mixture),
                (1000, partial(gaussian_mixture, 500, 1, 3)),
                (1000, partial(gaussian_mixture, 2000, 2, 4)),
                (500, partial(gaussian_mixture, 5000, 5, 6)),
                (1000, partial(latent_classes, 1000, 12, 4)),
                (500, partial(latent_classes, 5000, 20, 6)),
            ],
            "k-means": [
                (1000, partial(soft_means, 1000, 2, 6)),
                (500, partial(soft_means, 5000, 8, 12, 2.0)),
                (200, partial(lloyd, 2000, 4, 10)),
            ],
            "factor-analysis": [
                (1000, partial(factor_analysis, 10, 2)),
                (1000, partial(factor_analysis, 100, 8)),
                (200, partial(student, 200, 10)),
            ],
            "nmf": [
                (1000, partial(nonnegative_factors, 20, 15, 3)),
                (1000, partial(nonnegative_factors, 300, 200, 10)),
                (1000, partial(nonnegative_factors, 60, 50, 4, "kl")),
                (300, partial(nonnegative_factors, 300, 200, 10, "kl")),
            ],
            "intensity": [
                (1000, partial(deconvolution, 200)),
                (500, partial(deconvolution, 64, 1.5, True)),
                (1000, partial(mixing_weights, 500, 60)),
            ],
            "majorise": [
                (1000, partial(bradley_terry, 50, 20)),
                (1000, partial(bradley_terry, 1000, 20)),
                (1000, partial(scaling, 40)),
                (500, partial(scaling, 200)),
                (1000, partial(reweighted, 500, 20)),
                (1000, partial(bounded_logistic, 500, 20)),
                (500, partial(bounded_logistic, 5000, 100)),
            ],
            "proximal": [
                (1000, partial(lasso, 100, 200)),
                (1000, partial(lasso, 500, 1000)),
                (1000, partial(nonnegative_squares, 300, 200)),
                (1000, partial(sparse_logistic, 500, 300)),
            ],
            "alternating": [
                (1000, partial(sinkhorn, 50, 40)),
                (500, partial(sinkhorn, 300, 300, 0.01)),
                (1000, partial(tensor_factors, 20, 3)),
                (1000, partial(tensor_factors, 50, 5)),
            ],
        }
    )
