"""The paper's two problems, as functions whose value and gradient are counted apart."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from momentous.lowrank import LowRankObjective, Ratings
from momentous.lowrank.data.ratings import Floats
from momentous.reproduce.dataset import DataSet
from momentous.reproduce.recorded import PROBLEMS

RANK = 10
Profile = Literal["paper", "authors-code"]
PROFILES: tuple[Profile, ...] = ("paper", "authors-code")


class PaperProblem:
    """Matrix completion or one-bit matrix completion, of rank 10, from the SVD start.

    The pass that computes a gradient computes the value, too.  It is kept for whoever asks for it
    next at the same point, if nobody can write to that array: a method that asks is charged for
    it, a trace is not.

    Parameters
    ----------
    data : DataSet
    name : {"completion", "one-bit"}
        One-bit: labels are the signs of rating minus mean rating, -1 where they are equal.
    profile : {"paper", "authors-code"}
        The authors' published code has half of the gradient of the balance term, so that value and
        gradient do not belong together; "authors-code" repeats that.
    threads : int, optional
        Of the compiled pass.
    """

    def __init__(
        self, data: DataSet, name: str, profile: Profile = "paper", threads: int | None = None
    ):
        if name not in PROBLEMS:
            raise ValueError(f"problem={name!r} must be one of {', '.join(PROBLEMS)}")
        if profile not in PROFILES:
            raise ValueError(f"profile={profile!r} must be one of {', '.join(PROFILES)}")
        self.data, self.name, self.profile = data, name, profile
        self._threads = threads
        self._last: Any = None
        self._last_value = float("nan")

    @property
    def threads(self) -> int:
        """Of the compiled pass."""
        return self.objective.threads

    @cached_property
    def ratings(self) -> Ratings:
        """Ratings, or labels."""
        given = self.data.ratings
        return given.signs() if self.name == "one-bit" else given

    @cached_property
    def objective(self) -> LowRankObjective:
        """F."""
        return self._objective(1.0)

    @cached_property
    def _sloped(self) -> LowRankObjective:
        """What the gradient is taken of."""
        return self.objective if self.profile == "paper" else self._objective(0.5)

    def _objective(self, balance: float) -> LowRankObjective:
        loss: Literal["squared", "logistic"] = "logistic" if self.name == "one-bit" else "squared"
        rank = min(RANK, *self.ratings.shape)
        return LowRankObjective(
            self.ratings, rank, loss, balance, dtype="float64", threads=self._threads
        )

    def start(self) -> Floats:
        """The SVD start."""
        return self.objective.start()

    def value(self, x: Floats) -> float:
        """F(x)."""
        if x is not self._last or x.flags.writeable:
            self._keep(x, self.objective.value(x))
        return self._last_value

    def gradient(self, x: Floats) -> Floats:
        """The gradient of F at x."""
        value, gradient = self._sloped.value_and_gradient(x)
        if self._sloped is self.objective:
            self._keep(x, value)
        return gradient

    def _keep(self, x: Floats, value: float) -> None:
        """The value is good for as long as nobody writes into x: not into a view, for one."""
        self._last = x if x.base is None else None
        self._last_value = value

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        """Both, for solvers that want them together."""
        return self.objective.value_and_gradient(x)
