"""Lists of problems: that on which methods are compared, and a small one for tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Generic, TypeVar

import numpy as np

from momentous.testbed.chains import carmon_chain, nested_chain, second_order_chain
from momentous.testbed.classics import dixon_price, powell, qing, rosenbrock
from momentous.testbed.cutest import LISTED
from momentous.testbed.cutest import cutest as load
from momentous.testbed.fields import bratu, ginzburg_landau, minimal_surface, van_der_pol
from momentous.testbed.fits import bundle_adjustment, kernel_logistic
from momentous.testbed.losses import LOSSES, flat_saddle, robust_regression, saddle, separable
from momentous.testbed.matrices import (
    factorisation,
    matrix_completion,
    matrix_sensing,
    phase_retrieval,
    robust_pca,
)
from momentous.testbed.networks import autoencoder, mlp_classifier
from momentous.testbed.problem import MapProblem, Problem
from momentous.testbed.transforms import rotated, scaled, shifted

P = TypeVar("P", Problem, MapProblem)
Instance = tuple[str, int, Callable[[], Problem]]
"""Name, dimension, and how to build it."""


@dataclass(frozen=True)
class Entry(Generic[P]):
    """A problem of the list, built only when it is needed: some have a million variables."""

    name: str
    family: str  # what it is an instance of: "rosenbrock", "chain", "network", "cutest", ...
    dimension: int
    make: Callable[[], P]
    held_back: bool  # not looked at when defaults were chosen; see `suite` for the rule
    maps: int | None = None  # of a descent map: so many plain maps at most set the goal


def suite(max_dimension: int | None = None, *, cutest: bool = False) -> list[Entry[Problem]]:
    """The problems on which methods are compared, in a fixed order.

    Half of them are held back: whoever chooses a default method or a default parameter looks at the
    other half only, and the held-back half then says what the choice is worth. The split follows a
    rule that was fixed before methods were compared: within each family, in the order of the list,
    every second problem is held back; the first family begins with one that is not, the next with
    one that is, and so on in turn, so that the largest instances are shared out, too. The CUTEst
    problems (extra ``cutest``), if asked for, are one more family in alphabetical order.
    ``max_dimension`` is applied after the split and does not move it.
    """
    families = _families()
    if cutest:
        families["cutest"] = [(name, n, partial(load, name)) for name, (n, *_) in LISTED.items()]
    return up_to(max_dimension, split(families))


def halves(entries: Iterable[Entry[P]]) -> tuple[list[Entry[P]], list[Entry[P]]]:
    """Those to choose by, and those held back."""
    entries = list(entries)
    return [e for e in entries if not e.held_back], [e for e in entries if e.held_back]


def up_to(max_dimension: int | None, entries: Iterable[Entry[P]]) -> list[Entry[P]]:
    """The entries with at most so many variables."""
    return [e for e in entries if max_dimension is None or e.dimension <= max_dimension]


def split(
    families: Mapping[
        str, Sequence[tuple[str, int, Callable[[], P]] | tuple[str, int, Callable[[], P], int]]
    ],
) -> list[Entry[P]]:
    """Within a family every second problem is held back; every second family begins with one."""
    return [
        Entry(name, family, dimension, make, (number + place) % 2 == 1, *maps)
        for number, (family, instances) in enumerate(families.items())
        for place, (name, dimension, make, *maps) in enumerate(instances)
    ]


def _families() -> dict[str, list[Instance]]:
    """All but CUTEst; names and dimensions are spelled out, since nothing is built here."""
    sizes = (10, 100, 1000, 10_000, 100_000, 1_000_000)
    fall = np.logspace(0.0, -3.0, 50)  # curvatures that call for acceleration
    weights = np.logspace(0.0, -4.0, 500)
    return {
        "rosenbrock": [(f"rosenbrock-{d}", d, partial(rosenbrock, d)) for d in sizes],
        "dixon-price": [(f"dixon-price-{d}", d, partial(dixon_price, d)) for d in sizes],
        "powell": [(f"powell-{d}", d, partial(powell, d)) for d in (8, *sizes[1:])],
        "qing": [(f"qing-{d}", d, partial(qing, d)) for d in sizes],
        "regression": [
            (f"regression-{loss}-{m}x{d}", d, partial(robust_regression, loss, m, d))
            for m, d in ((60, 30), (500, 300))
            for loss in ("geman-mcclure", "welsch", "cauchy", "tanh-squared", "log-cosh")
        ],
        "phase-retrieval": [
            (f"phase-retrieval-{d}", d, partial(phase_retrieval, d, m))
            for d, m in ((8, 60), (50, 400), (200, 1600))
        ],
        "factorisation": [
            ("factorisation-8-2", 16, factorisation),
            ("factorisation-60-4", 240, partial(factorisation, 60, 4)),
        ],
        "matrix-sensing": [
            ("matrix-sensing-6x5-2", 22, matrix_sensing),
            ("matrix-sensing-20x15-3", 105, partial(matrix_sensing, (20, 15), 3, 500)),
        ],
        "matrix-completion": [
            ("matrix-completion-12x10-2", 44, matrix_completion),
            ("matrix-completion-80x60-4", 560, partial(matrix_completion, (80, 60), 4, 0.3)),
            ("matrix-completion-200x150-8", 2800, partial(matrix_completion, (200, 150), 8, 0.2)),
        ],
        "robust-pca": [
            ("robust-pca-welsch-10x8-2", 36, robust_pca),
            ("robust-pca-cauchy-80x60-4", 560, partial(robust_pca, (80, 60), 4, "cauchy")),
        ],
        "saddle": [
            ("saddle-3+2-aside", 5, partial(_aside, saddle, 3, 2)),
            ("flat-saddle-2+1-aside", 3, partial(_aside, flat_saddle, 2, 1)),
            ("flat-saddle-50+50-mixed-aside", 100, partial(_aside, flat_saddle, 50, 50, 1.0, fall)),
            ("saddle-50+50-mixed-aside", 100, partial(_aside, saddle, 50, 50, 1.0, fall)),
        ],
        "chain": [
            ("carmon-chain-20", 20, partial(carmon_chain, 20)),
            ("second-order-chain-20-0.1", 21, partial(second_order_chain, 20, 0.1)),
            ("nested-chain-4-0.03", 17, partial(nested_chain, 4, 0.03)),
            ("carmon-chain-100", 100, partial(carmon_chain, 100)),
            ("second-order-chain-100-0.01", 101, partial(second_order_chain, 100, 0.01)),
            ("nested-chain-20-0.001", 381, partial(nested_chain, 20, 0.001)),
        ],
        "separable": [
            (f"separable-{loss}-500", 500, partial(separable, loss, weights, 1.0))
            for loss in ("geman-mcclure", "welsch", "cosine", "flat-bottom")
        ],
        "network": [
            ("mlp-wine-13x8x3", 139, partial(mlp_classifier, "wine", (8,))),
            ("mlp-breast-cancer-30x16x2", 530, partial(mlp_classifier, "breast-cancer", (16,))),
            ("mlp-digits-64x32x16x10", 2778, partial(mlp_classifier, "digits", (32, 16))),
            ("autoencoder-wine-13x8x3x8x13", 288, partial(autoencoder, "wine", (8, 3, 8))),
            (
                "autoencoder-breast-cancer-30x16x4x16x30",
                1154,
                partial(autoencoder, "breast-cancer", (16, 4, 16)),
            ),
            ("autoencoder-digits-64x32x8x32x64", 4744, partial(autoencoder, "digits", (32, 8, 32))),
            ("mlp-digits-64x10", 650, partial(mlp_classifier, "digits", ())),  # softmax regression
            ("mlp-wine-13x24x3", 411, partial(mlp_classifier, "wine", (24,))),
        ],
        "fit": [
            ("kernel-logistic-300", 300, kernel_logistic),
            ("bundle-adjustment-8x40", 176, bundle_adjustment),
        ],
        "field": [
            ("van-der-pol-100", 300, van_der_pol),
            ("minimal-surface-60", 3600, partial(minimal_surface, 60)),
            ("bratu-30", 900, bratu),
            ("ginzburg-landau-16", 512, ginzburg_landau),
            ("ginzburg-landau-32", 2048, partial(ginzburg_landau, 32)),
        ],
    }


def _aside(factory: Callable[..., Problem], *arguments: object) -> Problem:
    """The problem with its start moved a little off the saddle, where there is no gradient."""
    problem = factory(*arguments)
    step = 0.1 * np.random.default_rng(0).standard_normal(problem.dimension)
    return replace(problem, name=f"{problem.name}-aside", start=problem.start + step)


# --- the small list -------------------------------------------------------------------------------


def problems(max_dimension: int | None = None) -> list[Problem]:
    """Small instances of every family, to cross with methods and array libraries."""
    return [p for p in _instances() if max_dimension is None or p.dimension <= max_dimension]


def with_constants(max_dimension: int | None = None) -> list[Problem]:
    """Those of `problems` with global L and rho that are known to be bounded below."""
    return [p for p in problems(max_dimension) if p.has_constants]


@cache
def _instances() -> tuple[Problem, ...]:
    return (
        *(separable(loss) for loss in LOSSES.values()),
        robust_regression(),
        robust_regression("sigmoid-squared", samples=20, dimension=5),
        saddle(3, 2),
        saddle(2, 3, curvature=2.0, negative_curvature=(1.0, 0.1, 0.01)),
        flat_saddle(2, 1),
        carmon_chain(6),
        second_order_chain(8, 0.1),
        nested_chain(4, 0.03),
        factorisation(),
        matrix_sensing(),
        matrix_completion(),
        robust_pca(),
        phase_retrieval(),
        rosenbrock(2),
        rosenbrock(10),
        dixon_price(6),
        powell(8),
        qing(10),
        rotated(separable("cosine", weights=(1.0, 0.2, 0.05, 0.01), scales=1.0)),
        scaled(second_order_chain(4, 0.5), value_scale=10.0, length_scale=0.5),
        shifted(separable("geman-mcclure", weights=1.0, scales=(1.0, 0.3)), 1000.0),
    )
