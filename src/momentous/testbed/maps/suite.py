"""The descent maps on which `accelerate` is compared with other accelerations."""

from functools import partial

from momentous.testbed.problem import MapProblem
from momentous.testbed.suite import Entry, split


def map_suite() -> list[Entry[MapProblem]]:
    """The maps in a fixed order, half of them held back from choosing defaults by."""
    # Here: they load scipy.special, which those who only compare functions need not wait for.
    from momentous.testbed.maps.alternating import sinkhorn, tensor_factors
    from momentous.testbed.maps.expectation import (
        factor_analysis,
        gaussian_mixture,
        latent_classes,
        lloyd,
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
    from momentous.testbed.maps.proximal import lasso, nonnegative_squares, sparse_logistic

    return split(
        {
            "mixture": [
                ("poisson-mixture-3", 3, poisson_mixture, 1000),
                ("gaussian-mixture-500x1-3", 9, partial(gaussian_mixture, 500, 1, 3), 1000),
                ("gaussian-mixture-2000x2-4", 24, partial(gaussian_mixture, 2000, 2, 4), 1000),
                ("gaussian-mixture-5000x5-6", 126, partial(gaussian_mixture, 5000, 5, 6), 500),
                ("latent-classes-1000x12-4", 52, partial(latent_classes, 1000, 12, 4), 1000),
                ("latent-classes-5000x20-6", 126, partial(latent_classes, 5000, 20, 6), 500),
            ],
            "k-means": [
                ("soft-means-1000x2-6", 12, partial(soft_means, 1000, 2, 6), 1000),
                ("soft-means-5000x8-12", 96, partial(soft_means, 5000, 8, 12, 2.0), 500),
                ("lloyd-2000x4-10", 40, partial(lloyd, 2000, 4, 10), 200),
            ],
            "factor-analysis": [
                ("factor-analysis-10-2", 30, partial(factor_analysis, 10, 2), 1000),
                ("factor-analysis-100-8", 900, partial(factor_analysis, 100, 8), 1000),
                ("student-200x10-1", 65, partial(student, 200, 10), 200),
            ],
            "nmf": [
                ("nmf-squared-20x15-3", 105, partial(nonnegative_factors, 20, 15, 3), 1000),
                ("nmf-squared-300x200-10", 5000, partial(nonnegative_factors, 300, 200, 10), 1000),
                ("nmf-kl-60x50-4", 440, partial(nonnegative_factors, 60, 50, 4, "kl"), 1000),
                ("nmf-kl-300x200-10", 5000, partial(nonnegative_factors, 300, 200, 10, "kl"), 300),
            ],
            "intensity": [
                ("deconvolution-200-2", 200, partial(deconvolution, 200), 1000),
                ("deconvolution-64x64-1.5", 4096, partial(deconvolution, 64, 1.5, True), 500),
                ("mixing-weights-500-60", 60, partial(mixing_weights, 500, 60), 1000),
            ],
            "majorise": [
                ("bradley-terry-50", 50, partial(bradley_terry, 50, 20), 1000),
                ("bradley-terry-1000", 1000, partial(bradley_terry, 1000, 20), 1000),
                ("scaling-40x2", 80, partial(scaling, 40), 1000),
                ("scaling-200x2", 400, partial(scaling, 200), 500),
                ("reweighted-500x20-1", 20, partial(reweighted, 500, 20), 1000),
                ("bounded-logistic-500x20", 21, partial(bounded_logistic, 500, 20), 1000),
                ("bounded-logistic-5000x100", 101, partial(bounded_logistic, 5000, 100), 500),
            ],
            "proximal": [
                ("lasso-100x200", 200, partial(lasso, 100, 200), 1000),
                ("lasso-500x1000", 1000, partial(lasso, 500, 1000), 1000),
                ("nonnegative-squares-300x200", 200, partial(nonnegative_squares, 300, 200), 1000),
                ("sparse-logistic-500x300", 300, partial(sparse_logistic, 500, 300), 1000),
            ],
            "alternating": [
                ("sinkhorn-50x40-0.02", 40, partial(sinkhorn, 50, 40), 1000),
                ("sinkhorn-300x300-0.01", 300, partial(sinkhorn, 300, 300, 0.01), 500),
                ("tensor-20-3-0.9", 180, partial(tensor_factors, 20, 3), 1000),
                ("tensor-50-5-0.9", 750, partial(tensor_factors, 50, 5), 1000),
            ],
        }
    )
