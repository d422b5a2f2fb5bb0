"""The regressor: a rating for each pair of ids."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, overload

from numpy.typing import ArrayLike

from momentous.io.types import AnyArray
from momentous.lowrank.checks import corrects_names
from momentous.lowrank.data.vocabulary import Pairs, split_triples
from momentous.lowrank.estimators.base import BiasedCompletion, values_of
from momentous.lowrank.estimators.scikit import RegressorMixin, metrics
from momentous.lowrank.losses import Loss


@dataclass(eq=False, repr=False)
class MatrixCompletion(RegressorMixin, BiasedCompletion):
    """Ratings from pairs of ids: mean + biases + a product of rank r.

    X of ``fit`` and ``predict`` is an array (or table) of shape (N, 2) with a row id and a column
    id each, integers or strings; or `Ratings`, or a SciPy sparse matrix, which hold y already.
    Predictions lie within the ratings seen.

    Parameters
    ----------
    rank : int or "auto"
        Number of factors (r).  More than the smaller side of the matrix are not used.  "auto" finds
        the rank that the ridge asks for: the fit then is the best one of any rank, with a proof
        (``certificate_``).
    loss : str or Loss
        "squared", or any other that `register_loss` knows.
    solver : str, Method or class
        ``"auto"``: alternating half steps with restarted momentum (`momentous.accelerate`);
        ``"sweep"``: the same without momentum; or any method of `momentous.minimize`: ``"lbfgs"``,
        ``"ada-ragd"``, ``"universal-hb"``, ...
    half_sweeps : {"auto", "exact", "cg"}
        How a sweep finds new rows for given columns, and columns for rows: ``"exact"`` solves one
        linear system each; ``"cg"`` takes two steps of conjugate gradients from where they are,
        which needs about as many sweeps, but for a very small ridge, and less time the higher the
        rank is.  ``"auto"``: the second above rank 12 (on a GPU always the first).
    start_scale : float
        Size of the random factors that sweeps begin with; with learned priors times the root of
        the ratings' standard deviation, which is the unit of factors.  From a very small start,
        0.001, what matters most grows first: a fit that a ``validation_share`` stops early is then
        as if the rank were lower, which is worth having where the rank may be too high.
    ridge : float, "fixed", "path" or None
        Weight of the squared factors.  None: learned, where the loss is the squared one, the rank
        is given and the solver is "auto" or "sweep"; elsewhere "fixed".  With learned priors a
        row's ridge is the prior of its side plus the variance of its partners, each feature's own
        (`momentous.lowrank.priors`); that predicts best, and gives standard deviations, but no
        certificate.  "fixed": 1.1 standard deviations of the ratings (0.8 for labels), which was
        chosen on held-out ratings.  "path", with ``rank="auto"``: a path from the largest ridge
        down, of which the least error on the validation share (by default on a tenth, which the
        last fit has again) chooses one.
    bias_ridge : float, optional
        Weight of the squared biases; by default 2 (1 for labels).  It belongs to a fixed ridge, and
        so does ``weighting``: with either of them, ridge=None stands for "fixed".
    weighting : float, optional
        The ridge of a row with c entries is ``ridge * c ** weighting``; by default 0.5.
    biases : bool
        Fit a bias for each row and column, together with the factors.
    centre : bool
        Fit to what differs from the mean (for labels: from their log odds).
    balance : float
        Weight of ``|U'U - V'V|^2 / 2``, for methods that go by gradients.
    max_iterations : int, optional
        By default 200 sweeps (2000 with ``rank="auto"``), or 1000 iterations of another method.
        The five sweeps with a fixed ridge that learned priors begin with are not counted.
    tol : float
        Stop when five sweeps lower the objective by less than this, relatively, and the last two by
        no more than the first two, after 15; with learned priors, whose objective falls for longer
        than predictions get better, when two sweeps raised the variance of the noise by no more
        than 20 times this, after 10; for other methods when the gradient is smaller than this times
        that of a small random point.
    gap_tol : float
        With ``rank="auto"``: stop when the objective is proven to be this near to the optimum,
        relatively.
    validation_share : float, optional
        Hold out this share of the entries, stop when the error on them has not improved for
        ``patience`` iterations, and keep the best model.  With a warm start, what the last fit
        held out stays held out, and of the rest only entries that are new are.
    patience : int
    unknown : {"mean", "nan", "error"}
        What to predict for ids that the fit has not seen: what is known without them, NaN, or an
        error.
    dtype : float32 or float64, optional
        Of the computation; by default that of the values.
    threads : int, optional
        By default as many as this process may use.  Sweeps give the same bits for any number.
    backend, device
        As for `LowRankObjective`.
    random_state : int, Generator or None
        For the first factors and the validation share.
    warm_start : bool
        Begin the next fit where the last one ended, for the ids that both know.  With the same
        ratings and parameters it goes on as if it had not ended there.
    verbose : bool or int
        Show a bar during the fit, in a notebook or on a terminal; elsewhere print a line after each
        iteration, and why the fit ended.  They go to the logger "momentous.fit", too.

    Attributes
    ----------
    row_factors_, col_factors_ : array, (rows, rank), (cols, rank)
    row_bias_, col_bias_ : array
    mean_ : float
    rank_ : int
        The number of factors: what ``rank="auto"`` has found.
    row_ids_, col_ids_ : array
        What the rows of the factors stand for.
    n_iter_ : int
    objective_ : float
        The objective that was minimised (without the balance); with learned priors the free energy
        per entry, which may be negative.
    validation_errors_ : list
        After each iteration: root mean square error of the predictions for the validation share
        (for labels their log loss).
    certificate_ : Certificate
        How far the model is from the best one of any rank: ``verdict``, ``gap``, ``relative_gap``,
        ``sigma_max``, ``ridge``, ``message``.  With learned priors there is none: a ValueError.
    path_ : list of PathPoint
        With ``ridge="path"``: ``ridge``, ``rank`` and ``held_out`` (the error) of each fit.
    result_ : Result
        Of the solver's run, with its trace; one that was stopped early ends as STOPPED.  None after
        `load`.
    message_ : str
        Why the fit ended, with the held-out error where that ended it.  Empty after `load`.
    model_ : LowRankModel

    References
    ----------
    .. [1] Y. Koren, R. Bell, C. Volinsky, "Matrix factorization techniques for recommender
       systems", Computer 42 (2009).
    .. [2] H. Li, Z. Lin, "Restarted nonconvex accelerated gradient descent: no more polylogarithmic
       factor in the O(eps^(-7/4)) complexity", JMLR 24 (2023).

    Examples
    --------
    >>> from momentous.lowrank import MatrixCompletion, Ratings
    >>> known, held_out = Ratings.twin("ml-100k").split(0.1)
    >>> fitted = MatrixCompletion(rank=10).fit(known)
    >>> items, ratings = fitted.recommend(7, n=3)
    >>> fitted.score(held_out) > 0.25
    True
    """

    _: KW_ONLY
    loss: str | Loss = "squared"

    @overload
    def predict(self, X: Pairs, return_std: Literal[False] = False) -> AnyArray: ...

    @overload
    def predict(self, X: Pairs, return_std: Literal[True]) -> tuple[AnyArray, AnyArray]: ...

    def predict(self, X: Pairs, return_std: bool = False) -> AnyArray | tuple[AnyArray, AnyArray]:
        """The rating of each pair; with ``return_std`` also its standard deviation.

        That is of the rating, noise and all, around the prediction: 1.28 of them on both sides
        cover about 80 % of ratings that were held out, 1.96 about 95 %.  It takes learned priors.
        """
        predicted = super().predict(X)
        if not return_std:
            return predicted
        return predicted, self.model_.deviations(self._known_pairs(X), self.unknown)

    @corrects_names
    def score(
        self, X: Pairs, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """The coefficient of determination R^2 of the predictions."""
        X, y = split_triples(X, y)
        predicted = self.predict(X)
        return float(metrics.r2_score(values_of(X, y), predicted, sample_weight=sample_weight))
