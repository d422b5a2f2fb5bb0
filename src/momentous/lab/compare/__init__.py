"""Solvers on problems, counted alike: run them, keep the table, look at the outcome.

`compare` runs our methods and outside solvers and gives a `Comparison`; `performance_profile` and
`convergence` turn it into curves, ``profiles.plot_profiles`` and ``profiles.plot_convergence`` into
pictures, and ``momentous.lab.compare.scoreboard`` into a page.
"""

from momentous.lab.compare.profiles import (
    MEASURES,
    Curve,
    Profile,
    convergence,
    performance_profile,
)
from momentous.lab.compare.runner import compare
from momentous.lab.compare.table import Comparison, Row
from momentous.lab.meter import OUTSIDE_SOLVERS

__all__ = [
    "MEASURES", "OUTSIDE_SOLVERS", "Comparison", "Curve", "Profile", "Row", "compare",
    "convergence", "performance_profile",
]  # fmt: skip
