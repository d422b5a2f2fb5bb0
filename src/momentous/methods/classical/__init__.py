"""The classical methods: gradient descent, conjugate gradients, restarted AGD, quasi-Newton."""

from momentous.methods.classical.conjugate_gradient import ConjugateGradient
from momentous.methods.classical.gradient_descent import GradientDescent
from momentous.methods.classical.heuristic_agd import HeuristicAGD
from momentous.methods.classical.lbfgs import LBFGS
from momentous.methods.classical.ssbroyden import SelfScaledBroyden

__all__ = ["LBFGS", "ConjugateGradient", "GradientDescent", "HeuristicAGD", "SelfScaledBroyden"]
