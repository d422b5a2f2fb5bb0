"""A model in a file as the estimator that it is for."""

from __future__ import annotations

import os

from momentous.lowrank.estimators.base import BaseCompletion
from momentous.lowrank.estimators.implicit_mf import ImplicitMF
from momentous.lowrank.estimators.matrix_completion import MatrixCompletion
from momentous.lowrank.estimators.one_bit import OneBitMatrixCompletion
from momentous.lowrank.model import load_model


def load(path: str | os.PathLike[str]) -> BaseCompletion:
    """Read a fitted estimator that `save`, or the command ``momentous fit``, has written.

    Which estimator it is, the loss of the model says: `OneBitMatrixCompletion` for labels,
    `ImplicitMF` for implicit feedback, and otherwise `MatrixCompletion`.

    Examples
    --------
    >>> from momentous.lowrank import MatrixCompletion, load
    >>> fitted = MatrixCompletion(rank=1).fit([["ann", "x"], ["bob", "y"]], [4.0, 2.0])
    >>> fitted.save("model.npz")  # doctest: +SKIP
    >>> load("model.npz")  # doctest: +SKIP
    MatrixCompletion(rank=1)
    """
    model, extra = load_model(path)
    kinds: tuple[type[BaseCompletion], ...] = (OneBitMatrixCompletion, ImplicitMF)
    kind = next((one for one in kinds if one._loss == model.loss.name), MatrixCompletion)
    return kind._from_file(path, model, extra)
