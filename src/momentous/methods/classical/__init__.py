"""The classical methods: gradient descent, conjugate gradients, restarted AGD, L-BFGS."""

from momentous.methods.classical.conjugate_gradient import ConjugateGradient
from momentous.methods.classical.gradient_descent import GradientDescent
from momentous.methods.classical.heuristic_agd import HeuristicAGD
from momentous.methods.classical.lbfgs import LBFGS

__all__ = ["LBFGS", "ConjugateGradient", "GradientDescent", "HeuristicAGD"]
