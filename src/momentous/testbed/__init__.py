"""Smooth test functions with known constants, for any array library.

Every factory returns a `Problem`: value, gradient, often exact Hessian products, a start, and what
is known of the Lipschitz constants L and rho and of the minimum. The functions take flat vectors of
NumPy, PyTorch, JAX, CuPy or any other library of the array API standard, and keep their dtype and
device. Only the problems of CUTEst are for NumPy alone. `suite` lists what methods are compared on.
"""

from momentous.testbed.chains import carmon_chain, nested_chain, second_order_chain
from momentous.testbed.classics import dixon_price, powell, qing, rosenbrock
from momentous.testbed.cutest import cutest, cutest_names
from momentous.testbed.fields import bratu, ginzburg_landau, minimal_surface, van_der_pol
from momentous.testbed.fits import bundle_adjustment, kernel_logistic
from momentous.testbed.losses import (
    LOSSES,
    Loss,
    flat_saddle,
    generalised_linear,
    robust_regression,
    saddle,
    separable,
)
from momentous.testbed.matrices import (
    factorisation,
    matrix_completion,
    matrix_sensing,
    phase_retrieval,
    robust_pca,
)
from momentous.testbed.networks import autoencoder, mlp_classifier
from momentous.testbed.problem import Problem
from momentous.testbed.suite import Entry, halves, problems, suite, with_constants
from momentous.testbed.transforms import rotated, scaled, shifted

__all__ = [
    "LOSSES", "Entry", "Loss", "Problem", "autoencoder", "bratu", "bundle_adjustment",
    "carmon_chain", "cutest", "cutest_names", "dixon_price", "factorisation", "flat_saddle",
    "generalised_linear", "ginzburg_landau", "halves", "kernel_logistic", "matrix_completion",
    "matrix_sensing", "minimal_surface", "mlp_classifier", "nested_chain", "phase_retrieval",
    "powell", "problems", "qing", "robust_pca", "robust_regression", "rosenbrock", "rotated",
    "saddle", "scaled", "second_order_chain", "separable", "shifted", "suite", "van_der_pol",
    "with_constants",
]  # fmt: skip
