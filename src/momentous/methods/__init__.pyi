"""The methods: one line each, in the order of their table."""

# A new method is a file, and a line here.  Its name for ``method=``, the table of methods, the
# pages, the scoreboard and the minimiser of Optimistix follow from it.

# ruff: isort: skip_file

from momentous.methods.safeguarded import Safeguarded as Safeguarded
from momentous.methods.restarted.adaptive import AdaRAGD as AdaRAGD
from momentous.methods.restarted.adaptive import AdaRHB as AdaRHB
from momentous.methods.restarted.fixed_radius import RAGD as RAGD
from momentous.methods.restarted.fixed_radius import RHB as RHB
from momentous.methods.restarted.perturbed import PerturbedRAGD as PerturbedRAGD
from momentous.methods.parameter_free.agd import ParameterFreeAGD as ParameterFreeAGD
from momentous.methods.parameter_free.heavy_ball import UniversalHeavyBall as UniversalHeavyBall
from momentous.methods.jin import JinAGD as JinAGD
from momentous.methods.guilty import ConvexUntilGuilty as ConvexUntilGuilty
from momentous.methods.classical.gradient_descent import GradientDescent as GradientDescent
from momentous.methods.classical.heuristic_agd import HeuristicAGD as HeuristicAGD
from momentous.methods.classical.conjugate_gradient import ConjugateGradient as ConjugateGradient
from momentous.methods.classical.lbfgs import LBFGS as LBFGS
from momentous.methods.classical.ssbroyden import SelfScaledBroyden as SelfScaledBroyden
