"""The options of a fit, once: their names, types and defaults, what they may be, and their help.

The estimators and `FitConfig` have their fields from here, the command line its options, and both
their checks.  Nothing heavy is imported: the shell's tab key reads this file.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from momentous.lowrank.checks import check_number

if TYPE_CHECKING:
    from momentous.core.method import Method
    from momentous.lowrank.backends import Backend
    from momentous.lowrank.data.ratings import Rng
    from momentous.lowrank.losses import Loss


@dataclass(eq=False, repr=False)
class FitOptions:
    """How to fit; `MatrixCompletion` says what each means."""

    rank: int | Literal["auto"] = 10
    _: KW_ONLY
    solver: str | Method | type[Method] = "auto"
    half_sweeps: str = "auto"
    start_scale: float = 0.1
    balance: float = 1.0
    max_iterations: int | None = None
    tol: float = 1e-4
    gap_tol: float = 1e-4
    validation_share: float | None = None
    patience: int = 5
    threads: int | None = None
    backend: str | Backend = "auto"
    device: str = "cpu"


@dataclass(eq=False, repr=False, kw_only=True)
class ModelOptions(FitOptions):
    """And what to fit; None stands for what the loss has as its default."""

    loss: str | Loss = "squared"
    ridge: float | Literal["path", "fixed"] | None = None
    bias_ridge: float | None = None
    weighting: float | None = None
    unobserved_weight: float | None = None
    biases: bool | None = None
    row_biases: bool = True  # False holds the biases of rows, though not of columns, at 0
    centre: bool | None = None
    random_state: Rng = 0


class Allowed(NamedTuple):
    """What an option may be, and what ``--help`` says of it."""

    help: str = ""
    number: type[int] | type[float] | None = None  # between low and high
    low: float = 0.0
    high: float = math.inf
    words: tuple[str, ...] = ()  # in place of a number
    choices: tuple[str, ...] = ()
    flag: str | None = None  # on the command line, if it is not the option's name


ALLOWED = {
    "rank": Allowed(
        "Number of factors; auto finds the best one for the ridge, with a proof.",
        int, 1, words=("auto",),
    ),
    "loss": Allowed(
        "squared; logistic: above the mean or not; implicit: counts, where what was not seen is a "
        "weak 0; one that your program has registered; or that of the model to resume."
    ),
    "solver": Allowed("auto, sweep, or a name that 'momentous methods' lists.", flag="method"),
    "ridge": Allowed(
        "Weight of the squared factors; fixed: one that suits most data; path, with --rank auto: "
        "chosen by entries held out. Without it the squared loss learns its priors.",
        float, words=("fixed", "path"),
    ),
    "weighting": Allowed(
        "The ridge of a row with c entries is RIDGE * c ** WEIGHTING, a fixed one.", float
    ),
    "unobserved_weight": Allowed(
        "With --loss implicit: iALS as published, with this weight of what was not seen; --ridge "
        "(default: 0.05 per entry of the mean user) and --weighting (default: 1) are then the "
        "paper's lambda and nu.",
        float, 1e-12,
    ),
    "gap_tol": Allowed("With --rank auto: how near to the optimum, relatively.", float),
    "biases": Allowed("Fit a bias per user and per item."),
    "half_sweeps": Allowed(
        "How sweeps solve for a row: exactly, or by two steps of conjugate gradients; auto: the "
        "latter above rank 12 (on a GPU: never).",
        choices=("auto", "exact", "cg"),
    ),
    "start_scale": Allowed(
        "Size of the random start; a small one with --validation-share often predicts better.",
        float, 1e-12,  # from 0 no sweep leads anywhere
    ),
    "validation_share": Allowed(
        "Hold out this share, and stop when the error on it stops falling.", float, 0.0, 1.0
    ),
    "max_iterations": Allowed("Limit on iterations.", int, 1),
    "tol": Allowed("Stop when five sweeps lower the objective by less than this share.", float),
    "patience": Allowed(number=int, low=1),
    "bias_ridge": Allowed(number=float),
    "balance": Allowed(number=float),
    "backend": Allowed("What does the arithmetic: auto, numba, numpy or cuda."),
}  # fmt: skip


def check_options(options: ModelOptions) -> None:
    """Refuse what is not allowed; None is, where it is the default."""
    for name, allowed in ALLOWED.items():
        value, default = getattr(options, name), getattr(ModelOptions, name)
        is_word = isinstance(value, str) and value in allowed.words
        if is_word or (value is None and default is None):
            continue
        if allowed.choices and value not in allowed.choices:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(allowed.choices)}")
        if allowed.number is not None:
            whole = allowed.number is int
            check_number(name, value, allowed.low, allowed.high, whole=whole)
