"""The estimators, in the manner of scikit-learn."""

from momentous.lowrank.estimators.implicit_mf import ImplicitMF
from momentous.lowrank.estimators.imputer import LowRankImputer
from momentous.lowrank.estimators.matrix_completion import MatrixCompletion
from momentous.lowrank.estimators.one_bit import OneBitMatrixCompletion

__all__ = ["ImplicitMF", "LowRankImputer", "MatrixCompletion", "OneBitMatrixCompletion"]
