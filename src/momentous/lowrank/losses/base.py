"""What a loss is: one object that says all that solvers, models and commands ask about it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from momentous.io.types import JsonObject
from momentous.lowrank.data.ratings import Floats, Ratings, Whole
from momentous.lowrank.losses.formula import Formula

# Factors that take up a rating whole have its square in their Gram matrices, and its fourth power
# in the products of these: up to here, sums of 1e28 of them are finite.
LARGEST = 1e70
Numbers = Any  # one number, or an array of them: what a formula takes in Python and compiled
ValueRange = tuple[float, float]
Triple = tuple[Numbers, Numbers, Numbers]


@dataclass(frozen=True)
class Loss:
    """What an observed entry x costs, as a function of its prediction z.

    A new loss is a subclass with a ``name`` and an ``entry``; everything else has a default.
    Fields of the dataclass are its parameters: they must be numbers, and ``entry`` gets them as a
    tuple.  `register_loss` makes it known by name, which commands and saved models need.

    For a loss that is neither quadratic nor self-concordant, the curvature that ``entry`` returns
    must be that of a parabola that touches the loss at z and lies above it everywhere.
    """

    name: ClassVar[str]
    # A parabola in z: one linear system gives the best row.
    quadratic: ClassVar[bool] = False
    # Half the square of its slope, with curvature 1: kernels then save a product.
    unit_curvature: ClassVar[bool] = False
    # |l'''| <= l'': Newton's step, cut short where predictions move far, lowers the sum.
    self_concordant: ClassVar[bool] = False
    # Weight of z^2 / 2 summed over all pairs, observed or not; only for quadratic losses.
    dense_weight: ClassVar[float] = 0.0
    # x is a pair, value and weight: see `Loss.of`.
    weighted: ClassVar[bool] = False
    # Made for labels +1 and -1: ratings are cut at a threshold first.
    labels: ClassVar[bool] = False
    # Defaults of a model: biases, a mean, how the ridge grows with a row's number of entries
    # (benchmarks/held_out.py), and the weight of the squared biases.
    biases: ClassVar[bool] = True
    centred: ClassVar[bool] = True
    weighting: ClassVar[float] = 0.5
    bias_ridge: ClassVar[float] = 1.0
    measure: ClassVar[str] = "mean_loss"  # what `evaluate` calls the error

    # --- one entry --------------------------------------------------------------------------------

    @staticmethod
    def entry(z: Numbers, x: Numbers, parameters: tuple[float, ...]) -> Triple:
        """Value, slope and curvature in z: a formula of arithmetic, comparisons, np.where, np.exp
        and the like.

        It is called with arrays in double precision, and with symbols that write it down for
        compilers: those of the CPU and of the GPU are given what it does, line by line.
        """
        raise NotImplementedError

    def entries(self, z: Numbers, x: Numbers) -> Triple:
        """The same with the loss's own parameters, in double precision."""
        z, x = (
            one.astype(np.float64, copy=False) if hasattr(one, "astype") else one for one in (z, x)
        )  # arrays of any library; numbers of Python, and symbols, have no precision to change
        return self.entry(z, x, self.parameters)

    @classmethod
    def formula(cls) -> Formula:
        """What `entry` does, line by line, with numbers z and x, for a pair x and w, and parameters
        p0, p1, ..."""
        names = tuple(f"p{k}" for k in range(len(dataclasses.fields(cls))))
        return Formula.of(cls.entry, "z", ("x", "w") if cls.weighted else "x", names)

    def of(self, values: Floats) -> Loss:
        """This loss for such values of entries: times their weights, where they have weights."""
        if values.ndim == 1:
            return self
        kind = weighted_class(type(self))  # type: ignore[arg-type]  # a class has a hash
        return kind(*dataclasses.astuple(self))

    @property
    def plain(self) -> Loss:
        """The loss without weights."""
        return self

    @property
    def parameters(self) -> tuple[float, ...]:
        """The fields, in order."""
        return tuple(float(value) for value in dataclasses.astuple(self))

    def largest_curvature(self, x: Floats) -> Floats | float:
        """The greatest curvature for any z, one number or one per entry."""
        return np.inf

    def conjugate(self, y: Floats, x: Floats) -> Floats:
        """``max_z -y z - h(z)`` with h the whole loss of an observed pair, the dense part too:
        convex in y, infinite where it has no bound.  Only certificates ask for it; on a GPU with
        CuPy's arrays, which NumPy's functions take, and SciPy's do not."""
        raise ValueError(
            f"the {self.name} loss has no certificate, which needs the conjugate of a convex loss: "
            "where it is convex, give it a method `conjugate`"
        )

    # --- data and start ---------------------------------------------------------------------------

    def check(self, ratings: Ratings) -> None:
        """Refuse ratings that this loss is not made for."""

    def mean(self, ratings: Whole) -> float:
        """What a centred model predicts without factors and biases."""
        return 0.0

    def start_values(self, ratings: Ratings, mean: float) -> Floats:
        """The values whose truncated SVD is a good start."""
        return ratings.values

    def default_ridge(self, ratings: Whole) -> float:
        """A ridge of the factors that predicts well."""
        return 1.0

    # --- predictions ------------------------------------------------------------------------------

    def response(self, z: Floats, value_range: ValueRange) -> Floats:
        """What ``predict`` returns for a prediction z; value_range is that of the values seen."""
        return z

    def error(self, z: Floats, x: Floats, value_range: ValueRange) -> Floats:
        """What is averaged over entries that were held out."""
        values: Floats = self.entries(z, x)[0]
        return values

    def error_of_mean(self, mean: float) -> float:
        """The held-out error, from that average."""
        return mean

    def measures(
        self, z: Floats, x: Floats, value_range: ValueRange, weights: Floats | None = None
    ) -> dict[str, float]:
        """What ``evaluate`` prints."""
        mean = float(np.average(self.error(z, x, value_range), weights=weights))
        return {self.measure: self.error_of_mean(mean)}

    # --- in files ---------------------------------------------------------------------------------

    def describe(self) -> JsonObject:
        """Name and parameters, for files; see `restore_loss`."""
        return {"name": self.name, "parameters": dataclasses.asdict(self)}

    def __str__(self) -> str:
        return self.name


def largest_size(values: Floats) -> float:
    """The greatest absolute value, 0 without any, and no copy of all."""
    return float(max(values.max(initial=0.0), -values.min(initial=0.0)))


@cache
def weighted_class(loss: type[Loss]) -> type[Loss]:
    """The class of a loss times the weight of the entry: x are arrays of two columns, value and
    weight, and a pair in a formula."""
    if loss.dense_weight:
        raise ValueError(
            f"the {loss.name} loss is over all pairs, and has no weights of entries: multiply the "
            "values with them"
        )

    class Weighted(loss):  # type: ignore[valid-type, misc]
        weighted, unit_curvature = True, False

        @property
        def plain(self) -> Loss:
            return loss(*dataclasses.astuple(self))

        @staticmethod
        def entry(z: Numbers, x: Numbers, parameters: tuple[float, ...]) -> Triple:
            value, slope, curvature = loss.entry(z, x[0], parameters)
            return x[1] * value, x[1] * slope, x[1] * curvature

        def entries(self, z: Numbers, x: Floats) -> Triple:
            return super().entries(z, x.T)  # type: ignore[no-any-return]

        def largest_curvature(self, x: Floats) -> Floats | float:
            return x[:, 1] * self.plain.largest_curvature(x[:, 0])

        def conjugate(self, y: Floats, x: Floats) -> Floats:
            value, weight = x.astype(np.float64, copy=False).T
            conjugates: Floats = weight * self.plain.conjugate(y / weight, value)
            return conjugates

        def error(self, z: Floats, x: Floats, value_range: ValueRange) -> Floats:
            return x[:, 1] * self.plain.error(z, x[:, 0], value_range)

    Weighted.__qualname__ = f"Weighted{loss.__qualname__}"
    return Weighted


LOSSES: dict[str, type[Loss]] = {}
Class = TypeVar("Class", bound=type[Loss])


def register_loss(loss: Class) -> Class:
    """Register a loss by its name; also a decorator."""
    if not (isinstance(loss, type) and issubclass(loss, Loss)):
        raise TypeError(f"expected a subclass of Loss, not {loss!r}")
    if loss.dense_weight and not loss.quadratic:
        raise ValueError(f"the loss {loss.name!r} has a dense part, so must be quadratic")
    LOSSES[loss.name] = loss
    return loss


def find_loss(loss: str | Loss | type[Loss]) -> Loss:
    """The loss of that name, with its default parameters; a loss is given back as it is."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, type) and issubclass(loss, Loss):
        return loss()
    if loss not in LOSSES:
        raise ValueError(
            f"there is no loss {loss!r}; known are {', '.join(LOSSES)}, and register_loss adds "
            "others"
        )
    return LOSSES[loss]()


def restore_loss(described: JsonObject) -> Loss:
    """The loss that `Loss.describe` described."""
    name, parameters = described["name"], described["parameters"]
    if name not in LOSSES:
        raise ValueError(
            f"it is for the loss {name!r}, which is not known here; import what registers it first"
        )
    for key, value in parameters.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"its loss has {key}={value!r}, which is no number")
    return LOSSES[name](**parameters)
