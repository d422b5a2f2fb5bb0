"""Restarted momentum: the four algorithms of Li & Lin (2023), and theirs with nothing given.

Two momentum iterations times rules for the radius that ends an epoch:

======================================  ==========================  ==========================
..                                      Nesterov (`NESTEROV`)       heavy ball (`HEAVY_BALL`)
======================================  ==========================  ==========================
the theory's radius B (`FixedRadius`)   `RAGD`, Algorithm 1         `RHB`, Algorithm 3
adaptive radius B0 (`AdaptiveRadius`)   `AdaRAGD`, Algorithm 2      `AdaRHB`, Algorithm 4
a radius without eps (`FreeRadius`)     `AdaRAGD` with nothing      `AdaRHB` with nothing
======================================  ==========================  ==========================
"""

from momentous.methods.restarted.adaptive import AdaRAGD, AdaRHB
from momentous.methods.restarted.fixed_radius import RAGD, RHB
from momentous.methods.restarted.perturbed import PerturbedRAGD

__all__ = ["RAGD", "RHB", "AdaRAGD", "AdaRHB", "PerturbedRAGD"]
