"""Restarted momentum: the algorithms of Li & Lin (2023)."""

from momentous.methods.restarted.algorithms import RAGD, RHB, AdaRAGD, AdaRHB
from momentous.methods.restarted.perturbed import PerturbedRAGD

__all__ = ["RAGD", "RHB", "AdaRAGD", "AdaRHB", "PerturbedRAGD"]
