"""The paper's two problems on its data sets: values and gradients, counted apart.

A data set is a file of ratings, or the synthetic twin of one, by name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from momentous.io.optional import require
from momentous.lowrank import LowRankObjective, Ratings
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.data.twins import MODELS

PROBLEMS = {"completion": "matrix completion", "one-bit": "one-bit matrix completion"}
"""The paper's two problems, as they are called in files and in words."""
RANK = 10
CPU = "CPU"
Profile = Literal["paper", "authors-code"]
PROFILES: tuple[Profile, ...] = ("paper", "authors-code")


@dataclass(frozen=True)
class DataSet:
    """Ratings under the name that the paper has for them; without a file the twin is made."""

    name: str
    path: Path | None = None

    def __post_init__(self) -> None:
        if self.path is None and self.name not in MODELS:
            raise ValueError(
                f"there is no twin of {self.name!r}: give a file with it, or take one of "
                f"{', '.join(MODELS)}"
            )
        if self.path is not None and not self.path.exists():
            raise ValueError(
                f"there is no file {self.path} for {self.name}; without a file the synthetic twin "
                "is taken"
            )

    @property
    def twin(self) -> bool:
        """Is it synthetic?"""
        return self.path is None

    @cached_property
    def ratings(self) -> Ratings:
        """Read, or made, once."""
        return Ratings.twin(self.name) if self.path is None else Ratings.read(self.path)

    @cached_property
    def fingerprint(self) -> str:
        """Of the entries: what was found on one data set is not taken for another's."""
        digest = hashlib.sha256(repr(self.ratings.shape).encode())
        storage = self.ratings.by_row
        for part in (storage.starts, storage.others, storage.values):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()[:16]


class PaperProblem:
    """Matrix completion or one-bit matrix completion, of rank 10, from the SVD start.

    The pass that computes a gradient computes the value, too.  It is kept for the next
    call at the same point, if nobody can write to that array: a method that asks is charged for it,
    a trace is not.

    The labels of one-bit completion are the signs of rating minus mean rating, -1 where they are
    equal.  The authors' published code has half of the gradient of the balance term, so that value
    and gradient do not belong together; the profile "authors-code" repeats that.

    With ``device="cuda"`` points are CuPy arrays: what comes back from the GPU are numbers, and a
    call ends when they are here.
    """

    def __init__(
        self,
        data: DataSet,
        name: str,
        profile: Profile = "paper",
        threads: int | None = None,
        device: str = "cpu",
    ):
        if name not in PROBLEMS:
            raise ValueError(f"problem={name!r} must be one of {', '.join(PROBLEMS)}")
        if profile not in PROFILES:
            raise ValueError(f"profile={profile!r} must be one of {', '.join(PROFILES)}")
        self.data, self.name, self.profile = data, name, profile
        self._threads, self._asked_device = threads, device
        self._last: Floats | None = None
        self._last_value = float("nan")

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
    def _gradient_objective(self) -> LowRankObjective:
        """The function whose gradient is taken."""
        return self.objective if self.profile == "paper" else self._objective(0.5)

    def _objective(self, balance: float) -> LowRankObjective:
        loss: Literal["squared", "logistic"] = "logistic" if self.name == "one-bit" else "squared"
        rank = min(RANK, *self.ratings.shape)
        return LowRankObjective(
            self.ratings, rank, loss, balance, dtype="float64", threads=self._threads,
            device=self._asked_device,
        )  # fmt: skip

    @property
    def device(self) -> str:
        """Where the passes are made: "CPU", or the name of the GPU."""
        return CPU if self.objective.backend.device == "cpu" else _gpu()[0]

    @property
    def software(self) -> str:
        """What the GPU is used by, with versions; empty on the CPU."""
        return "" if self.device == CPU else _gpu()[1]

    def start(self) -> Floats:
        """The SVD start."""
        return self.objective.start()

    def value(self, x: Floats) -> float:
        """F(x)."""
        if x is not self._last or _can_be_written(x):
            self._keep(x, self.objective.value(x))
        return self._last_value

    def gradient(self, x: Floats) -> Floats:
        """The gradient of F at x."""
        value, gradient = self._gradient_objective.value_and_gradient(x)
        if self._gradient_objective is self.objective:
            self._keep(x, value)
        return gradient

    def _keep(self, x: Floats, value: float) -> None:
        """The value is good for as long as nobody writes into x: not into a view, for one."""
        self._last = x if x.base is None else None
        self._last_value = value


def _can_be_written(x: Floats) -> bool:
    """Points on a GPU have no such flag; `momentous.minimize`, which made them, leaves them."""
    return bool(getattr(x.flags, "writeable", False))


def _gpu() -> tuple[str, str]:
    """The name of the current GPU, and the versions of CuPy and CUDA."""
    cupy = require("cupy", "cuda", "device='cuda'")
    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
    version = runtime.runtimeGetVersion()
    return name, f"CuPy {cupy.__version__}, CUDA {version // 1000}.{version % 1000 // 10}"
