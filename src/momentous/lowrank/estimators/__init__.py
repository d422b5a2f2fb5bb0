"""The estimators, in the manner of scikit-learn."""

from momentous.lowrank.estimators.files import load
from momentous.lowrank.estimators.implicit_mf import ImplicitMF
from momentous.lowrank.estimators.imputer import LowRankImputer
from momentous.lowrank.estimators.matrix_completion import MatrixCompletion
from momentous.lowrank.estimators.one_bit import OneBitMatrixCompletion
from momentous.lowrank.estimators.pca import PCA

__all__ = [
    "PCA",
    "ImplicitMF",
    "LowRankImputer",
    "MatrixCompletion",
    "OneBitMatrixCompletion",
    "load",
]
